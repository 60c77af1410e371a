"""What a partition knows of its idempotent producers: a fold over batch headers, never a log of its own.

For every producer id: its epoch, when it last wrote, and its last REMEMBERED batches, so that a batch that is sent
again is answered with the offset it already has. `find_duplicate` decides, `follow` applies; both are pure. An entry is
immutable, which makes undoing an append (put the old entry back) and writing a snapshot in another thread safe.

The rules are Kafka's: an unknown producer may begin at any sequence (its state may have been deleted with its records);
a new epoch begins at 0; otherwise the sequence follows on the last, 0 after 2^31 - 1; a lower epoch is fenced.

Snapshot, big-endian (the file around it is drawn in snapshot.py), for each producer:

     0  producer_id        int64
     8  epoch              int16
    10  last_timestamp     int64
    18  coordinator_epoch  int32     not before version 3 of the file
    22  count              uint8     batches that follow, the oldest first
    23  count times        int32 base sequence, int32 last sequence, int64 last offset, int64 append time or -1
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.errors import OutOfOrderSequence, StaleProducerEpoch, StorageError
from tidelog.record.control import NO_COORDINATOR
from tidelog.record.header import BatchHeader

REMEMBERED = 5  # a client has at most this many requests in flight per partition when idempotent
MAX_SEQUENCE = 0x7FFFFFFF
NO_SEQUENCE = -1

_PRODUCER = struct.Struct(">qhqiB")
_UNCOORDINATED = struct.Struct(">qhqB")
_BATCH = struct.Struct(">iiqq")


class RecentBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    last_offset: int
    append_time: int  # -1 when the record's own time counts


class ProducerState(NamedTuple):
    epoch: int
    last_timestamp: int
    batches: tuple[RecentBatch, ...]
    coordinator_epoch: int = NO_COORDINATOR  # of the last marker here, of whatever epoch of the producer

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


def find_duplicate(producer: ProducerState | None, header: BatchHeader) -> RecentBatch | None:
    """The batch that this one repeats, None when it is new and in order; raises when it is neither."""
    if producer is None or header.is_control:
        return None
    epoch, first = header.producer_epoch, header.base_sequence
    if epoch < producer.epoch:
        raise StaleProducerEpoch(
            f"producer {header.producer_id} has epoch {epoch}, but epoch {producer.epoch} has already written here"
        )
    if epoch > producer.epoch:
        if first == 0:
            return None
        raise OutOfOrderSequence(f"producer {header.producer_id} begins epoch {epoch} at sequence {first}, not at 0")
    if not producer.batches:
        return None
    last = producer.batches[-1].last_sequence
    if first == last + 1 or (first == 0 and last == MAX_SEQUENCE):
        return None
    ending = advance(first, header.last_offset_delta)
    for batch in producer.batches:
        if batch.base_sequence == first and batch.last_sequence == ending:
            return batch
    raise OutOfOrderSequence(f"producer {header.producer_id} sent sequence {first} after {last}")


def follow(
    producer: ProducerState | None,
    header: BatchHeader,
    last_offset: int,
    timestamp: int,
    append_time: int = -1,
    marked_by: int = NO_COORDINATOR,
) -> ProducerState:
    """The producer after this batch, which was found to be new; `timestamp` is when it was written or says it was,
    `marked_by` the coordinator's epoch of a marker.
    """
    epoch = header.producer_epoch
    known = producer.batches if producer is not None and producer.epoch == epoch else ()
    coordinator = producer.coordinator_epoch if producer is not None and marked_by == NO_COORDINATOR else marked_by
    if header.is_control:
        return ProducerState(epoch, timestamp, known, coordinator)
    first = header.base_sequence
    batch = RecentBatch(first, advance(first, header.last_offset_delta), last_offset, append_time)
    return ProducerState(epoch, timestamp, (*known[1 - REMEMBERED :], batch), coordinator)


def advance(sequence: int, by: int) -> int:
    return (sequence + by) & MAX_SEQUENCE


def expired(producers: Mapping[int, ProducerState], before: int) -> list[int]:
    """The ids of those that have not written since `before`."""
    return [producer_id for producer_id, producer in producers.items() if producer.last_timestamp < before]


def pack(producers: Mapping[int, ProducerState]) -> bytes:
    parts = []
    for producer_id, producer in producers.items():
        epoch, timestamp, batches, coordinator = producer
        parts.append(_PRODUCER.pack(producer_id, epoch, timestamp, coordinator, len(batches)))
        parts.extend(_BATCH.pack(*batch) for batch in batches)
    return b"".join(parts)


def unpack(data: bytes, *, coordinated: bool = True) -> dict[int, ProducerState]:
    """`coordinated`: with the epochs of coordinators."""
    layout = _PRODUCER if coordinated else _UNCOORDINATED
    producers = {}
    position = 0
    try:
        while position < len(data):
            producer_id, epoch, timestamp, *coordinator, count = layout.unpack_from(data, position)
            start = position + layout.size
            position = start + count * _BATCH.size
            batches = tuple(RecentBatch(*_BATCH.unpack_from(data, at)) for at in range(start, position, _BATCH.size))
            producers[producer_id] = ProducerState(epoch, timestamp, batches, *coordinator)
    except struct.error as error:
        raise StorageError(f"snapshot of producers ends in the middle, at byte {position}") from error
    return producers
