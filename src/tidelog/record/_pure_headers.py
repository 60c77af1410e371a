"""The codec's work on headers, in Python: look, check, stamp, walk. Part of `_pure`."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tidelog.errors import UsageError
from tidelog.record import fault as faults
from tidelog.record._pure_crc import crc32c
from tidelog.record.fault import batch_fault, scan_error
from tidelog.record.header import (
    APPEND_TIME_BIT,
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    CRC_AT,
    HEADER_SIZE,
    LAST_COMPRESSION,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    MAX_BATCH_SIZE,
    MAX_TIMESTAMP_AT,
    MIN_RECORD_SIZE,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Scan,
)

if TYPE_CHECKING:
    from tidelog.record.header import Buffer

HEADER = struct.Struct(">qiibIhiqqqhii")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")
_MASK64 = (1 << 64) - 1


def view_of(buffer: Buffer, position: int, *, writable: bool = False) -> memoryview:
    """What is left from `position` on, as plain bytes."""
    view = memoryview(buffer)
    if not view.contiguous:
        raise BufferError("the buffer is not contiguous")
    if writable and view.readonly:
        raise BufferError("the buffer is not writable")
    view = view.cast("B")
    if position < 0:
        raise ValueError(f"position {position} is negative")
    if position > len(view):
        raise batch_fault(faults.HEADER_CUT, b"", position, 0)
    return view[position:]


def header_of(batch: memoryview) -> BatchHeader:
    base_offset, length, epoch, _, _, attributes, *rest = HEADER.unpack_from(batch)
    return BatchHeader(base_offset, length + LENGTH_END, epoch, attributes, *rest)


def _glance(batch: memoryview) -> int:
    """Is there a header, of a kind that we know?"""
    if len(batch) < HEADER_SIZE:
        return faults.HEADER_CUT
    if batch[MAGIC_AT] != MAGIC:
        return faults.WRONG_MAGIC
    if _INT32.unpack_from(batch, LENGTH_AT)[0] < HEADER_SIZE - LENGTH_END:
        return faults.WRONG_LENGTH
    return faults.FINE


def inspect(batch: memoryview, crc: bool, dense: bool) -> int:
    """Is there a whole batch whose header agrees with itself? `dense`: and whose offsets have no gaps?"""
    fault = _glance(batch)
    if fault:
        return fault
    header = header_of(batch)
    span = header.last_offset_delta + 1
    if header.size > len(batch):
        return faults.BATCH_CUT
    if crc and crc32c(batch[ATTRIBUTES_AT : header.size]) != _UINT32.unpack_from(batch, CRC_AT)[0]:
        return faults.WRONG_CRC
    if header.count < 0 or span < 1 or header.count > span:
        return faults.WRONG_COUNT
    if dense and header.count != span:
        return faults.SPARSE
    if header.compression > LAST_COMPRESSION:
        return faults.UNKNOWN_COMPRESSION
    if header.compression == 0 and header.count * MIN_RECORD_SIZE > header.size - HEADER_SIZE:
        return faults.TOO_MANY_RECORDS
    return faults.FINE


def peek(buffer: Buffer, position: int = 0) -> BatchHeader:
    batch = view_of(buffer, position)
    fault = _glance(batch)
    if fault:
        raise batch_fault(fault, batch, position, len(batch))
    return header_of(batch)


def check(buffer: Buffer, position: int = 0) -> BatchHeader:
    batch = view_of(buffer, position)
    fault = inspect(batch, crc=True, dense=True)
    if fault:
        raise batch_fault(fault, batch, position, len(batch))
    return header_of(batch)


def patch(buffer: Buffer, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    batch = view_of(buffer, position, writable=True)
    if len(batch) < HEADER_SIZE:
        raise batch_fault(faults.HEADER_CUT, batch, position, len(batch))
    fit(base_offset, 64), fit(leader_epoch, 32)
    _INT64.pack_into(batch, BASE_OFFSET_AT, base_offset)
    _INT32.pack_into(batch, LEADER_EPOCH_AT, leader_epoch)


def _whole(buffer: Buffer, position: int) -> memoryview:
    """The batch at `position`, all of whose bytes are there."""
    batch = view_of(buffer, position, writable=True)
    fault = _glance(batch)
    size = 0 if fault else _INT32.unpack_from(batch, LENGTH_AT)[0] + LENGTH_END
    if size > len(batch):
        fault = faults.BATCH_CUT
    if fault:
        raise batch_fault(fault, batch, position, len(batch))
    return batch[:size]


def _sign(batch: memoryview) -> None:
    _UINT32.pack_into(batch, CRC_AT, crc32c(batch[ATTRIBUTES_AT:]))


def stamp_append_time(buffer: Buffer, timestamp_ms: int, position: int = 0) -> None:
    fit(timestamp_ms, 64)
    batch = _whole(buffer, position)
    _INT16.pack_into(batch, ATTRIBUTES_AT, _INT16.unpack_from(batch, ATTRIBUTES_AT)[0] | APPEND_TIME_BIT)
    _INT64.pack_into(batch, MAX_TIMESTAMP_AT, timestamp_ms)
    _sign(batch)


def restamp(
    buffer: Buffer,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
    position: int = 0,
) -> None:
    fit(producer_id, 64), fit(producer_epoch, 16), fit(base_sequence, 32)
    batch = _whole(buffer, position)
    attributes = _INT16.unpack_from(batch, ATTRIBUTES_AT)[0] & ~TRANSACTIONAL_BIT
    _INT16.pack_into(batch, ATTRIBUTES_AT, attributes | (TRANSACTIONAL_BIT if transactional else 0))
    _PRODUCER.pack_into(batch, PRODUCER_ID_AT, producer_id, producer_epoch, base_sequence)
    _sign(batch)


def seal(buffer: Buffer) -> None:
    batch = view_of(buffer, 0, writable=True)
    if len(batch) < HEADER_SIZE:
        raise batch_fault(faults.HEADER_CUT, batch, 0, len(batch))
    check_size(len(batch))
    _INT32.pack_into(batch, LENGTH_AT, len(batch) - LENGTH_END)
    _sign(batch)


def scan(buffer: Buffer, position: int = 0, *, crc: bool = True) -> Scan:
    rest = view_of(buffer, position)
    headers: list[BatchHeader] = []
    positions: list[int] = []
    while rest:
        fault = inspect(rest, crc, dense=False)
        if fault:
            error = scan_error(batch_fault(fault, rest, position, len(rest)))
            return Scan(headers, positions, position, error)
        header = header_of(rest)
        headers.append(header)
        positions.append(position)
        position += header.size
        rest = rest[header.size :]
    return Scan(headers, positions, position, None)


def check_size(size: int) -> None:
    if size > MAX_BATCH_SIZE:
        raise UsageError(f"a batch of {size} bytes is past 2 GiB; encode fewer records at a time")


def wrap(number: int) -> int:
    """Sums and differences wrap around in 64 bits, like Java's."""
    number &= _MASK64
    return number - (1 << 64) if number >> 63 else number


def fit(number: int, bits: int) -> int:
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise OverflowError(f"{number} does not fit {bits} bits")
    return number
