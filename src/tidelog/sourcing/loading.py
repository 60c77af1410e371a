"""What a partition has, as entities: the last snapshots, and the events after the checkpoint. And the writing of both.

Rules:
- Read after the owner began (`control/owner.py`), up to the end as it is then: nobody else writes any more.
- A snapshot of another format or of another state's schema is passed over, and then all events are read: which of them
  a snapshot had is not known of it. So is every snapshot once one cannot be read.
- A record that is not an event of a store is counted (`foreign`) and passed over.
- Time and memory depend on how many entities there are and on the interval of checkpoints, not on how long histories
  are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Record
from tidelog.control.reading import read, span
from tidelog.record.columns import Row
from tidelog.sourcing.entities import Entities, SnapshotFault
from tidelog.sourcing.entity import Folding

SNAPSHOT_EVERY = 10_000  # events of a partition by default
PREFIX = "s/"
CHECKPOINT = b"checkpoint"
PUT_EACH = 5_000  # snapshots at a time
TRIM_EACH = 5_000  # events


class Loaded(NamedTuple):
    end: int  # the next offset of the events
    since_checkpoint: int  # events that were read
    foreign: int


def load(
    cluster: Cluster, folding: Folding, entities: Entities, events: TopicPartition, snapshots: TopicPartition | None
) -> Loaded:
    """Without `snapshots` all events are read."""
    there = span(cluster, events)
    if there is None:
        return Loaded(0, 0, 0)
    begin = there.start if snapshots is None else _load_snapshots(cluster, folding, entities, snapshots, there.start)
    read_events = foreign = 0
    for _, row in read(cluster, {events: begin}, {events: there.end}):
        record = folding.parse(row)
        if record is None:
            foreign += 1
            continue
        entity = entities.find(record.entity)
        if folding.apply(entity, record, row) or entity.fault is not None:
            entities.keep(record.entity, entity)
        read_events += 1
        if read_events % TRIM_EACH == 0:
            entities.trim()
    entities.trim()
    return Loaded(there.end, read_events, foreign)


def _load_snapshots(cluster: Cluster, folding: Folding, entities: Entities, at: TopicPartition, start: int) -> int:
    """The offset from which events are to be read."""
    there = span(cluster, at)
    if there is None:
        return start
    checkpoint, waiting, stale, schema = start, dict[str, bytes](), set[str](), folding.snapshot_schema
    for _, row in read(cluster, {at: there.start}, {at: there.end}):
        name = snapshot_name(row)
        if row.key == CHECKPOINT:
            checkpoint = max(start, _offset_of(row))
        elif name is not None and row.value is None:
            waiting.pop(name, None)
            stale.discard(name)
            entities.cold.drop(name)
        elif name is not None:
            if schema_of(row) != schema:
                stale.add(name)  # unless a newer one comes: compaction takes its time
                continue
            stale.discard(name)
            waiting[name] = row.value or b""
            if len(waiting) >= PUT_EACH:
                entities.cold.put(waiting.items())
                waiting = {}
    if stale:
        entities.cold.close()
        return start
    entities.cold.put(waiting.items())
    return checkpoint


def snapshot_name(row: Row) -> str | None:
    """Whose snapshot it is; None of another record."""
    key = (row.key or b"").decode(errors="replace")
    return key.removeprefix(PREFIX) if key.startswith(PREFIX) else None


def schema_of(row: Row) -> bytes | None:
    return next((data for name, data in row.headers if name == "schema"), None)


def _offset_of(row: Row) -> int:
    try:
        return int(json.loads(row.value or b"")["offset"])
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotFault(f"the checkpoint at offset {row.offset} cannot be read: {error!r}") from error


def snapshot_records(folding: Folding, entities: Entities, now_ms: int) -> Iterator[tuple[str, Record]]:
    headers = [("schema", folding.snapshot_schema)]
    for name, value in entities.snapshots():
        yield name, (f"{PREFIX}{name}".encode(), value, headers, now_ms)


def checkpoint_record(offset: int, now_ms: int) -> Record:
    return (CHECKPOINT, b'{"v":1,"offset":%d}' % offset, (), now_ms)
