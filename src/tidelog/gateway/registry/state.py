"""What the registry knows: a fold of its topic. Pure; the shell has one and feeds it every record, in order.

    live       registered; seen by everyone
    deleted    softly: kept for whoever asks for it by name, and its id still gives its schema
    gone       for good: its record was taken away, and with the last version that had it its id

Rules:
- An id stands for one content (text, format, references, metadata, rules), and the same content has the same id in all
  subjects.
- An id that is gone is given to no other schema, for whoever reads the schema of an old record by it would be told
  another. So the last id is written down whenever versions go for good.
- The fold of a compacted topic is the fold of the whole one: nothing but the last record of each key counts.
- What does not look like a record of a registry's is passed over and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import md5
from json import dumps
from typing import Any, NamedTuple
from uuid import UUID

from tidelog.gateway.registry.records import AVRO, CLEAR_SUBJECT, CONFIG, DELETE_SUBJECT, MODE, NOOP, SCHEMA, Read, read
from tidelog.schema.compatibility import DEFAULT_LEVEL, LEVELS

READWRITE, READONLY, IMPORT = "READWRITE", "READONLY", "IMPORT"
MODES = (READWRITE, READONLY, IMPORT)
READONLY_OVERRIDE = "READONLY_OVERRIDE"


class Reference(NamedTuple):
    name: str
    subject: str
    version: int


class Content(NamedTuple):
    """What has an id. Metadata and rules are JSON, which nothing here looks into."""

    format: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rules: str | None = None

    @property
    def guid(self) -> str:
        """A name for the content that is the same in every registry."""
        parts = [self.text, *(f"{one.name}{one.subject}{one.version}" for one in self.references)]
        parts += [f"\x01{one}" for one in (self.metadata, self.rules) if one is not None]
        return str(UUID(bytes=md5("".join(parts).encode(errors="replace"), usedforsecurity=False).digest()))


class Version(NamedTuple):
    subject: str
    version: int
    id: int
    content: Content
    deleted: bool
    value: dict[str, Any]  # the record's, as it was


@dataclass(slots=True)
class State:
    subjects: dict[str, dict[int, Version]] = field(default_factory=dict)
    ids: dict[int, set[tuple[str, int]]] = field(default_factory=dict)  # the versions that have it, by subject
    contents: dict[Content, int] = field(default_factory=dict)
    configs: dict[str | None, dict[str, Any]] = field(default_factory=dict)
    modes: dict[str | None, str] = field(default_factory=dict)
    last_id: int = 0
    passed_over: int = 0

    def copy(self) -> State:
        """One that goes its own way. Versions and settings are replaced and never changed, so they are shared."""
        return State(
            {subject: dict(versions) for subject, versions in self.subjects.items()},
            {identity: set(places) for identity, places in self.ids.items()},
            dict(self.contents),
            dict(self.configs),
            dict(self.modes),
            self.last_id,
            self.passed_over,
        )


def apply(state: State, key: bytes | None, value: bytes | None) -> None:
    found = read(key, value)
    if found is None:
        state.passed_over += 1
    elif found.kind == SCHEMA:
        _apply_schema(state, found)
    elif found.kind == CONFIG:
        _put(state.configs, found.subject, found.value)
    elif found.kind == MODE:
        _put(state.modes, found.subject, (found.value or {}).get("mode"))
    elif found.kind == NOOP:
        state.last_id = max(state.last_id, (found.value or {}).get("lastId", 0))
    elif found.value is not None and found.subject is not None:
        _apply_deletion(state, found.kind, found.subject, found.value)


def _apply_schema(state: State, found: Read) -> None:
    assert found.subject is not None
    version = _version(found.subject, found.version, found.value)
    if found.value is not None and version is None:
        state.passed_over += 1
        return
    _take_away(state, found.subject, found.version)
    if version is not None:
        state.subjects.setdefault(found.subject, {})[found.version] = version
        state.ids.setdefault(version.id, set()).add((found.subject, found.version))
        state.contents.setdefault(version.content, version.id)
        state.last_id = max(state.last_id, version.id)


def _take_away(state: State, subject: str, number: int) -> None:
    old = version_at(state, subject, number)
    if old is None:
        return
    del state.subjects[subject][number]
    if not state.subjects[subject]:
        del state.subjects[subject]
    state.ids[old.id].discard((subject, number))
    if not state.ids[old.id]:
        del state.ids[old.id]
        if state.contents.get(old.content) == old.id:
            del state.contents[old.content]


def _apply_deletion(state: State, kind: str, subject: str, value: dict[str, Any]) -> None:
    last = value.get("version", 0)
    for number, version in list(state.subjects.get(subject, {}).items()):
        if kind == DELETE_SUBJECT and isinstance(last, int) and number <= last:
            deleted = version._replace(deleted=True, value={**version.value, "deleted": True})
            state.subjects[subject][number] = deleted
        elif kind == CLEAR_SUBJECT and version.deleted:
            _take_away(state, subject, number)


def _put(held: dict[str | None, Any], subject: str | None, value: Any) -> None:
    if value is None:
        held.pop(subject, None)
    else:
        held[subject] = value


def _version(subject: str, number: int, value: dict[str, Any] | None) -> Version | None:
    if value is None or not isinstance(value.get("id"), int) or not isinstance(value.get("schema"), str):
        return None
    identity, text = value["id"], value["schema"]
    content = content_of(value.get("schemaType") or AVRO, text, value)
    return Version(subject, number, identity, content, bool(value.get("deleted")), value)


def content_of(format: str, text: str, value: dict[str, Any]) -> Content:
    listed = value.get("references")
    references = tuple(
        Reference(str(one.get("name")), str(one.get("subject")), one["version"])
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict) and isinstance(one.get("version"), int)
    )
    return Content(format, text, references, _json(value.get("metadata")), _json(value.get("ruleSet")))


def _json(value: Any) -> str | None:
    return None if value is None else dumps(value, separators=(",", ":"), sort_keys=True)


# Questions


def versions_of(state: State, subject: str, *, deleted: bool = False) -> list[Version]:
    """From the first to the last."""
    found = sorted(state.subjects.get(subject, {}).values(), key=lambda version: version.version)
    return [version for version in found if deleted or not version.deleted]


def all_versions(state: State, *, deleted: bool = False) -> Iterator[Version]:
    for subject in sorted(state.subjects):
        yield from versions_of(state, subject, deleted=deleted)


def version_at(state: State, subject: str, number: int) -> Version | None:
    return state.subjects.get(subject, {}).get(number)


def content_with(state: State, identity: int) -> Content | None:
    at = next(iter(state.ids.get(identity, ())), None)
    return None if at is None else state.subjects[at[0]][at[1]].content


def referrers(state: State, subject: str, number: int, *, deleted: bool) -> list[Version]:
    return [
        version
        for version in all_versions(state, deleted=deleted)
        if any((one.subject, one.version) == (subject, number) for one in version.content.references)
    ]


def level_of(state: State, subject: str) -> str:
    for scope in (subject, None):
        level = state.configs.get(scope, {}).get("compatibilityLevel")
        if level in LEVELS:
            return str(level)
    return DEFAULT_LEVEL


def normalizes(state: State, subject: str) -> bool:
    for scope in (subject, None):
        wanted = state.configs.get(scope, {}).get("normalize")
        if wanted is not None:
            return bool(wanted)
    return False


def mode_of(state: State, subject: str | None) -> str:
    if state.modes.get(None) == READONLY_OVERRIDE:
        return READONLY
    return state.modes.get(subject) or state.modes.get(None) or READWRITE
