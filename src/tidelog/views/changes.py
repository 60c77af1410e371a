"""What a view's topic says, in Python: changes by key, and stretches of whole micro-batches. Pure.

    record     key    {"product":"tea"}                                           JSON, the key's columns in their order
               value  {"before":null,"after":{...},"op":"u","source":{...},"ts_ms":MS}       a Debezium envelope
                      or null, after a delete: for compaction

Rules:
- `after` null is a row that is gone. `before` stands where the operator knew it; null says nothing.
- A stretch is all that a topic has between two ends, both of marks: one micro-batch or several, never part of one, but
  where it is built aside and nobody looks (`reading.py`).
- A tombstone is passed over where it follows its delete. Compaction may have taken that: who keeps rows (stores, and
  who folds a topic) then takes the tombstone for it; feeds are never behind what compaction may touch.
- Within a stretch the last change of a key counts (`latest`), for stores; feeds take them all, in the order of offsets.
- The columns of the key are the same in the key and in `after`; a record that says otherwise is not a change.
- `op` is Debezium's: c, u, d, and r for a row of a snapshot. Who applies looks at `after` alone. For feeds, c says that
  there was no row before, where a `before` that is null does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import Ends, Mark
from tidelog.errors import Disconnected, PeerError, UsageError
from tidelog.record.columns import Row as Record
from tidelog.schema.declaration import Column, Declaration, Key, Row, Value, column_from_json, to_json

CREATE, UPDATE, DELETE, READ, TRUNCATE = "c", "u", "d", "r", "t"
TOMBSTONE: Mapping[str, Any] = {"before": None, "after": None, "op": DELETE}


class Outgrown(Disconnected):
    """The view has grown, and the reader goes by an older declaration: it reads the catalog again."""


class NoChange(PeerError):
    """A record of a view's topic that is not a change: who else writes there?"""


class Change(NamedTuple):
    """One key's, as one record tells it."""

    key: Key
    after: Row | None
    before: Row | None
    at: TopicPartition
    offset: int
    timestamp_ms: int
    op: str = UPDATE


class Stretch(NamedTuple):
    """What a store takes in one transaction."""

    changes: Sequence[Change]  # in the order of offsets within each partition
    ends: Ends  # what it reaches, for every partition that its applier reads
    mark: Mark | None  # the last one in it; None for a topic without marks, and for part of a micro-batch

    def latest(self) -> dict[Key, Change]:
        return {change.key: change for change in self.changes}


def changes_of(
    declared: Declaration,
    at: TopicPartition,
    records: Iterable[Record],
    *,
    tombstones: bool = False,
    exact: bool = False,
) -> list[Change]:
    """Of one partition's records, in their order. With `tombstones`, one whose delete is gone is a delete. With
    `exact`, a row that has more columns than are declared is `Outgrown`: what they hold would be lost.
    """
    told = [record for record in records if tombstones or record.value is not None]
    try:
        envelopes = json.loads(b"[" + b",".join(record.value or b"null" for record in told) + b"]")
        keys = json.loads(b"[" + b",".join(record.key or b"null" for record in told) + b"]")
    except (ValueError, RecursionError) as error:
        raise _unread(at, told) or _malformed(at, told, str(error)) from error
    if not len(told) == len(envelopes) == len(keys):
        raise _malformed(at, told, "values that are several in one")
    said = [TOMBSTONE if record.value is None else one for record, one in zip(told, envelopes, strict=True)]
    changes: list[Change] = []
    for record, change, envelope in zip(told, _decoded(declared, at, told, keys, said), said, strict=True):
        if exact and change.after is not None and len(envelope["after"]) > len(declared.columns):
            raise Outgrown(f"{at}, offset {record.offset}: a row has columns that are not declared yet; read again")
        if record.value is not None or not _is_told(change, changes):
            changes.append(change)
    return changes


def _is_told(gone: Change, before: Sequence[Change]) -> bool:
    """Whether the delete stands right before its tombstone."""
    return bool(before) and before[-1].key == gone.key and before[-1].after is None


def _decoded(
    declared: Declaration, at: TopicPartition, records: Sequence[Record], keys: Sequence[Any], said: Sequence[Any]
) -> list[Change]:
    """Column by column, which costs half of row by row. Row by row where one is refused, to find and to name it."""
    try:
        named = _keys(declared, keys)
        after = _rows(declared, [one["after"] for one in said])
        _check_same(declared, named, after)
        before = _rows(declared, [one.get("before") for one in said])
        return [
            Change(key, new, old, at, record.offset, record.timestamp, str(one.get("op", UPDATE)))
            for key, new, old, record, one in zip(named, after, before, records, said, strict=True)
        ]
    except (UsageError, KeyError, TypeError, AttributeError) as error:
        if len(records) == 1:
            raise _malformed(at, records, str(error)) from error
        return [
            change
            for record, key, one in zip(records, keys, said, strict=True)
            for change in _decoded(declared, at, [record], [key], [one])
        ]


def _keys(declared: Declaration, said: Sequence[Mapping[str, Any] | None]) -> list[Key]:
    keys = _values(declared.columns[: len(declared.key)], said)
    if any(None in key for key in keys):
        raise UsageError("a key that is null")
    return keys


def _check_same(declared: Declaration, keys: Sequence[Key], rows: Sequence[Row | None]) -> None:
    """One store goes by the record's key and another by the row's: they are the same, or the stores would not be."""
    for place, name in enumerate(declared.key):
        for key, row in zip(keys, rows, strict=True):
            if row is not None and row[name] != key[place]:
                raise UsageError(f"its key has {name} {key[place]!r:.80}, and its row has {row[name]!r:.80}")


def _rows(declared: Declaration, said: Sequence[Mapping[str, Any] | None]) -> list[Row | None]:
    names = [name for name, _ in declared.columns]
    values = iter(_values(declared.columns, [one for one in said if one is not None]))
    return [None if one is None else dict(zip(names, next(values), strict=True)) for one in said]


def _values(columns: Sequence[Column], said: Sequence[Mapping[str, Any] | None]) -> list[tuple[Value, ...]]:
    """A column that is not said is null: the row is older than the column."""
    found = []
    for name, kind in columns:
        try:
            found.append(column_from_json(kind, [None if one is None else one.get(name) for one in said]))
        except UsageError as error:
            raise UsageError(f"column {name!r}: {error}") from error
    return list(zip(*found, strict=True))


def _unread(at: TopicPartition, records: Sequence[Record]) -> NoChange | None:
    """The first one that is not JSON, or deeper nested than can be read; None if each is, and not all together."""
    for record in records:
        try:
            json.loads(record.value or b"null"), json.loads(record.key or b"null")
        except (ValueError, RecursionError) as error:
            return _malformed(at, [record], str(error))
    return None


def _malformed(at: TopicPartition, records: Sequence[Record], why: str) -> NoChange:
    where = (
        f"offset {records[0].offset}" if len(records) == 1 else f"offsets {records[0].offset} to {records[-1].offset}"
    )
    return NoChange(f"{at}, {where}: not a change of this view: {why}; who else writes to its topic?")


def encode(declared: Declaration, row: Row, before: Row | None = None, *, gone: bool = False) -> tuple[bytes, bytes]:
    """Key and value of one change, as the pipelines' own writer has them. `gone`: `row` is what is no more."""
    key = {name: to_json(kind, row[name]) for name, kind in declared.columns[: len(declared.key)]}
    said = {name: to_json(kind, row.get(name)) for name, kind in declared.columns}
    was = None if before is None else {name: to_json(kind, before.get(name)) for name, kind in declared.columns}
    envelope = {"before": said if gone else was, "after": None if gone else said, "op": DELETE if gone else UPDATE}
    return _text(key), _text({**envelope, "source": {"connector": "tidelog"}, "ts_ms": 0})


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
