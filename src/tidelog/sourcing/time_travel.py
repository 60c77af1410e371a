"""An entity as it was, who did what to it and why, and what changed between two versions. Read from the log alone.

    entries      every event of a history, with who, when, by which command, and what it was a reaction to
    state_at     the state after a version, or at a time
    difference   of two states: which fields are others now

Rules:
- Histories are read by the way that owners read them (`histories.py`): old events are upcast, and personal fields whose
  key is destroyed are ERASED, also in the past.
- A version is a place in the history; 0 is before its first event. A time is that of the owners' clocks, which may
  jump: the state at a time is the one after the last version that is not later. What is before that counts, whatever
  its time.
- `apply` is the decider's of today: a state of then is what today's code makes of the events of then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.errors import UsageError
from tidelog.record.columns import Row
from tidelog.sourcing.entity import Folding, LoadedEntity
from tidelog.sourcing.event_record import EventRecord
from tidelog.sourcing.histories import rows_of
from tidelog.sourcing.personal import STORED_AS
from tidelog.sourcing.store_topics import StoreTopics

NOTHING_THERE = "(nothing)"
PERSONAL = "(personal)"


class PastState(NamedTuple):
    """`last` is the event that it is the state after; None before the first."""

    state: Any
    version: int
    closed: bool
    last: EventRecord | None


class FieldChange(NamedTuple):
    """`field` is a path: `address.city`, `seats.3`. A side that does not have it is NOTHING_THERE."""

    field: str
    before: Any
    after: Any


class Moment(NamedTuple):
    """Up to where a history is read: a version, a time in milliseconds, or all of it."""

    version: int | None = None
    at_ms: int | None = None


def moment(version: int | None = None, at: datetime | None = None) -> Moment:
    if version is not None and at is not None:
        raise UsageError("a version and a time; give one of them")
    if version is not None and version < 0:
        raise UsageError(f"version {version}; versions begin with 0, before the first event")
    if at is not None and at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return Moment(version, None if at is None else int(at.timestamp() * 1000))


def reached(records: list[EventRecord], wanted: Moment) -> int:
    """How many of a history's records belong to the moment."""
    if wanted.version is not None:
        if wanted.version > len(records):
            raise UsageError(f"the history has {len(records)} versions, and version {wanted.version} is asked for")
        return wanted.version
    if wanted.at_ms is None:
        return len(records)
    return max((record.version for record in records if record.timestamp_ms <= wanted.at_ms), default=0)


def entries(cluster: Cluster, named: StoreTopics, entity: str) -> list[EventRecord]:
    """All of its events, the first one first; no code of the app is needed."""
    return [record for record, _ in rows_of(cluster, named, entity)]


def as_entry(record: EventRecord, row: Row) -> dict[str, Any]:
    """An event as it is stored, with who and why, for JSON. Personal fields are not shown."""
    fields = json.loads(row.value or b"{}")
    hidden = [name for name, one in fields.items() if isinstance(one, dict) and list(one) == [STORED_AS]]
    return {
        "version": record.version,
        "at": datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "type": record.type,
        "schema": record.schema,
        "fields": {**fields, **dict.fromkeys(hidden, PERSONAL)},
        "who": record.context.who,
        "command": record.command,
        "correlation": record.correlation,
        "causation": record.context.causation,
        "metadata": dict(record.context.metadata),
        "offset": record.offset,
    }


def states(cluster: Cluster, named: StoreTopics, entity: str, folding: Folding) -> Iterator[PastState]:
    """After each version, beginning with version 0. What the fold cannot take ends it, as it ends it for its owner."""
    loaded = folding.fresh()
    yield PastState(loaded.state, 0, False, None)
    for record, row in rows_of(cluster, named, entity):
        folding.apply(loaded, record, row)
        _raise_fault(loaded)
        yield PastState(loaded.state, loaded.version, loaded.closed, record)


def state_at(cluster: Cluster, named: StoreTopics, entity: str, folding: Folding, wanted: Moment) -> PastState:
    found = list(states(cluster, named, entity, folding))
    return found[reached([one.last for one in found if one.last is not None], wanted)]


def _raise_fault(loaded: LoadedEntity) -> None:
    if loaded.fault is not None:
        raise loaded.fault


# What is another one now ----------------------------------------------------------------------------------------------


def difference(before: Any, after: Any) -> list[FieldChange]:
    """Of two values as JSON has them; the fields that changed, by name."""
    return sorted(_changes("", before, after), key=lambda change: change.field)


def _changes(path: str, before: Any, after: Any) -> Iterator[FieldChange]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        sides: tuple[Mapping[Any, Any], Mapping[Any, Any]] = before, after
    elif isinstance(before, list) and isinstance(after, list):
        sides = dict(enumerate(before)), dict(enumerate(after))
    else:
        if before != after or type(before) is not type(after):
            yield FieldChange(path or ".", before, after)
        return
    for name in {**sides[0], **sides[1]}:
        below = f"{path}.{name}" if path else str(name)
        if name not in sides[0] or name not in sides[1]:
            yield FieldChange(below, sides[0].get(name, NOTHING_THERE), sides[1].get(name, NOTHING_THERE))
        else:
            yield from _changes(below, sides[0][name], sides[1][name])
