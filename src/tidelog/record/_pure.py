"""The codec in Python: what `_codec` does, for machines without a compiler and for readers.

The two have the same functions, give the same results and find the same fault first; the tests hold them to that. Here
as there a number read from the bytes is used only after it was compared with what is left of them.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.errors import UsageError
from tidelog.record import fault as faults
from tidelog.record._pure_crc import crc32c as crc32c
from tidelog.record.fault import batch_fault, record_fault, scan_error
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
    MAX_BATCH_SIZE,
    MAX_TIMESTAMP_AT,
    MIN_RECORD_SIZE,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Scan,
)

if TYPE_CHECKING:
    from tidelog.record.header import Buffer, Decoded, DecodedBinary, DecodedHeaders, Decompress, EncodableRow

_HEADER = struct.Struct(">qiibIhiqqqhii")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")

_MASK64 = (1 << 64) - 1


def engine() -> str:
    """How checksums are made here."""
    return "python"


# --- headers ---------------------------------------------------------------------------------------------------------


def _view(buffer: Buffer, position: int, *, writable: bool = False) -> memoryview:
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


def _header_of(batch: memoryview) -> BatchHeader:
    base_offset, length, epoch, _, _, attributes, *rest = _HEADER.unpack_from(batch)
    return BatchHeader(base_offset, length + LENGTH_END, epoch, attributes, *rest)


def _glance(batch: memoryview) -> int:
    """Is there a header, of a kind that we know?"""
    if len(batch) < HEADER_SIZE:
        return faults.HEADER_CUT
    if batch[16] != MAGIC:
        return faults.WRONG_MAGIC
    if _INT32.unpack_from(batch, LENGTH_AT)[0] < HEADER_SIZE - LENGTH_END:
        return faults.WRONG_LENGTH
    return faults.FINE


def _inspect(batch: memoryview, crc: bool, dense: bool) -> int:
    """Is there a whole batch whose header agrees with itself? `dense`: and whose offsets have no gaps?"""
    fault = _glance(batch)
    if fault:
        return fault
    header = _header_of(batch)
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
    batch = _view(buffer, position)
    fault = _glance(batch)
    if fault:
        raise batch_fault(fault, batch, position, len(batch))
    return _header_of(batch)


def check(buffer: Buffer, position: int = 0) -> BatchHeader:
    batch = _view(buffer, position)
    fault = _inspect(batch, crc=True, dense=True)
    if fault:
        raise batch_fault(fault, batch, position, len(batch))
    return _header_of(batch)


def patch(buffer: Buffer, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    batch = _view(buffer, position, writable=True)
    if len(batch) < HEADER_SIZE:
        raise batch_fault(faults.HEADER_CUT, batch, position, len(batch))
    _fit(base_offset, 64), _fit(leader_epoch, 32)
    _INT64.pack_into(batch, BASE_OFFSET_AT, base_offset)
    _INT32.pack_into(batch, LEADER_EPOCH_AT, leader_epoch)


def _fit(number: int, bits: int) -> int:
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise OverflowError(f"{number} does not fit {bits} bits")
    return number


def _whole(buffer: Buffer, position: int) -> memoryview:
    """The batch at `position`, all of whose bytes are there."""
    batch = _view(buffer, position, writable=True)
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
    _fit(timestamp_ms, 64)
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
    _fit(producer_id, 64), _fit(producer_epoch, 16), _fit(base_sequence, 32)
    batch = _whole(buffer, position)
    attributes = _INT16.unpack_from(batch, ATTRIBUTES_AT)[0] & ~TRANSACTIONAL_BIT
    _INT16.pack_into(batch, ATTRIBUTES_AT, attributes | (TRANSACTIONAL_BIT if transactional else 0))
    _PRODUCER.pack_into(batch, PRODUCER_ID_AT, producer_id, producer_epoch, base_sequence)
    _sign(batch)


def seal(buffer: Buffer) -> None:
    batch = _view(buffer, 0, writable=True)
    if len(batch) < HEADER_SIZE:
        raise batch_fault(faults.HEADER_CUT, batch, 0, len(batch))
    _check_size(len(batch))
    _INT32.pack_into(batch, LENGTH_AT, len(batch) - LENGTH_END)
    _sign(batch)


def scan(buffer: Buffer, position: int = 0, *, crc: bool = True) -> Scan:
    rest = _view(buffer, position)
    headers: list[BatchHeader] = []
    positions: list[int] = []
    while rest:
        fault = _inspect(rest, crc, dense=False)
        if fault:
            error = scan_error(batch_fault(fault, rest, position, len(rest)))
            return Scan(headers, positions, position, error)
        header = _header_of(rest)
        headers.append(header)
        positions.append(position)
        position += header.size
        rest = rest[header.size :]
    return Scan(headers, positions, position, None)


# --- records to columns ----------------------------------------------------------------------------------------------


class _Wrong(Exception):
    """A fault inside a record; its number is the argument. Leaves this module as a MalformedBatch."""


def _varint(data: memoryview, at: int, end: int, bits: int) -> tuple[int, int]:
    """One zigzag number of at most `bits` bits, and where it ends."""
    number = shift = 0
    while at < end and shift < bits:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> bits:
                break
            return number >> 1 ^ -(number & 1), at
        shift += 7
    raise _Wrong(faults.WRONG_VARINT)


class _BinaryBuilder:
    """A column of byte strings in Arrow's layout, growing."""

    def __init__(self) -> None:
        self.offsets = array("i", [0])
        self.valid: list[bool] = []
        self.data = bytearray()

    def add(self, value: memoryview | None) -> None:
        if value is not None:
            if len(self.data) + len(value) > MAX_BATCH_SIZE:
                raise _Wrong(faults.COLUMN_FULL)
            self.data += value
        self.offsets.append(len(self.data))
        self.valid.append(value is not None)

    def finish(self) -> DecodedBinary:
        bits = None
        if not all(self.valid):
            number = int("".join("1" if valid else "0" for valid in reversed(self.valid)), 2)
            bits = number.to_bytes((len(self.valid) + 7) // 8, "little")
        return bits, self.offsets.tobytes(), bytes(self.data)


class _Sink:
    """The columns being filled, in row order."""

    def __init__(self) -> None:
        self.offsets = array("q")
        self.timestamps = array("q")
        self.keys = _BinaryBuilder()
        self.values = _BinaryBuilder()
        self.header_offsets = array("i", [0])
        self.header_keys = _BinaryBuilder()
        self.header_values = _BinaryBuilder()

    def finish(self) -> Decoded:
        headers: DecodedHeaders | None = None
        if self.header_keys.valid:
            headers = self.header_offsets.tobytes(), self.header_keys.finish(), self.header_values.finish()
        columns = self.keys.finish(), self.values.finish()
        return self.offsets.tobytes(), self.timestamps.tobytes(), *columns, headers


def _take(column: _BinaryBuilder, data: memoryview, at: int, end: int, least: int, wrong: int) -> int:
    """One key, value or header part: a length, -1 for null, and that many bytes."""
    size, at = _varint(data, at, end, 32)
    if size < least or size > end - at:
        raise _Wrong(wrong)
    column.add(None if size < 0 else data[at : at + size])
    return at + max(size, 0)


def _take_record(sink: _Sink, header: BatchHeader, data: memoryview, at: int, last_delta: int) -> tuple[int, int]:
    size, at = _varint(data, at, len(data), 32)
    if size < 1 or size > len(data) - at:
        raise _Wrong(faults.WRONG_RECORD_LENGTH)
    end = at + size
    timestamp, at = _varint(data, at + 1, end, 64)  # after the attributes of a record, unused by Kafka so far
    delta, at = _varint(data, at, end, 32)
    if not last_delta < delta <= header.last_offset_delta:
        raise _Wrong(faults.WRONG_OFFSET_DELTA)
    at = _take(sink.keys, data, at, end, -1, faults.WRONG_KEY_LENGTH)
    at = _take(sink.values, data, at, end, -1, faults.WRONG_VALUE_LENGTH)
    count, at = _varint(data, at, end, 32)
    if count < 0 or count > (end - at) // 2:
        raise _Wrong(faults.WRONG_HEADER_COUNT)
    for _ in range(count):
        at = _take(sink.header_keys, data, at, end, 0, faults.WRONG_HEADER_LENGTH)
        at = _take(sink.header_values, data, at, end, -1, faults.WRONG_HEADER_LENGTH)
    if at != end:
        raise _Wrong(faults.RECORD_NOT_FILLED)
    sink.offsets.append(_wrap(header.base_offset + delta))
    sink.timestamps.append(header.max_timestamp if header.append_time else _wrap(header.base_timestamp + timestamp))
    sink.header_offsets.append(len(sink.header_keys.valid))
    return at, delta


def _wrap(number: int) -> int:
    """Sums and differences wrap around in 64 bits, like Java's."""
    number &= _MASK64
    return number - (1 << 64) if number >> 63 else number


def _take_batch(sink: _Sink, header: BatchHeader, batch: memoryview, data: memoryview, position: int) -> None:
    at, delta = 0, -1
    for index in range(header.count):
        try:
            at, delta = _take_record(sink, header, data, at, delta)
        except _Wrong as wrong:
            raise record_fault(wrong.args[0], position, index) from None
    if at != len(data):
        raise batch_fault(faults.BATCH_NOT_FILLED, batch, position, 0)


def decode(
    buffer: Buffer, crc: bool, limit: int, partial: bool, decompress: Decompress
) -> tuple[list[BatchHeader], Decoded]:
    """All batches of the buffer: their headers, and their records as columns.

    All headers are looked at, and all compressed batches made plain, before the first record is.
    """
    rest, position = _view(buffer, 0), 0
    found: list[tuple[BatchHeader, memoryview, memoryview, int]] = []
    while rest:
        fault = _inspect(rest, crc, dense=False)
        if partial and fault in (faults.HEADER_CUT, faults.BATCH_CUT):
            break
        if fault:
            raise batch_fault(fault, rest, position, len(rest))
        header = _header_of(rest)
        data = rest[HEADER_SIZE : header.size]
        if header.compression:
            data = memoryview(decompress(header.compression, data, limit)).cast("B")
            limit -= len(data)
        if header.count * MIN_RECORD_SIZE > len(data):
            raise batch_fault(faults.TOO_MANY_RECORDS, rest, position, len(rest))
        found.append((header, rest, data, position))
        position += header.size
        rest = rest[header.size :]
    sink = _Sink()
    for each in found:
        _take_batch(sink, *each)
    return [each[0] for each in found], sink.finish()


# --- rows to a batch -------------------------------------------------------------------------------------------------


def _check_size(size: int) -> None:
    if size > MAX_BATCH_SIZE:
        raise UsageError(f"a batch of {size} bytes is past 2 GiB; encode fewer records at a time")


def _put_varint(out: bytearray, number: int) -> None:
    number = number << 1 if number >= 0 else ~(number << 1)
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _put_sized(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out.append(1)  # -1 in zigzag
        return
    plain = value if type(value) is bytes else memoryview(value).tobytes()
    _put_varint(out, len(plain))
    out += plain


def _put_headers(out: bytearray, headers: Iterable[tuple[str | bytes, Buffer | None]] | None) -> None:
    count, body = 0, bytearray()
    for name, value in headers or ():
        _put_sized(body, name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name)
        _put_sized(body, value)
        count += 1
    _put_varint(out, count)
    out += body


def encode_rows(
    rows: Iterable[EncodableRow],
    base_offset: int,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> bytearray:
    """One batch of these rows, plain, without length and checksum: `seal` sets them."""
    out = bytearray(HEADER_SIZE)
    count, base_timestamp, max_timestamp = 0, 0, 0
    for key, value, headers, timestamp in rows:
        _fit(timestamp, 64)
        if count == 0:
            base_timestamp = max_timestamp = timestamp
        max_timestamp = max(max_timestamp, timestamp)
        body = bytearray(1)
        _put_varint(body, _wrap(timestamp - base_timestamp))
        _put_varint(body, count)
        _put_sized(body, key)
        _put_sized(body, value)
        _put_headers(body, headers)
        _put_varint(out, len(body))
        out += body
        _check_size(len(out))
        count += 1
    if count == 0:
        raise UsageError("no records to encode; a batch has one at least")
    (
        _fit(base_offset, 64),
        _fit(attributes, 16),
        _fit(producer_id, 64),
        _fit(producer_epoch, 16),
        _fit(base_sequence, 32),
    )
    stamps = attributes, count - 1, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count
    _HEADER.pack_into(out, 0, base_offset, HEADER_SIZE - LENGTH_END, -1, MAGIC, 0, *stamps)
    return out
