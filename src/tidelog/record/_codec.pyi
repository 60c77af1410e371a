"""Types of the compiled codec; `_pure` has the same functions."""

from collections.abc import Iterable
from typing import TypeVar

from tidelog.record.header import (
    BatchHeader,
    Buffer,
    Compress,
    Decoded,
    DecodedBinary,
    DecodedHeaders,
    Decompress,
    EncodableRow,
    Filtered,
    Gap,
    Scan,
)

Made = TypeVar("Made")

def engine() -> str: ...
def crc32c(buffer: Buffer, value: int = 0) -> int: ...
def peek(buffer: Buffer, position: int = 0) -> BatchHeader: ...
def check(buffer: Buffer, position: int = 0) -> BatchHeader: ...
def patch(buffer: Buffer, base_offset: int, leader_epoch: int, position: int = 0) -> None: ...
def stamp_append_time(buffer: Buffer, timestamp_ms: int, position: int = 0) -> None: ...
def restamp(
    buffer: Buffer,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
    position: int = 0,
) -> None: ...
def seal(buffer: Buffer) -> None: ...
def scan(buffer: Buffer, position: int = 0, *, crc: bool = True) -> Scan: ...
def decode(
    buffer: Buffer, crc: bool, limit: int, partial: bool, decompress: Decompress
) -> tuple[list[BatchHeader], Decoded]: ...
def encode_rows(
    rows: Iterable[EncodableRow],
    base_offset: int,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> bytearray: ...
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
) -> tuple[bytearray, int]: ...
def group_rows(
    count: int, keys: DecodedBinary | None, given: Buffer | None, partitions: int, spare: int
) -> tuple[bytes, list[int]]: ...
def rows(make: type[Made], parts: Decoded, count: int, start: int, stop: int) -> list[Made]: ...
def murmur2(key: Buffer) -> int: ...

class KeyMap:
    def __init__(self, capacity: int) -> None: ...
    def __len__(self) -> int: ...

def find_keyless(buffer: Buffer, most: int, decompress: Decompress, limit: int) -> tuple[int, int, list[int]]: ...
def note_keys(
    keys: KeyMap, buffer: Buffer, verdicts: Buffer, start: int, decompress: Decompress, limit: int
) -> int: ...
def filter_records(
    keys: KeyMap,
    buffer: Buffer,
    verdicts: Buffer,
    known_up_to: int,
    now: int,
    horizon: int,
    discard: bool,
    gap: Gap | None,
    decompress: Decompress,
    compress: Compress,
    limit: int,
) -> Filtered: ...
