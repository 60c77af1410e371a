"""The compiled codec and its pure twin, as one parameter of a test; and rows to try them on."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import strategies as st

from tidelog.record import _codec, _pure
from tidelog.record.header import BatchHeader, Decoded, EncodableRow

TWINS = pytest.mark.parametrize("codec", [_codec, _pure], ids=["compiled", "pure"])
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)

strings = st.none() | st.binary(max_size=40) | st.binary(min_size=100, max_size=300)
headers = st.none() | st.lists(st.tuples(st.text(max_size=8), strings), max_size=4)
timestamps = st.integers(-1, 1 << 41) | INT64
row = st.tuples(strings, strings, headers, timestamps)
rows = st.lists(row, min_size=1, max_size=12)


def plain(row: EncodableRow) -> tuple[object, ...]:
    """A row as it comes back: no headers is an empty tuple."""
    key, value, headers, timestamp = row
    return timestamp, key, value, tuple(tuple(pair) for pair in headers or ())


def seal(codec: ModuleType, rows: list[EncodableRow]) -> bytearray:
    batch: bytearray = codec.encode_rows(rows, 0, 0, -1, -1, -1)
    codec.seal(batch)
    return batch


def decode_plain(codec: ModuleType, batch: bytes | bytearray) -> tuple[list[BatchHeader], Decoded]:
    """Decode where nothing may need decompressing."""
    decoded: tuple[list[BatchHeader], Decoded] = codec.decode(batch, True, 0, False, None)
    return decoded
