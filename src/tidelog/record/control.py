"""Markers: the control batch that ends a transaction in a partition. Written by the broker, never by a client.

A marker is a batch of one record, control and transactional, with the producer's id and epoch and without a sequence:

    key      version int16 (0) · type int16 (0 abort, 1 commit)
    value    version int16 (0) · coordinator epoch int32

Kafka has further types (of its own replication); whoever does not know one passes it over. A control batch without a
record is what compaction leaves of a marker that nobody needs any more: it has no type.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tidelog.errors import MalformedBatch
from tidelog.record.columns import decode, encode
from tidelog.record.header import Buffer

ABORT, COMMIT = 0, 1
NO_TYPE = -1
NO_COORDINATOR = -1
VERSION = 0
NO_SEQUENCE = -1

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class Marker(NamedTuple):
    kind: int
    coordinator_epoch: int


NO_MARKER = Marker(NO_TYPE, NO_COORDINATOR)


def encode_marker(producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, timestamp_ms: int) -> bytearray:
    key = _KEY.pack(VERSION, COMMIT if commit else ABORT)
    return encode(
        [(key, _VALUE.pack(VERSION, coordinator_epoch), None, timestamp_ms)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=NO_SEQUENCE,
        transactional=True,
        control=True,
    )


def read_marker(batch: Buffer) -> Marker:
    """Of one whole control batch; NO_MARKER when it has no record, or one that is not a control record."""
    try:
        row = next(decode(batch, crc=False).rows(), None)
    except MalformedBatch:
        return NO_MARKER
    if row is None or row.key is None or len(row.key) < _KEY.size:
        return NO_MARKER
    kind = _KEY.unpack_from(row.key)[1]
    if row.value is None or len(row.value) < _VALUE.size:
        return Marker(kind, NO_COORDINATOR)
    return Marker(kind, _VALUE.unpack_from(row.value)[1])
