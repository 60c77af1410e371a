"""Records as columns, in Arrow's layout: decode many batches at once, encode one from rows or many from columns.

`Columns` is what a run of batches holds: one int64 column each of offsets and timestamps, keys and values as byte
strings with nulls, headers as a list per row, and the header of every batch in row order (batch i has
`batches[i].count` rows). Nothing in it refers to the buffer that it came from. `rows()` gives Python objects;
`arrow.columns_to_arrow` gives Arrow arrays over the same memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.record import codec
from tidelog.record.compression import code_of, compress, decompress
from tidelog.record.header import (
    APPEND_TIME_BIT,
    CONTROL_BIT,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    Decoded,
    DecodedBinary,
    DecodedHeaders,
    EncodableRow,
    HeaderPairs,
)

MAX_DECOMPRESSED = 256 << 20  # bytes that the compressed batches of one decode may become, in all
TARGET_SIZE = 1 << 20  # bytes that a batch made of columns has at most, before compression
_ROWS_AT_ONCE = 256  # Python objects that exist at a time while rows are iterated


class Row(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs


class Binary:
    """Byte strings: string i is `data[offsets[i]:offsets[i + 1]]`, or null where bit i of `validity` is 0."""

    __slots__ = ("parts",)

    def __init__(self, parts: DecodedBinary) -> None:
        self.parts = parts

    @property
    def validity(self) -> Buffer | None:
        return self.parts[0]

    @property
    def offsets(self) -> memoryview:
        return memoryview(self.parts[1]).cast("B").cast("i")

    @property
    def data(self) -> Buffer:
        return self.parts[2]


class HeaderColumn:
    """Row i has the headers number `offsets[i]` to `offsets[i + 1] - 1` of `keys` and `values`."""

    __slots__ = ("parts",)

    def __init__(self, parts: DecodedHeaders) -> None:
        self.parts = parts

    @property
    def offsets(self) -> memoryview:
        return memoryview(self.parts[0]).cast("B").cast("i")

    @property
    def keys(self) -> Binary:
        return Binary(self.parts[1])

    @property
    def values(self) -> Binary:
        return Binary(self.parts[2])


class Columns:
    """Views are made when asked for: keep one rather than ask for it by row."""

    __slots__ = ("batches", "count", "parts")

    def __init__(self, batches: list[BatchHeader], parts: Decoded) -> None:
        self.batches = batches
        self.parts = parts
        self.count = len(parts[0]) // 8

    @property
    def offsets(self) -> memoryview:
        return memoryview(self.parts[0]).cast("B").cast("q")

    @property
    def timestamps(self) -> memoryview:
        return memoryview(self.parts[1]).cast("B").cast("q")

    @property
    def keys(self) -> Binary:
        return Binary(self.parts[2])

    @property
    def values(self) -> Binary:
        return Binary(self.parts[3])

    @property
    def headers(self) -> HeaderColumn | None:
        """None when no row has any."""
        return None if self.parts[4] is None else HeaderColumn(self.parts[4])

    @property
    def control(self) -> bytes:
        """A byte per row: 1 where the row is of a control batch (a transaction's end), which no consumer is given."""
        return b"".join((b"\1" if batch.is_control else b"\0") * batch.count for batch in self.batches)

    def rows(self) -> Iterator[Row]:
        for start in range(0, self.count, _ROWS_AT_ONCE):
            yield from codec.rows(Row, self.parts, self.count, start, min(start + _ROWS_AT_ONCE, self.count))


def decode(buffer: Buffer, *, crc: bool = True, limit: int = MAX_DECOMPRESSED, partial: bool = True) -> Columns:
    """All batches of the buffer. A batch cut short at its end is left out (`partial`), or else a TruncatedBatch.

    Raises MalformedBatch and its kinds; also when compressed batches would become more than `limit` bytes in all.
    """
    return Columns(*codec.decode(buffer, crc, limit, partial, decompress))


def encode(
    rows: Iterable[EncodableRow],
    *,
    compression: str = "none",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    base_offset: int = 0,
    append_time: bool = False,
) -> bytearray:
    """One batch of rows (key, value, headers, timestamp); headers are pairs of name and value, or None for none."""
    attributes = _attributes(compression, transactional, control, append_time)
    batch = codec.encode_rows(rows, base_offset, attributes, producer_id, producer_epoch, base_sequence)
    return _finish(batch, code_of(compression))


def encode_partitions(
    count: int,
    timestamps: Buffer,
    keys: DecodedBinary | None,
    values: DecodedBinary | None,
    headers: DecodedHeaders | None = None,
    *,
    partitions: int,
    spare: int,
    given: Buffer | None = None,
    target: int = TARGET_SIZE,
    compression: str = "none",
) -> Iterator[tuple[int, bytearray]]:
    """Batches by partition, in each the rows in their order: the partition that is `given` for a row (an int32 each, -1
    for none), else its key's as Java's default partitioner has it, else `spare`.

    A batch has at most `target` bytes before compression, unless one record is larger. A column of None is all null.
    """
    attributes, code = _attributes(compression, False, False, False), code_of(compression)
    order, ends = codec.group_rows(count, keys, given, partitions, spare)
    row = 0
    for partition, end in enumerate(ends):
        while row < end:
            stamps = 0, attributes, -1, -1, -1
            batch, row = codec.encode_columns(
                count, timestamps, keys, values, headers, row, target, *stamps, order=order, stop=end
            )
            yield partition, _finish(batch, code)


def _attributes(compression: str, transactional: bool, control: bool, append_time: bool) -> int:
    return (
        code_of(compression)
        | (APPEND_TIME_BIT if append_time else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )


def _finish(batch: bytearray, code: int) -> bytearray:
    if code:
        with memoryview(batch) as plain:
            packed = compress(code, plain[HEADER_SIZE:])
        batch[HEADER_SIZE:] = packed
    codec.seal(batch)
    return batch
