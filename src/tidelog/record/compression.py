"""The five compressions of a batch's records, and a bound on what they may become again.

Codes are those of the batch attributes: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd. What other clients expect of us, and
what they send: snappy in the blocks of Java's xerial library, which we write; plain snappy, as some write it, is read
too. LZ4 as a frame with independent blocks and no content checksum, all that Java reads. The bound holds while
decompressing: output goes to memory of that size or less, and what does not fit is refused when it comes. What says of
itself that it does not fit is refused before: it is larger, or broken.
cramjam is imported by the first batch that needs it.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.errors import MalformedBatch, OversizedBatch, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest version that can read it
_XERIAL_BLOCK = 32 << 10  # bytes before compression: what Java's library takes by default
_GZIP_LEVEL = 6
_LZ4_LEVEL = 1
_ZSTD_LEVEL = 3
_ZSTD_BLOCK = 128 << 10  # bytes that one block may become

_LIKELY_RATIO = 64  # beyond it, what the data says of itself is not believed before it is seen
_MAGIC = {GZIP: b"\x1f\x8b", LZ4: b"\x04\x22\x4d\x18", ZSTD: b"\x28\xb5\x2f\xfd"}
_BROKEN = (struct.error, ValueError)
_FULL = ("failed to write whole buffer", "snappy: output buffer")  # how cramjam says that there is more than fits
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct("<I")
_UINT64 = struct.Struct("<Q")


def code_of(name: str) -> int:
    if name not in NAMES:
        raise UsageError(f"compression {name!r} is unknown; one of {', '.join(NAMES)}")
    return NAMES.index(name)


def compress(code: int, data: memoryview) -> memoryview:
    import cramjam

    if code == GZIP:
        return memoryview(cramjam.gzip.compress(data, level=_GZIP_LEVEL))
    if code == SNAPPY:
        return memoryview(_compress_xerial(data))
    if code == LZ4:
        compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))  # it takes nothing else
        return memoryview(compressor.finish())
    return memoryview(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


def _compress_xerial(data: memoryview) -> bytearray:
    from cramjam import snappy

    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = memoryview(snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        out += _INT32.pack(len(block))
        out += block
    return out


def decompress(code: int, data: memoryview, limit: int) -> memoryview:
    """The plain bytes, `limit` of them at most; OversizedBatch when there would be more, MalformedBatch when `data` is
    broken.
    """
    import cramjam

    if not NONE < code < len(NAMES):
        raise MalformedBatch(f"batch has compression {code}, which is unknown")
    decode = _decompress_snappy if code == SNAPPY else getattr(cramjam, NAMES[code]).decompress_into
    size, stated = _likely_size(code, data)
    if stated and size > limit:
        raise OversizedBatch(f"{NAMES[code]} data of {len(data)} bytes becomes {size} bytes, more than {limit}")
    likely = min(size, limit, _LIKELY_RATIO * len(data))
    try:
        if likely < limit:
            with suppress(*_BROKEN, cramjam.DecompressionError):
                output = memoryview(bytearray(likely))
                return output[: decode(data, output)]
        output = _reserve(limit)
        return output[: decode(data, output)]
    except (*_BROKEN, cramjam.DecompressionError) as error:
        problem = f"{NAMES[code]} data of {len(data)} bytes does not decompress within {limit} bytes: {error}"
        raise (OversizedBatch if str(error).startswith(_FULL) else MalformedBatch)(problem) from None


def _reserve(size: int) -> memoryview:
    """`size` bytes of address space that take no memory until they are written."""
    import mmap

    if size <= 0:
        return memoryview(bytearray())
    space = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # else the first byte written may take 2 MiB
        space.madvise(mmap.MADV_NOHUGEPAGE)
    return memoryview(space)


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield data
        return
    at = len(_XERIAL_HEADER)
    while at < len(data):
        size = _INT32.unpack_from(data, at)[0]
        at += 4
        if not 0 < size <= len(data) - at:
            raise ValueError(f"a block of {size} bytes where {len(data) - at} are left")
        yield data[at : at + size]
        at += size


def _decompress_snappy(data: memoryview, output: memoryview) -> int:
    from cramjam import snappy

    used = 0
    for block in _snappy_blocks(data):
        used += snappy.decompress_raw_into(block, output[used:])
    return used


# --- how much will it be? --------------------------------------------------------------------------------------------
# A guess from what the formats say of themselves, never trusted: writing to memory that is there is three times faster
# than to reserved memory, whose pages come one by one.


def _likely_size(code: int, data: memoryview) -> tuple[int, bool]:
    """And whether the data itself states it: then it has no less, unless it is broken."""
    magic = _MAGIC.get(code, b"")
    if data[: len(magic)] != magic:
        return 0, False
    try:
        if code == GZIP:
            return int.from_bytes(data[-4:], "little"), True
        if code == LZ4:
            return _likely_lz4(data)
        if code == ZSTD:
            return _likely_zstd(data)
        from cramjam import snappy

        return sum(map(snappy.decompress_raw_len, _snappy_blocks(data))), True
    except Exception:  # broken data: the real attempt will say so
        return 0, False


def _likely_lz4(data: memoryview) -> tuple[int, bool]:
    flags, block_max = data[4], 1 << 8 + 2 * (data[5] >> 4 & 7)
    if flags & 0x08:
        size: int = _UINT64.unpack_from(data, 6)[0]
        return size, True
    total, at = 0, 7 + (4 if flags & 0x01 else 0)
    while (size := _UINT32.unpack_from(data, at)[0]) != 0:
        stored = size & 0x7FFFFFFF
        total += stored if size >> 31 else block_max
        at += 4 + stored + (4 if flags & 0x10 else 0)
    return total, False


def _likely_zstd(data: memoryview) -> tuple[int, bool]:
    flags = data[4]
    single = flags >> 5 & 1
    at = 6 - single + (0, 1, 2, 4)[flags & 3]
    width = (single, 2, 4, 8)[flags >> 6]
    if width:
        return int.from_bytes(data[at : at + width], "little") + (256 if width == 2 else 0), True
    total, last = 0, 0
    while not last:
        block = int.from_bytes(data[at : at + 3], "little")
        last, kind, size = block & 1 | (at >= len(data)), block >> 1 & 3, block >> 3
        total += size if kind < 2 else _ZSTD_BLOCK
        at += 3 + (1 if kind == 1 else size)
    return total, False
