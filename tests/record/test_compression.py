"""Compressed data as other clients write it, and a bound that holds while it is undone."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from record.twins import COMPRESSIONS
from tidelog.errors import MalformedBatch
from tidelog.record.columns import decode, encode
from tidelog.record.compression import GZIP, LZ4, NAMES, SNAPPY, ZSTD, compress, decompress

CODES = pytest.mark.parametrize("code", [GZIP, SNAPPY, LZ4, ZSTD], ids=NAMES[1:])


def undo(code: int, data: Any, limit: int) -> bytes:
    return bytes(decompress(code, memoryview(data), limit))


@proves("T1")
@CODES
@given(piece=st.binary(max_size=300), times=st.integers(0, 400))
def test_what_was_compressed_comes_back(code: int, piece: bytes, times: int) -> None:
    data = piece * times
    packed = compress(code, memoryview(data))
    assert undo(code, packed, len(data)) == undo(code, packed, 1 << 20) == data
    if data:
        with pytest.raises(MalformedBatch):
            decompress(code, packed, len(data) - 1)


@proves("T1")
def test_snappy_is_written_in_javas_blocks_and_read_with_and_without_them() -> None:
    data = bytes(range(256)) * 400
    packed = bytes(compress(SNAPPY, memoryview(data)))
    assert packed[:16] == b"\x82SNAPPY\0" + b"\0\0\0\1" * 2
    assert undo(SNAPPY, packed, 1 << 20) == data
    assert undo(SNAPPY, bytes(cramjam.snappy.compress_raw(data)), 1 << 20) == data


@proves("T1")
def test_lz4_is_written_as_a_frame_with_independent_blocks() -> None:
    packed = bytes(compress(LZ4, memoryview(b"abc" * 50_000)))
    assert packed[:4] == b"\x04\x22\x4d\x18"
    version, independent, content_checksum = packed[4] >> 6, packed[4] & 0x20, packed[4] & 0x04
    assert (version, bool(independent), bool(content_checksum)) == (1, True, False)


@proves("T1")
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("checksum", [False, True])
def test_lz4_frames_of_other_kinds_are_read(linked: bool, checksum: bool) -> None:
    data = b"0123456789" * 30_000
    compressor = cramjam.lz4.Compressor(level=4, content_checksum=checksum, block_linked=linked)
    compressor.compress(data)
    assert undo(LZ4, compressor.finish(), 1 << 20) == data


@proves("T1")
@pytest.mark.parametrize("code", [GZIP, LZ4, ZSTD])
def test_several_streams_in_a_row_are_one(code: int) -> None:
    one, two = (bytes(compress(code, memoryview(data))) for data in (b"a" * 1_000, b"b" * 100_000))
    assert undo(code, one + two, 1 << 20) == b"a" * 1_000 + b"b" * 100_000


@proves("T1")
@CODES
def test_broken_and_empty_data_is_malformed(code: int) -> None:
    packed = bytes(compress(code, memoryview(b"some bytes that repeat, some bytes that repeat" * 20)))
    for broken in (b"", packed[:-1], packed[: len(packed) // 2], packed[1:], b"\xff" * 50):
        with pytest.raises(MalformedBatch):
            decompress(code, memoryview(broken), 1 << 20)


@proves("T1")
@pytest.mark.parametrize("block", [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0"])
def test_snappy_blocks_that_lie_about_their_size_are_malformed(block: bytes) -> None:
    with pytest.raises(MalformedBatch):
        decompress(SNAPPY, memoryview(b"\x82SNAPPY\0" + b"\0\0\0\1" * 2 + block + b"abc"), 1 << 20)


@proves("T1")
def test_the_bound_is_for_all_batches_of_a_decode_together() -> None:
    batch = encode([(None, bytes(10_000), None, 0)], compression="zstd")
    assert decode(bytes(batch) * 3, limit=30_100).count == 3
    with pytest.raises(MalformedBatch):
        decode(bytes(batch) * 3, limit=30_000)


BOMB = """
import resource, sys
import cramjam
from tidelog.errors import MalformedBatch
from tidelog.record.columns import decode, encode
from tidelog.record.compression import NAMES, compress
from tidelog.record.codec import seal

GIB = 1 << 30
for name in sys.argv[1:]:
    code = NAMES.index(name)
    batch = encode([(None, b"x", None, 0)])
    packed = compress(code, memoryview(bytes(64 << 20)))  # 64 MiB of nothing, sixteen times
    packed = bytes(packed) * 16 if name != "snappy" else bytes(packed) + bytes(packed)[16:] * 15
    batch[61:] = packed
    batch[22] = code
    seal(batch)
    del packed
    now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (24 << 20), resource.RLIM_INFINITY))
    try:
        decode(batch, limit=4 << 20)
    except MalformedBatch as error:
        print(name, "refused")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


@proves("T1")
@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux only")
def test_a_bomb_is_refused_without_the_memory_that_it_would_take() -> None:
    done = subprocess.run([sys.executable, "-c", BOMB, *COMPRESSIONS[1:]], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [f"{name} refused" for name in COMPRESSIONS[1:]], done.stderr
