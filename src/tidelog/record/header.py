"""The header of a record batch, as numbers.

A batch is 61 bytes of header and then the records, all big-endian:

     0  base_offset          int64   the broker's to set; not under the CRC
     8  length               int32   bytes after this field: size - 12
    12  leader_epoch         int32   the broker's to set; not under the CRC
    16  magic                int8    2
    17  crc                  uint32  CRC-32C of everything from byte 21 on
    21  attributes           int16   bits 0-2 compression, 3 append time, 4 transactional, 5 control, 6 delete horizon
    23  last_offset_delta    int32   last offset - base_offset; kept when compaction takes records out
    27  base_timestamp       int64   what the records' timestamp deltas count from
    35  max_timestamp        int64   with bit 3: the timestamp of every record
    43  producer_id          int64   -1 when not idempotent
    51  producer_epoch       int16
    53  base_sequence        int32   sequence of the first record
    57  count                int32   records that follow; 0 only in a batch that compaction emptied

The layout is Kafka's and fixed; docs/formats/record_batch.md has the records too. Reading bytes is `codec`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER_SIZE = 61
LENGTH_END = 12  # the length field counts what follows it, so size = length + 12
MAGIC = 2

BASE_OFFSET_AT = 0
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
COUNT_AT = 57

COMPRESSION_BITS = 0x07
APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
TRANSACTION_BITS = TRANSACTIONAL_BIT | CONTROL_BIT
LAST_COMPRESSION = 4

# length, attributes, timestamp delta, offset delta, key length, value length, header count: a byte each at least
MIN_RECORD_SIZE = 7
MAX_BATCH_SIZE = 0x7FFFFFFF


class BatchHeader(NamedTuple):
    base_offset: int
    size: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of a header

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_BITS

    @property
    def append_time(self) -> bool:
        return self.attributes & APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def latest(self) -> int:
        """The latest timestamp of a record; -1 when there is none."""
        return self.max_timestamp if self.count else -1

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1


class Scan(NamedTuple):
    """Whole, good batches in a row: `headers[i]` is at `positions[i]`; `end` is the first byte that is not theirs.

    `error` is None when that is the end of the buffer; else it says what is wrong with the bytes at `end`.
    """

    headers: list[BatchHeader]
    positions: list[int]
    end: int
    error: str | None


TRUNCATED = "truncated: "  # what the error of a scan begins with when bytes ran out

# What the codec gives `columns`, in Arrow's layout. Strings: validity bits or None, int32 offsets, data.
DecodedBinary: TypeAlias = tuple[Buffer | None, Buffer, Buffer]
# Headers: int32 offsets by row into names and values.
DecodedHeaders: TypeAlias = tuple[Buffer, DecodedBinary, DecodedBinary]
# Offsets, timestamps, keys, values, headers if there are any.
Decoded: TypeAlias = tuple[Buffer, Buffer, DecodedBinary, DecodedBinary, DecodedHeaders | None]

HeaderPairs: TypeAlias = tuple[tuple[str, bytes | None], ...]
Decompress: TypeAlias = Callable[[int, memoryview, int], Buffer]
EncodableRow: TypeAlias = tuple[Buffer | None, Buffer | None, Iterable[tuple[str | bytes, Buffer | None]] | None, int]

# Compaction (compacting.py): what is said about a batch, and offsets without records, (base, next, leader epoch).
FILTER, KEEP, DROP = range(3)
VERDICT_KINDS = 0x03
REMEMBER_BIT = 0x04
SET_HORIZON_BIT = 0x08
Gap: TypeAlias = tuple[int, int, int]
Filtered: TypeAlias = tuple[Buffer, Gap | None, int, int, int, int]  # data, gap, seen, left, keyless, unreadable
Compress: TypeAlias = Callable[[int, memoryview], Buffer]
