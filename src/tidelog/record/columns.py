"""Records as columns, in Arrow's layout: decode many batches at once, encode one from rows.

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
    EncodableRow,
)

MAX_DECOMPRESSED = 256 << 20  # bytes that the compressed batches of one decode may become, in all


class Row(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Binary:
    """Byte strings: string i is `data[offsets[i]:offsets[i + 1]]`, or null where bit i of `validity` is 0."""

    __slots__ = ("data", "offsets", "validity")

    def __init__(self, parts: DecodedBinary) -> None:
        self.validity, offsets, self.data = parts
        self.offsets = memoryview(offsets).cast("i")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[bytes | None]:
        data, validity = self.data, self.validity
        start = 0
        for index, end in enumerate(self.offsets[1:]):
            if validity is None or validity[index >> 3] >> (index & 7) & 1:
                yield data[start:end]
            else:
                yield None
            start = end


class HeaderColumn:
    """Row i has the headers number `offsets[i]` to `offsets[i + 1] - 1` of `keys` and `values`."""

    __slots__ = ("keys", "offsets", "values")

    def __init__(self, offsets: bytes, keys: DecodedBinary, values: DecodedBinary) -> None:
        self.offsets = memoryview(offsets).cast("i")
        self.keys, self.values = Binary(keys), Binary(values)

    def __iter__(self) -> Iterator[tuple[tuple[str, bytes | None], ...]]:
        pairs = [(b"" if key is None else key).decode("utf-8", "surrogateescape") for key in self.keys]
        every = list(zip(pairs, self.values, strict=True))
        start = 0
        for end in self.offsets[1:]:
            yield tuple(every[start:end])
            start = end


class Columns:
    __slots__ = ("batches", "headers", "keys", "offsets", "timestamps", "values")

    def __init__(self, batches: list[BatchHeader], parts: Decoded) -> None:
        offsets, timestamps, keys, values, headers = parts
        self.batches = batches
        self.offsets = memoryview(offsets).cast("q")
        self.timestamps = memoryview(timestamps).cast("q")
        self.keys, self.values = Binary(keys), Binary(values)
        self.headers = None if headers is None else HeaderColumn(*headers)

    @property
    def count(self) -> int:
        return len(self.offsets)

    @property
    def control(self) -> bytes:
        """A byte per row: 1 where the row is of a control batch (a transaction's end), which no consumer is given."""
        return b"".join((b"\1" if batch.is_control else b"\0") * batch.count for batch in self.batches)

    def rows(self) -> Iterator[Row]:
        headers: Iterable[tuple[tuple[str, bytes | None], ...]]
        headers = iter(self.headers) if self.headers is not None else ((),) * self.count
        return map(Row, self.offsets, self.timestamps, self.keys, self.values, headers)


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
    code = code_of(compression)
    attributes = (
        code
        | (APPEND_TIME_BIT if append_time else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )
    batch = codec.encode_rows(rows, base_offset, attributes, producer_id, producer_epoch, base_sequence)
    if code:
        with memoryview(batch) as plain:
            packed = compress(code, plain[HEADER_SIZE:])
        batch[HEADER_SIZE:] = packed
    codec.seal(batch)
    return batch
