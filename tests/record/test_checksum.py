"""CRC-32C: the known answers, the same in all ways to compute it, and in pieces."""

from __future__ import annotations

import random
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from record.twins import TWINS
from tidelog.record import _codec, _pure

# RFC 3720, B.4, and the check value of the catalogue of parametrised CRC algorithms.
KNOWN = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


def by_bit(data: bytes) -> int:
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


@proves("T1")
@TWINS
@pytest.mark.parametrize(("data", "expected"), KNOWN)
def test_known_answers(codec: ModuleType, data: bytes, expected: int) -> None:
    assert codec.crc32c(data) == expected


# Around every place where one way of computing hands over to another.
SIZES = [*range(40), *range(250, 262), *range(760, 790), *range(2040, 2056), 24_575, 24_576, 24_577, 50_000, 300_001]


@proves("T1")
def test_all_ways_agree_at_all_sizes_and_alignments(seed: int) -> None:
    source = random.Random(seed)
    data = source.randbytes(max(SIZES) + 8)
    for size in SIZES:
        piece = memoryview(data)[source.randrange(8) :][:size]
        value = source.getrandbits(32)
        assert _codec.crc32c(piece, value) == _pure.crc32c(piece, value), size
        if size < 1_000:
            assert _codec.crc32c(piece) == by_bit(bytes(piece)), size


@proves("T1")
@TWINS
@given(parts=st.lists(st.binary(max_size=600), max_size=4))
def test_a_checksum_goes_on_from_an_earlier_part(codec: ModuleType, parts: list[bytes]) -> None:
    value = 0
    for part in parts:
        value = codec.crc32c(part, value)
    assert value == codec.crc32c(b"".join(parts))


@proves("T1")
@TWINS
def test_any_contiguous_buffer_will_do_and_no_other(codec: ModuleType) -> None:
    data = bytes(range(200))
    for same in (bytearray(data), memoryview(data), memoryview(data).cast("Q")):
        assert codec.crc32c(same) == codec.crc32c(data)
    with pytest.raises(BufferError):
        codec.crc32c(memoryview(data)[::2])
    with pytest.raises(OverflowError):
        codec.crc32c(data, 1 << 32)


@proves("T1")
def test_the_engine_says_what_it_is() -> None:
    assert _codec.engine() in ("sse4.2", "armv8", "table")
    assert _pure.engine() == "python"
