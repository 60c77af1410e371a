"""Deleting, compatibility and mode: pure decisions over the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.gateway.registry import refusals
from tidelog.gateway.registry.records import (
    RegistryRecord,
    config_record,
    delete_subject_record,
    last_id_record,
    mode_record,
    schema_record,
)
from tidelog.gateway.registry.registering import Decision, check_subject
from tidelog.gateway.registry.state import (
    IMPORT,
    MODES,
    READONLY,
    State,
    Version,
    mode_of,
    referrers,
    version_at,
    versions_of,
)
from tidelog.schema.compatibility import LEVELS

# Of Confluent's settings of a subject, those that mean something here. Others would be promises that nobody keeps.
CONFIGS = ("compatibility", "normalize")
HARMLESS: tuple[Any, ...] = (None, False, {}, [])


def decide_delete_version(state: State, subject: str, number: int, *, permanent: bool) -> Decision:
    version = version_at(state, subject, number)
    if version is None:
        raise refusals.no_version(subject, number) if subject in state.subjects else refusals.no_subject(subject)
    if version.deleted and not permanent:
        raise refusals.version_deleted(subject, number)
    if permanent and not version.deleted:
        raise refusals.version_not_deleted(subject, number)
    _check_writable(state, subject)
    _check_referrers(state, version, deleted=permanent)
    if not permanent:
        return Decision([schema_record({**version.value, "deleted": True}, subject, number)], number)
    records = [last_id_record(state.last_id), schema_record(None, subject, number)]
    if len(state.subjects[subject]) == 1:
        records += _forget(state, subject)
    return Decision(records, number)


def decide_delete_subject(state: State, subject: str, *, permanent: bool) -> Decision:
    if subject not in state.subjects:
        raise refusals.no_subject(subject)
    versions = versions_of(state, subject, deleted=permanent)
    if not versions:
        raise refusals.subject_deleted(subject)
    if permanent and any(not version.deleted for version in versions):
        raise refusals.subject_not_deleted(subject)
    _check_writable(state, subject)
    for version in versions:
        _check_referrers(state, version, deleted=permanent, but=subject)
    numbers = [version.version for version in versions]
    if not permanent:
        return Decision([delete_subject_record(subject, numbers[-1])], numbers)
    gone = [schema_record(None, subject, number) for number in reversed(numbers)]
    return Decision([last_id_record(state.last_id), *gone, *_forget(state, subject)], numbers)


def decide_config(state: State, subject: str | None, body: Any) -> Decision:
    if subject is not None:
        check_subject(subject)
    if not isinstance(body, Mapping):
        raise refusals.invalid_level(tuple(LEVELS))
    foreign = [name for name, value in body.items() if name not in CONFIGS and value not in HARMLESS]
    if foreign:
        raise refusals.not_permitted(f"{', '.join(foreign)[:200]} would change nothing here; leave it out")
    _check_writable(state, subject)
    value = {**state.configs.get(subject, {})}
    value.pop("subject", None)
    level = body.get("compatibility")
    if level is not None:
        if not isinstance(level, str) or level.upper() not in LEVELS:
            raise refusals.invalid_level(tuple(LEVELS))
        value["compatibilityLevel"] = level.upper()
    if isinstance(body.get("normalize"), bool):
        value["normalize"] = body["normalize"]
    return Decision([config_record(subject, value)], body)


def decide_delete_config(state: State, subject: str | None) -> Decision:
    held = state.configs.get(subject)
    if held is None and subject is not None:
        raise refusals.no_subject(subject)
    _check_writable(state, subject)
    return Decision([config_record(subject, None)] if held is not None else [], held)


def decide_mode(state: State, subject: str | None, body: Any, *, force: bool) -> Decision:
    if subject is not None:
        check_subject(subject)
    mode = body.get("mode") if isinstance(body, Mapping) else None
    if not isinstance(mode, str) or mode.upper() not in MODES:
        raise refusals.invalid_mode(MODES)
    if mode.upper() == IMPORT and mode_of(state, subject) != IMPORT and not force:
        held = versions_of(state, subject) if subject is not None else [*_some_version(state)]
        if held:
            said = "schemas are there already, and importing could give their ids to others; add force=true to do so"
            raise refusals.not_permitted(said)
    return Decision([mode_record(subject, mode.upper())], {"mode": mode.upper()})


def decide_delete_mode(state: State, subject: str | None) -> Decision:
    held = state.modes.get(subject)
    if held is None and subject is not None:
        raise refusals.no_subject(subject)
    return Decision([mode_record(subject, None)] if held is not None else [], {"mode": held or mode_of(state, None)})


def _some_version(state: State) -> list[Version]:
    return next((versions_of(state, subject) for subject in state.subjects if versions_of(state, subject)), [])


def _forget(state: State, subject: str) -> list[RegistryRecord]:
    """With its last version a subject's settings go too."""
    records = [mode_record(subject, None)] if subject in state.modes else []
    return [*records, config_record(subject, None)] if subject in state.configs else records


def _check_writable(state: State, subject: str | None) -> None:
    if mode_of(state, subject) == READONLY:
        what = "the registry" if subject is None else f"subject {subject!r}"
        raise refusals.not_permitted(f"{what} is read-only; set its mode to READWRITE")


def _check_referrers(state: State, version: Version, *, deleted: bool, but: str | None = None) -> None:
    found = [one for one in referrers(state, version.subject, version.version, deleted=deleted) if one.subject != but]
    if found:
        by = [f"{one.subject!r} version {one.version}" for one in found[:10]]
        raise refusals.referenced(version.subject, version.version, by)
