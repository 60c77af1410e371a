"""What is wrong with the histories of a store: every record looked at, on any broker. `tidelog events check`.

    foreign     a record that no store wrote: headers are missing, or are not what they should be
    repeated    a version that its history has already; readers pass it over
    gap         a version that does not follow the last one: events between them are gone
    unknown     a type or version of a type that is not registered
    schema      a value that is not of its type
    misplaced   an event in another partition than its entity is in: no owner and no history has it

Rules:
- With a decider values are read as its store would read them. Without one they are held against what `NAME.types` says
  of their types: the fields that must be there, and what each may be.
- Nothing is written. Memory is one number for each entity.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.control.reading import read_all
from tidelog.errors import HistoryFault, UnknownEvent
from tidelog.record.columns import Row
from tidelog.sourcing.declaring import Schemas, declared
from tidelog.sourcing.event_record import EventRecord, decode, parse
from tidelog.sourcing.event_types import CLOSED, EventTypes
from tidelog.sourcing.store_topics import StoreTopics, partitions_of, place_of

FOREIGN, REPEATED, GAP, UNKNOWN, SCHEMA = "foreign", "repeated", "gap", "unknown", "schema"
MISPLACED = "misplaced"
JSON_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}


class HistoryFinding(NamedTuple):
    kind: str
    partition: int
    offset: int
    entity: str | None
    type: str | None  # of the event, as far as the record tells it
    what: str


class CheckedHistories(NamedTuple):
    records: int
    findings: list[HistoryFinding]


def check(cluster: Cluster, name: str, types: EventTypes | None = None) -> CheckedHistories:
    named = StoreTopics(name)
    partitions = partitions_of(cluster, named)
    stored = declared(cluster, named)
    count = stored.partitions or len(partitions)
    findings: list[HistoryFinding] = []
    records = 0
    for at in sorted(partitions):
        versions: dict[str, int] = {}
        for row in read_all(cluster, at):
            records += 1
            found = list(faults_of(row, versions, types, stored.schemas))
            right = at if row.key is None else place_of(named.events, row.key, count)
            if right != at and not any(kind == FOREIGN for kind, *_ in found):
                record = parse(row)
                found = [(MISPLACED, record.entity, record.type, f"it is to be in partition {right.partition}")]
            findings += [HistoryFinding(one[0], at.partition, row.offset, *one[1:]) for one in found]
    return CheckedHistories(records, findings)


def faults_of(
    row: Row, versions: dict[str, int], types: EventTypes | None, stored: Schemas
) -> Iterator[tuple[str, str | None, str | None, str]]:
    """Kind, entity, type of the event, and what it is. `versions` is what histories have before it, and moves on."""
    try:
        record = parse(row)
    except HistoryFault as error:
        key = None if row.key is None else row.key.decode(errors="replace")
        yield FOREIGN, key, None, str(error)
        return
    last = versions.get(record.entity, 0)
    if record.version <= last:
        yield REPEATED, record.entity, record.type, f"version {record.version} was there before; the first one counts"
        return
    if record.version != last + 1:
        yield GAP, record.entity, record.type, f"version {record.version} comes after version {last}"
    versions[record.entity] = record.version
    if record.type == CLOSED:
        return
    found = _by_schema(record, row, stored) if types is None else _by_types(row, types)
    if found is not None:
        yield found[0], record.entity, record.type, found[1]


def _by_types(row: Row, types: EventTypes) -> tuple[str, str] | None:
    try:
        decode(row, types)
    except UnknownEvent as error:
        return UNKNOWN, str(error)
    except Exception as error:  # of a user's upcaster, too
        return SCHEMA, str(error)
    return None


def _by_schema(record: EventRecord, row: Row, stored: Schemas) -> tuple[str, str] | None:
    schema = stored.get((record.type, record.schema))
    if schema is None:
        return UNKNOWN, f"type {record.type!r} of schema version {record.schema} is not registered in the store's types"
    try:
        fields = json.loads(row.value or b"")
    except ValueError as error:
        return SCHEMA, f"the value is not JSON: {error}"
    fault = fault_in(fields, schema)
    return None if fault is None else (SCHEMA, f"it is not of type {record.type}: {fault}")


def fault_in(fields: Any, schema: Mapping[str, Any]) -> str | None:
    """Of an object, by the outermost of its fields. A personal field may be encrypted: an object then."""
    reference = str(schema.get("$ref", "")).rpartition("/")[2]
    shape = schema.get("$defs", {}).get(reference, {}) if reference else schema
    if not isinstance(fields, dict):
        return f"it is {type(fields).__name__}, not an object"
    missing = [name for name in shape.get("required", ()) if name not in fields]
    if missing:
        return f"it lacks {', '.join(missing)}"
    for name, one in shape.get("properties", {}).items():
        if name in fields and not _fits(fields[name], one):
            return f"{name} is {fields[name]!r}"
    return None


def _fits(value: Any, shape: Mapping[str, Any]) -> bool:
    names = [one.get("type") for one in shape.get("anyOf", [shape])]
    if None in names or (isinstance(value, dict) and set(value) == {"personal"}):
        return True
    flat = [name for one in names for name in (one if isinstance(one, list) else [one])]
    if isinstance(value, bool):
        return "boolean" in flat
    return any(isinstance(value, JSON_TYPES.get(name, object)) for name in flat)
