"""The codec's way from batches to columns and rows, in Python. Part of `_pure`.

A record is, after its length: attributes (one byte), timestamp delta, offset delta, key, value, header count and
headers; numbers are zigzag varints, keys and values a length (-1 for null) and bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from tidelog.errors import UsageError
from tidelog.record import fault as faults
from tidelog.record._pure_headers import header_of, inspect, view_of, wrap
from tidelog.record.fault import batch_fault, record_fault
from tidelog.record.header import HEADER_SIZE, MAX_BATCH_SIZE, MIN_RECORD_SIZE, BatchHeader

if TYPE_CHECKING:
    from tidelog.record.header import Buffer, Decoded, DecodedBinary, DecodedHeaders, Decompress, HeaderPairs

Made = TypeVar("Made")


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
    sink.offsets.append(wrap(header.base_offset + delta))
    sink.timestamps.append(header.max_timestamp if header.append_time else wrap(header.base_timestamp + timestamp))
    sink.header_offsets.append(len(sink.header_keys.valid))
    return at, delta


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
    rest, position = view_of(buffer, 0), 0
    found: list[tuple[BatchHeader, memoryview, memoryview, int]] = []
    while rest:
        fault = inspect(rest, crc, dense=False)
        if partial and fault in (faults.HEADER_CUT, faults.BATCH_CUT):
            break
        if fault:
            raise batch_fault(fault, rest, position, len(rest))
        header = header_of(rest)
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


def strings(parts: DecodedBinary | None, start: int, stop: int) -> Iterator[bytes | None]:
    """Strings number `start` to `stop` of a column."""
    if parts is None:
        yield from [None] * (stop - start)
        return
    validity, raw_offsets, raw_data = parts
    offsets, data = memoryview(raw_offsets).cast("B").cast("i"), memoryview(raw_data).cast("B")
    for index in range(start, stop):
        if validity is None or validity[index >> 3] >> (index & 7) & 1:
            first, end = offsets[index], offsets[index + 1]
            if not 0 <= first <= end <= len(data):
                raise UsageError("a column's offsets do not fit its data")
            yield data[first:end].tobytes()
        else:
            yield None


def header_pairs(headers: DecodedHeaders | None, start: int, stop: int) -> Iterator[HeaderPairs]:
    """The headers of rows number `start` to `stop`."""
    if headers is None:
        yield from [()] * (stop - start)
        return
    raw_offsets, names, values = headers
    offsets = memoryview(raw_offsets).cast("B").cast("i")
    for index in range(start, stop):
        first, end = offsets[index], offsets[index + 1]
        if not 0 <= first <= end <= offsets[-1]:
            raise UsageError("a column's offsets do not fit its data")
        pairs = zip(strings(names, first, end), strings(values, first, end), strict=True)
        yield tuple((_name(name), value) for name, value in pairs)


def _name(name: bytes | None) -> str:
    if name is None:
        raise UsageError("a header without a name")
    return name.decode("utf-8", "surrogateescape")


def rows(make: type[Made], parts: Decoded, count: int, start: int, stop: int) -> list[Made]:
    """Rows number `start` to `stop` of `count`, each a `make`, which is a named tuple of five."""
    offsets, timestamps, keys, values, headers = parts
    if start < 0 or stop > count:
        raise UsageError(f"rows {start} to {stop} of {count}")
    return list(
        map(
            make,
            memoryview(offsets).cast("B").cast("q")[start:stop],
            memoryview(timestamps).cast("B").cast("q")[start:stop],
            strings(keys, start, stop),
            strings(values, start, stop),
            header_pairs(headers, start, stop),
        )
    )
