"""Registering a schema and looking one up: pure decisions over the state.

What a schema meets, in this order: the subject's mode, its own grammar, whether it is there already (then that is the
answer), the compatibility that the subject demands, an id.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidelog.gateway.registry import refusals
from tidelog.gateway.registry.parsing import parse
from tidelog.gateway.registry.records import AVRO, RegistryRecord, schema_record
from tidelog.gateway.registry.state import (
    IMPORT,
    READONLY,
    READWRITE,
    Content,
    State,
    Version,
    content_of,
    content_with,
    level_of,
    mode_of,
    normalizes,
    referrers,
    versions_of,
)
from tidelog.schema.compatibility import conflicts
from tidelog.schema.schema import Schema

ID_MAX = VERSION_MAX = (1 << 31) - 1
SUBJECT_MAX = 1_000  # characters
CONTEXT_MARK = ":."  # subjects of other contexts begin so


class Proposal(NamedTuple):
    """What a client sends: `id` and `version` only when it moves a registry here."""

    content: Content
    id: int | None = None
    version: int | None = None
    normalize: bool = False


class Decision(NamedTuple):
    """Records to append, none when nothing changes, and what is answered once they are in the fold."""

    records: list[RegistryRecord]
    answer: Any


def read_proposal(body: Any, *, normalize: bool) -> Proposal:
    if not isinstance(body, dict):
        raise refusals.invalid_schema('the body is not an object; send {"schema": "..."}')
    text, format = body.get("schema"), body.get("schemaType") or AVRO
    if not isinstance(text, str) or not isinstance(format, str):
        raise refusals.invalid_schema('the body has no schema, or one that is not a string; send {"schema": "..."}')
    references = body.get("references") or []
    if not isinstance(references, list) or not all(map(_is_reference, references)):
        raise refusals.invalid_schema("a reference has no name, subject or version; give all three")
    for member in ("metadata", "ruleSet"):
        if not isinstance(body.get(member), dict | None):
            raise refusals.invalid_schema(f"{member} is not an object; send one, or leave it out")
    given_id, version = _number(body.get("id"), ID_MAX), _number(body.get("version"), VERSION_MAX)
    return Proposal(content_of(format.upper(), text, body), given_id, version, normalize)


def _is_reference(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and isinstance(value.get("subject"), str)
        and isinstance(value.get("version"), int)
    )


def _number(value: Any, limit: int) -> int | None:
    """Clients say -1 or 0 for none."""
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        return None
    if value > limit:
        raise refusals.invalid_schema(f"{value} is more than {limit}; ids and versions go up to that")
    return value


def check_subject(subject: str) -> str:
    if not subject.strip() or len(subject) > SUBJECT_MAX or subject.startswith(CONTEXT_MARK):
        raise refusals.invalid_subject(subject)
    return subject


def decide_register(state: State, subject: str, proposal: Proposal) -> Decision:
    check_subject(subject)
    _check_mode(state, subject, proposal)
    found = find(state, subject, proposal)
    if found is not None and (proposal.id in (None, found.id)) and (proposal.version in (None, found.version)):
        return Decision([], found)
    content, schema = _canonical(state, subject, proposal)
    if mode_of(state, subject) != IMPORT:
        reasons = reasons_against(state, subject, schema)
        if reasons:
            raise refusals.incompatible(subject, reasons)
    number = _next_version(state, subject, proposal)
    identity = _identity(state, content, proposal)
    version = _version(subject, number, identity, content)
    records = _replaced(state, version)
    return Decision([*records, schema_record(version.value, subject, number)], version)


def find(state: State, subject: str, proposal: Proposal, *, deleted: bool = False) -> Version | None:
    """The same schema under this subject: by its text, else by what it means with its references inside."""
    content, schema = _canonical(state, subject, proposal)
    versions = versions_of(state, subject, deleted=deleted)[::-1]
    for version in versions:
        if version.content == content:
            return version
    for version in versions:
        same_beside = version.content[3:] == content[3:] and version.content.format == content.format
        if same_beside and parse(state, version.content).whole == schema.whole:
            return version
    return None


def reasons_against(state: State, subject: str, schema: Schema, against: list[Version] | None = None) -> list[str]:
    """Why it may not come; against the versions that there are, or those that are given."""
    versions = versions_of(state, subject) if against is None else against
    level = level_of(state, subject)
    earlier = [
        parse(state, version.content) for version in (versions if level.endswith("TRANSITIVE") else versions[-1:])
    ]
    skipped = len(versions) - len(earlier)
    found = conflicts(level, schema, earlier)
    told = [f"version {versions[skipped + one.earlier].version}: {one.reason}" for one in found]
    return [*told, f"the compatibility of {subject!r} is {level}"] if told else []


def checked(state: State, subject: str, proposal: Proposal) -> Schema:
    return _canonical(state, subject, proposal)[1]


def _canonical(state: State, subject: str, proposal: Proposal) -> tuple[Content, Schema]:
    normalize = proposal.normalize or normalizes(state, subject)
    schema = parse(state, proposal.content, normalize=normalize)
    return proposal.content._replace(text=schema.text), schema


def _check_mode(state: State, subject: str, proposal: Proposal) -> None:
    mode = mode_of(state, subject)
    if mode == READONLY:
        raise refusals.not_permitted(f"subject {subject!r} is read-only; set its mode to READWRITE")
    if proposal.id is not None and mode != IMPORT:
        raise refusals.not_permitted(f"an id can be given in the mode IMPORT alone, and {subject!r} has {mode}")
    if proposal.id is None and mode != READWRITE:
        raise refusals.not_permitted(f"in the mode {mode} of subject {subject!r} a schema needs an id; give one")


def _next_version(state: State, subject: str, proposal: Proposal) -> int:
    number = max(state.subjects.get(subject, {}), default=0) + 1
    if proposal.version is None or proposal.version == number or mode_of(state, subject) == IMPORT:
        return proposal.version or number
    raise refusals.invalid_schema(f"version {proposal.version} of {subject!r} cannot come next; {number} is")


def _identity(state: State, content: Content, proposal: Proposal) -> int:
    if proposal.id is not None:
        if content_with(state, proposal.id) not in (None, content):
            raise refusals.not_permitted(f"id {proposal.id} stands for another schema; ids do not change")
        return proposal.id
    known = state.contents.get(content)
    if known is None and state.last_id >= ID_MAX:
        raise refusals.not_permitted(f"all ids up to {ID_MAX} are taken")
    return state.last_id + 1 if known is None else known


def _replaced(state: State, came: Version) -> list[RegistryRecord]:
    """A deleted version of the same schema makes place for it, unless others refer to it."""
    return [
        schema_record(None, old.subject, old.version)
        for old in versions_of(state, came.subject, deleted=True)
        if old.deleted and old.id == came.id and old.version < came.version
        if not referrers(state, old.subject, old.version, deleted=True)
    ]


def _version(subject: str, number: int, identity: int, content: Content) -> Version:
    from json import loads

    value: dict[str, Any] = {"subject": subject, "version": number, "id": identity}
    if content.format != AVRO:
        value["schemaType"] = content.format
    if content.references:
        value["references"] = [one._asdict() for one in content.references]
    if content.metadata is not None:
        value["metadata"] = loads(content.metadata)
    if content.rules is not None:
        value["ruleSet"] = loads(content.rules)
    value |= {"schema": content.text, "deleted": False}
    return Version(subject, number, identity, content, False, value)
