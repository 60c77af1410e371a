"""Keys go to the partitions that Java's default partitioner gives them."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from record.twins import TWINS
from tidelog.record import _codec, _pure
from tidelog.record.partitioner import partition_of

# What kafka-clients 4.3's Utils.murmur2 gives.
JAVA = [
    (b"", 275646681),
    (b"a", -1563381124),
    (b"ab", 316155434),
    (b"abc", 479470107),
    (b"abcd", -1323649548),
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"\xff\x80\x00\x01\xfe\xc3\x28", -1103856079),
]


@proves("T1")
@TWINS
@pytest.mark.parametrize(("key", "expected"), JAVA)
def test_the_hash_is_javas(codec: ModuleType, key: bytes, expected: int) -> None:
    assert codec.murmur2(key) == expected
    assert codec.murmur2(memoryview(b"x" + key)[1:]) == expected


@proves("T1")
def test_the_partition_is_the_positive_hash_modulo() -> None:
    assert partition_of(b"a", 7) == (-1563381124 & 0x7FFFFFFF) % 7
    assert partition_of(b"abc", 7) == 479470107 % 7


@proves("T1")
@given(st.binary(max_size=70))
def test_the_twins_hash_alike(key: bytes) -> None:
    assert _codec.murmur2(key) == _pure.murmur2(key)
