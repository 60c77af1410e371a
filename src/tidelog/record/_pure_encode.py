"""The codec's way from rows or columns to a batch, in Python. Part of `_pure`."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from tidelog.errors import UsageError
from tidelog.record._pure_decode import header_pairs, strings
from tidelog.record._pure_headers import HEADER, check_size, fit, wrap
from tidelog.record.header import HEADER_SIZE, LENGTH_END, MAGIC, MAX_BATCH_SIZE

if TYPE_CHECKING:
    from tidelog.record.header import Buffer, DecodedBinary, DecodedHeaders, EncodableRow

_MURMUR_SEED = 0x9747B28C
_MURMUR_FACTOR = 0x5BD1E995
_MASK32 = 0xFFFFFFFF


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


class _Batch:
    """A batch being filled with records of at most `capacity` bytes in all, one at least."""

    def __init__(self, capacity: int) -> None:
        self.out = bytearray(HEADER_SIZE)
        self.limit = HEADER_SIZE + max(0, capacity)
        self.count = 0
        self.base_timestamp = self.max_timestamp = 0

    def add(self, row: EncodableRow) -> bool:
        """False: it does not fit, and nothing was done."""
        key, value, headers, timestamp = row
        fit(timestamp, 64)
        base_timestamp = timestamp if self.count == 0 else self.base_timestamp
        body = bytearray(1)
        _put_varint(body, wrap(timestamp - base_timestamp))
        _put_varint(body, self.count)
        _put_sized(body, key)
        _put_sized(body, value)
        _put_headers(body, headers)
        framed = bytearray()
        _put_varint(framed, len(body))
        framed += body
        check_size(len(self.out) + len(framed) if self.count == 0 else 0)
        if self.count and len(self.out) + len(framed) > self.limit:
            return False
        self.max_timestamp = timestamp if self.count == 0 else max(self.max_timestamp, timestamp)
        self.base_timestamp = base_timestamp
        self.out += framed
        self.count += 1
        return True

    def finish(
        self, base_offset: int, attributes: int, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> bytearray:
        if self.count == 0:
            raise UsageError("no records to encode; a batch has one at least")
        fit(base_offset, 64), fit(attributes, 16)
        stamps = fit(producer_id, 64), fit(producer_epoch, 16), fit(base_sequence, 32)
        times = self.base_timestamp, self.max_timestamp
        length = HEADER_SIZE - LENGTH_END
        HEADER.pack_into(
            *(self.out, 0, base_offset, length, -1, MAGIC, 0, attributes, self.count - 1, *times, *stamps, self.count)
        )
        return self.out


def encode_rows(
    rows: Iterable[EncodableRow],
    base_offset: int,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> bytearray:
    """One batch of these rows, plain, without length and checksum: `seal` sets them."""
    batch = _Batch(MAX_BATCH_SIZE - HEADER_SIZE)
    for row in rows:
        if not batch.add(row):
            check_size(MAX_BATCH_SIZE + 1)
    return batch.finish(base_offset, attributes, producer_id, producer_epoch, base_sequence)


def encode_columns(
    count: int,
    timestamps: Buffer,
    keys: DecodedBinary | None,
    values: DecodedBinary | None,
    headers: DecodedHeaders | None,
    start: int,
    target: int,
    base_offset: int,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    order: Buffer | None = None,
    stop: int | None = None,
) -> tuple[bytearray, int]:
    """One batch of about `target` bytes from row `start` on, as `encode_rows` makes it, and the row that comes next.

    With an `order` (an int32 a row) row i is the one that it names; rows from `stop` on are left out.
    """
    batch = _Batch(min(target, MAX_BATCH_SIZE) - HEADER_SIZE)
    times = memoryview(timestamps).cast("B").cast("q")
    _check_columns(count, len(times), keys, values, headers)
    last = count if stop is None else min(count, max(0, stop))
    row = start if 0 <= start < last else last
    if order is None:
        columns = strings(keys, row, last), strings(values, row, last), header_pairs(headers, row, last)
        rows: Iterable[EncodableRow] = zip(*columns, times[row:last], strict=True)
    else:
        rows = _ordered(_int32s(order, count), row, last, times, keys, values, headers)
    for each in rows:
        if not batch.add(each):
            break
        row += 1
    return batch.finish(base_offset, attributes, producer_id, producer_epoch, base_sequence), row


def _int32s(buffer: Buffer, count: int) -> memoryview:
    numbers = memoryview(buffer).cast("B").cast("i")
    if len(numbers) < count:
        raise UsageError(f"a column is shorter than the {count} rows that it is for")
    return numbers


def _ordered(
    order: memoryview,
    first: int,
    last: int,
    times: memoryview,
    keys: DecodedBinary | None,
    values: DecodedBinary | None,
    headers: DecodedHeaders | None,
) -> Iterator[EncodableRow]:
    count = len(times)
    for at in range(first, last):
        row = order[at]
        if not 0 <= row < count:
            raise UsageError("a column's offsets do not fit its data")
        columns = strings(keys, row, row + 1), strings(values, row, row + 1), header_pairs(headers, row, row + 1)
        yield next(columns[0]), next(columns[1]), next(columns[2]), times[row]


def group_rows(
    count: int, keys: DecodedBinary | None, given: Buffer | None, partitions: int, spare: int
) -> tuple[bytes, list[int]]:
    """Rows by partition: an order (an int32 a row) in which those of a partition follow one another, as they lay, and
    where each partition's rows end in it.

    A row's partition is the `given` one (an int32 a row, -1 for none), else that of its key, else `spare`.
    """
    if not 0 <= spare < partitions:
        raise UsageError(f"partition {spare} of {partitions} does not exist")
    _check_columns(count, count, keys, None, None)
    wanted = [-1] * count if given is None else _int32s(given, count)
    rows: list[list[int]] = [[] for _ in range(partitions)]
    for row, key in enumerate(strings(keys, 0, count)):
        place = wanted[row]
        if place < 0:
            place = spare if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions
        if place >= partitions:
            raise UsageError(f"row {row} fits none of {partitions} partitions")
        rows[place].append(row)
    order = array("i", [row for each in rows for row in each])
    return order.tobytes(), list(accumulate(map(len, rows)))


def _check_columns(
    count: int,
    timestamps: int,
    keys: DecodedBinary | None,
    values: DecodedBinary | None,
    headers: DecodedHeaders | None,
) -> None:
    if not 0 <= count <= MAX_BATCH_SIZE:
        raise UsageError(f"{count} rows; columns have at most {MAX_BATCH_SIZE}")
    if timestamps < count or (headers is not None and len(headers[0]) < 4 * count + 4):
        raise UsageError(f"a column is shorter than the {count} rows that it is for")
    for column in (keys, values):
        if column is not None and (
            len(column[1]) < 4 * count + 4 or (column[0] is not None and len(column[0]) < (count + 7) // 8)
        ):
            raise UsageError(f"a column is shorter than the {count} rows that it is for")


def murmur2(key: Buffer) -> int:
    """The hash of Java's default partitioner: 32 bits, signed."""
    data = memoryview(key).cast("B").tobytes()
    whole = len(data) & ~3
    hashed = _MURMUR_SEED ^ len(data)
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * _MURMUR_FACTOR & _MASK32
        part = (part ^ part >> 24) * _MURMUR_FACTOR
        hashed = (hashed * _MURMUR_FACTOR ^ part) & _MASK32
    if len(data) > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MURMUR_FACTOR & _MASK32
    hashed = (hashed ^ hashed >> 13) * _MURMUR_FACTOR & _MASK32
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed >> 31 else hashed
