"""Batches made to hurt: counts and lengths that lie. They are refused by name, and before memory is asked for."""

from __future__ import annotations

import struct
import tracemalloc
from types import ModuleType

import pytest

from proving import proves
from record.twins import TWINS, decode_plain, seal
from tidelog.errors import MalformedBatch, UsageError
from tidelog.record.columns import decode, encode
from tidelog.record.header import COUNT_AT, HEADER_SIZE, LAST_OFFSET_DELTA_AT

MOST = (1 << 31) - 1


def batch_of(codec: ModuleType, records: bytes, count: int = 1, last: int | None = None) -> bytearray:
    batch = seal(codec, [(None, None, None, 0)])[:HEADER_SIZE] + records
    struct.pack_into(">i", batch, COUNT_AT, count)
    struct.pack_into(">i", batch, LAST_OFFSET_DELTA_AT, count - 1 if last is None else last)
    codec.seal(batch)
    return batch


def varint(number: int) -> bytes:
    number = number << 1 if number >= 0 else ~(number << 1)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def record(*parts: bytes) -> bytes:
    body = b"\0" + b"".join(parts)
    return varint(len(body)) + body


FINE = (varint(0), varint(0), varint(-1), varint(-1), varint(0))

WRONG_RECORDS = {
    "length past the batch": varint(50) + b"\0" * 20,
    "length of 2^31 - 1": varint(MOST) + b"\0" * 20,
    "length below zero": varint(-1) + b"\0" * 20,
    "length of nothing": varint(0) + b"\0" * 20,
    "length that does not end": b"\xff" * 20,
    "length of 33 bits": b"\xff\xff\xff\xff\x1f" + b"\0" * 20,
    "timestamp of 65 bits": record(b"\xff" * 9 + b"\x03", *FINE[1:]),
    "timestamp that does not end": record(b"\xff" * 12),
    "offset below zero": record(varint(0), varint(-1), *FINE[2:]),
    "offset past the last": record(varint(0), varint(1), *FINE[2:]),
    "key past the record": record(*FINE[:2], varint(100), b"abc", *FINE[3:]),
    "key of 2^31 - 1": record(*FINE[:2], varint(MOST), b"abc", *FINE[3:]),
    "key of -2": record(*FINE[:2], varint(-2), *FINE[3:]),
    "key of -2^31": record(*FINE[:2], varint(-(1 << 31)), *FINE[3:]),
    "value past the record": record(*FINE[:3], varint(9), b"abc", varint(0)),
    "value of -2^31": record(*FINE[:3], varint(-(1 << 31)), varint(0)),
    "headers below zero": record(*FINE[:4], varint(-1)),
    "headers, 2^31 - 1 of them": record(*FINE[:4], varint(MOST), b"abcdef"),
    "header without a name": record(*FINE[:4], varint(1), varint(-1), varint(-1)),
    "header name past the record": record(*FINE[:4], varint(1), varint(5), b"ab"),
    "header value past the record": record(*FINE[:4], varint(1), varint(1), b"a", varint(MOST)),
    "header value of -2": record(*FINE[:4], varint(1), varint(1), b"a", varint(-2)),
    "bytes after the headers": record(*FINE, b"!"),
    "record without end": record(*FINE[:4])[:-1],
    "bytes after the records": record(*FINE) + b"!",
    "two records where one is said": record(*FINE) * 2,
}


@proves("T1")
@TWINS
@pytest.mark.parametrize("records", WRONG_RECORDS.values(), ids=WRONG_RECORDS.keys())
def test_records_that_lie_are_malformed(codec: ModuleType, records: bytes) -> None:
    with pytest.raises(MalformedBatch):
        decode_plain(codec, batch_of(codec, records))


@proves("T1")
@TWINS
def test_the_same_made_right_is_read(codec: ModuleType) -> None:
    headers, _ = decode_plain(codec, batch_of(codec, record(*FINE)))
    assert headers[0].count == 1
    padded = b"\x80\x00"  # zero in two bytes: long for its number, but no lie
    decode_plain(codec, batch_of(codec, record(padded, padded, *FINE[2:])))


@proves("T1")
@TWINS
def test_offsets_must_go_up(codec: ModuleType) -> None:
    twice = record(*FINE) * 2
    with pytest.raises(MalformedBatch, match=r"record 1 .* has an offset"):
        decode_plain(codec, batch_of(codec, twice, count=2))


@proves("T1")
@TWINS
@pytest.mark.parametrize("count", [MOST, 1 << 30, -1, -(1 << 31)])
def test_a_count_that_the_bytes_cannot_hold_takes_no_memory(codec: ModuleType, count: int) -> None:
    batch = batch_of(codec, record(*FINE), count=count, last=MOST)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedBatch):
            decode_plain(codec, batch)
        with pytest.raises(MalformedBatch):
            codec.check(batch)
        assert codec.scan(batch).error
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@proves("T1")
@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_count_that_compressed_bytes_cannot_hold_takes_no_memory(compression: str) -> None:
    batch = encode([(None, b"x" * 1000, None, 0)], compression=compression)
    struct.pack_into(">i", batch, COUNT_AT, MOST)
    struct.pack_into(">i", batch, LAST_OFFSET_DELTA_AT, MOST - 1)
    with pytest.raises(MalformedBatch):
        decode(batch, crc=False)


@proves("T1")
@TWINS
def test_positions_outside_the_buffer_read_nothing(codec: ModuleType) -> None:
    batch = seal(codec, [(None, b"x", None, 0)])
    for function in (codec.peek, codec.check):
        for position in (1, len(batch), len(batch) + 1, 1 << 40):
            with pytest.raises(MalformedBatch):
                function(batch, position)
        with pytest.raises(ValueError, match="negative"):
            function(batch, -1)
    with pytest.raises(MalformedBatch):
        codec.patch(bytearray(60), 0, 0)
    with pytest.raises(MalformedBatch):
        codec.stamp_append_time(batch[:-1], 0)


def column(offsets: list[int], data: bytes, validity: bytes | None = None) -> tuple[bytes | None, bytes, bytes]:
    return validity, struct.pack(f"={len(offsets)}i", *offsets), data


TIMES = struct.pack("=2q", 0, 0)
WRONG_COLUMNS = {
    "offset past the data": (column([0, 1, 9], b"abc"), None),
    "offset below zero": (column([-1, 1, 2], b"abc"), None),
    "offsets that go down": (column([0, 3, 1], b"abc"), None),
    "too few offsets": (column([0, 1], b"abc"), None),
    "header offset past the headers": (None, (struct.pack("=3i", 0, 5, 1), column([0, 1], b"a"), column([0, 1], b"a"))),
    "header without a name": (None, (struct.pack("=3i", 0, 1, 1), column([0, 0], b"", b"\0"), column([0, 1], b"a"))),
}


@proves("T1")
@TWINS
@pytest.mark.parametrize("name", WRONG_COLUMNS)
def test_columns_that_lie_are_the_callers_fault(codec: ModuleType, name: str) -> None:
    strings, headers = WRONG_COLUMNS[name]
    with pytest.raises(UsageError):
        codec.encode_columns(2, TIMES, strings, None, headers, 0, 1000, 0, 0, -1, -1, -1)
    with pytest.raises(UsageError):
        codec.encode_columns(2, TIMES[:8], None, None, None, 0, 1000, 0, 0, -1, -1, -1)
