"""What can be wrong with a batch: a number while the codec runs, a typed error with the values in it when it leaves.

The compiled and the pure codec find faults by the same numbers, in the same order; only here do they become words.
TRUNCATED faults become `TruncatedBatch`, WRONG_CRC becomes `CorruptBatch`, all others `MalformedBatch`.
"""

from __future__ import annotations

import struct

from tidelog.errors import CorruptBatch, MalformedBatch, TruncatedBatch
from tidelog.record.header import (
    ATTRIBUTES_AT,
    COMPRESSION_BITS,
    COUNT_AT,
    CRC_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LENGTH_END,
    MAGIC_AT,
    TRUNCATED,
)

FINE = 0
HEADER_CUT = 1
BATCH_CUT = 2
WRONG_MAGIC = 3
WRONG_LENGTH = 4
WRONG_CRC = 5
WRONG_COUNT = 6
SPARSE = 7
UNKNOWN_COMPRESSION = 8
TOO_MANY_RECORDS = 9
WRONG_VARINT = 10
WRONG_RECORD_LENGTH = 11
WRONG_OFFSET_DELTA = 12
WRONG_KEY_LENGTH = 13
WRONG_VALUE_LENGTH = 14
WRONG_HEADER_COUNT = 15
WRONG_HEADER_LENGTH = 16
RECORD_NOT_FILLED = 17
BATCH_NOT_FILLED = 18
COLUMN_FULL = 19
UNREADABLE = 21  # 20 never leaves the compiled codec

_RECORD_FAULTS = {
    WRONG_VARINT: "has a number that does not end or does not fit",
    WRONG_RECORD_LENGTH: "has a length that does not fit the batch",
    WRONG_OFFSET_DELTA: "has an offset that is not between its predecessor's and the batch's last",
    WRONG_KEY_LENGTH: "has a key length that does not fit the record",
    WRONG_VALUE_LENGTH: "has a value length that does not fit the record",
    WRONG_HEADER_COUNT: "has a header count that does not fit the record",
    WRONG_HEADER_LENGTH: "has a header length that does not fit the record",
    RECORD_NOT_FILLED: "ends before its length says",
    UNREADABLE: "cannot be read",
    COLUMN_FULL: "takes a column past 2 GiB; decode fewer batches at a time",
}


def batch_fault(fault: int, batch: bytes | bytearray | memoryview, position: int, size: int) -> MalformedBatch:
    """The error for a fault in a header; `batch` is what there is from `position` on, `size` how much that was."""
    place = f"batch at byte {position}"
    if fault == HEADER_CUT:
        return TruncatedBatch(f"{place} is cut after {size} bytes; its header alone has {HEADER_SIZE}")
    head = bytes(batch[:HEADER_SIZE])
    length: int = struct.unpack_from(">i", head, LENGTH_AT)[0]
    if fault == BATCH_CUT:
        return TruncatedBatch(f"{place} is cut after {size} of {length + LENGTH_END} bytes")
    if fault == WRONG_CRC:
        return CorruptBatch(f"{place} fails its checksum {struct.unpack_from('>I', head, CRC_AT)[0]:#010x}")
    return MalformedBatch(f"{place} {_header_fault(fault, head, length)}")


def _header_fault(fault: int, head: bytes, length: int) -> str:
    count, delta = struct.unpack_from(">i", head, COUNT_AT)[0], struct.unpack_from(">i", head, LAST_OFFSET_DELTA_AT)[0]
    if fault == WRONG_MAGIC:
        return f"has magic {head[MAGIC_AT]}; only magic 2, of Kafka 0.11 and later, is known"
    if fault == WRONG_LENGTH:
        return f"has length {length}, less than the {HEADER_SIZE - LENGTH_END} of its own header"
    if fault == WRONG_COUNT:
        return f"has count {count} and last offset delta {delta}"
    if fault == SPARSE:
        return f"has count {count} but last offset delta {delta}; a producer's batch has no gaps"
    if fault == TOO_MANY_RECORDS:
        return f"has count {count}, more records than its bytes can hold"
    if fault == BATCH_NOT_FILLED:
        return f"has bytes after its {count} records"
    attributes: int = struct.unpack_from(">h", head, ATTRIBUTES_AT)[0]
    return f"has compression {attributes & COMPRESSION_BITS}, which is unknown"


def record_fault(fault: int, position: int, index: int) -> MalformedBatch:
    """The error for a fault in record number `index` (from 0) of the batch at `position`."""
    return MalformedBatch(f"record {index} of the batch at byte {position} {_RECORD_FAULTS[fault]}")


def scan_error(error: MalformedBatch) -> str:
    """How `scan` says it: the cut kind carries a mark, since more bytes may mend it."""
    return TRUNCATED + str(error) if isinstance(error, TruncatedBatch) else str(error)
