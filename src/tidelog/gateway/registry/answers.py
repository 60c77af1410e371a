"""What the registry says of schemas, subjects and settings: JSON as Confluent's clients read it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from tidelog.gateway.registry import refusals
from tidelog.gateway.registry.parsing import parse
from tidelog.gateway.registry.records import AVRO
from tidelog.gateway.registry.state import State, Version, all_versions, version_at, versions_of
from tidelog.schema.compatibility import DEFAULT_LEVEL

VERSION_MAX = (1 << 31) - 1
LATEST = ("latest", "-1")

One = TypeVar("One")


def schema_of(state: State, version: Version, form: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {"subject": version.subject, "version": version.version, "id": version.id}
    made["guid"] = version.content.guid
    if version.content.format != AVRO:
        made["schemaType"] = version.content.format
    for member in ("references", "metadata", "ruleSet"):
        if version.value.get(member):
            made[member] = version.value[member]
    made["schema"] = text_of(state, version, form)
    if version.deleted:
        made["deleted"] = True
    return made


def text_of(state: State, version: Version, form: str = "") -> str:
    """`serialized` is a descriptor in base64, of Protobuf; `resolved` has references inside, of Avro."""
    if form == "serialized" and version.content.format == "PROTOBUF":
        from tidelog.schema.protobuf.parse import serialized

        return serialized(parse(state, version.content))
    if form == "resolved" and version.content.format == AVRO:
        return parse(state, version.content).whole
    return version.content.text


def find_version(state: State, subject: str, text: str, *, deleted: bool = False) -> Version:
    """By number or as `latest`."""
    if subject not in state.subjects or not (deleted or versions_of(state, subject)):
        number_of(text)
        raise refusals.no_subject(subject)
    number = number_of(text)
    if number is None:
        return versions_of(state, subject, deleted=deleted)[-1]
    found = version_at(state, subject, number)
    if found is None or (found.deleted and not deleted):
        raise refusals.no_version(subject, number)
    return found


def number_of(text: str) -> int | None:
    """None for the latest."""
    if text in LATEST:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= VERSION_MAX):
        raise refusals.invalid_version(text)
    return int(text)


def find_id(state: State, text: str) -> list[Version]:
    """All versions with this id. By an id, deleted ones are found too: data may have been written with them."""
    identity = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else -1
    places = sorted(state.ids.get(identity, ()))
    found = [state.subjects[subject][number] for subject, number in places]
    if not found:
        raise refusals.no_schema(text[:50])
    return found


def find_guid(state: State, guid: str) -> Version:
    for version in all_versions(state, deleted=True):
        if version.content.guid == guid.lower():
            return version
    raise refusals.no_schema(guid[:50])


def config_of(state: State, subject: str | None, *, or_global: bool) -> dict[str, Any]:
    held = state.configs.get(subject)
    if held is None and subject is not None:
        if not or_global:
            raise refusals.no_config(subject)
        held = state.configs.get(None)
    return {"compatibilityLevel": DEFAULT_LEVEL, **_told(held or {})}


def _told(held: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in held.items() if name != "subject" and value is not None}


def part(found: Sequence[One], offset: str, limit: str) -> list[One]:
    """A page of it; a limit that is not a number, or below one, is not one."""
    start = int(offset) if offset.isdigit() and len(offset) < 10 else 0
    count = int(limit) if limit.isdigit() and len(limit) < 10 else 0
    return list(found[start : start + count] if count else found[start:])
