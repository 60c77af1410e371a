"""Where batches are in a segment: an entry for about every `index.interval.bytes`, by offset and by time.

An entry is (offset, position, time): the batch at `position` begins with `offset`, and no batch before it in the
segment has a record later than `time`. Offsets and positions rise, times never fall, so all three can be bisected. The
index of the segment that is being written is in memory and goes to its file in blocks, each for bytes that are already
synced; the file is never trusted without its checksums, never synced for its own sake, and made anew from the segment
when it is missing or wrong.

`<base offset>.index`, big-endian, version 1:

     0  magic            8 bytes   "TIDEINDX"
     8  version          uint16
    10  zero             2 bytes
    12  base_offset      int64     of the segment
    20  crc              uint32    CRC-32C of the 20 bytes before
    24  blocks           each as below, to the end of the file

     0  count            uint32    entries
     4  flags            uint32    bit 0: the segment is complete, this is the last block
     8  end_offset       int64     the blocks up to here cover the segment up to this offset,
    16  end_position     uint64    which is at this position
    24  max_timestamp    int64     the latest in the segment up to there; -1 when it has no batch
    32  max_timestamp_offset int64 base offset of the first batch that has it, or -1
    40  offsets          count * uint32, relative to base_offset
     .  positions        count * uint32
     .  times            count * int64
     .  crc              uint32    CRC-32C of the block before it
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from tidelog.errors import DataFolderError
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.record.codec import crc32c

MAGIC = b"TIDEINDX"
VERSION = 1
NO_TIMESTAMP = -1
NO_OFFSET = -1

_HEAD = struct.Struct(">8sH2xq")
_BLOCK = struct.Struct(">IIqQqq")
_CRC = struct.Struct(">I")
HEAD_SIZE = _HEAD.size + _CRC.size
_COMPLETE = 1
_ENTRY_SIZE = 16
_SWAP = sys.byteorder == "little"


class Covered(NamedTuple):
    """How far the blocks of an index file go, and the latest timestamp up to there."""

    end_offset: int
    end_position: int
    max_timestamp: int
    max_timestamp_offset: int
    complete: bool = False


class BatchStart(NamedTuple):
    """A place between two batches: the next one begins at `position` with `offset`. Ordered by position."""

    position: int
    offset: int


class Index:
    """Changed at its end only, by whoever builds it; read by any thread."""

    __slots__ = ("base_offset", "max_timestamp", "max_timestamp_offset", "offsets", "positions", "times")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("I")
        self.positions = array("I")
        self.times = array("q")
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = NO_OFFSET

    def __len__(self) -> int:
        return len(self.offsets)

    def note(self, offset: int, position: int, max_timestamp: int, interval: int) -> None:
        """A batch comes next. Its offset is put in last, because readers look there first."""
        positions = self.positions
        if not positions or position - positions[-1] >= interval:
            self.times.append(self.max_timestamp)
            positions.append(position)
            self.offsets.append(offset - self.base_offset)
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = offset

    def before_offset(self, offset: int) -> BatchStart:
        """Where to begin walking to find the batch with this offset."""
        return self._at(bisect_right(self.offsets, offset - self.base_offset) - 1)

    def before_time(self, time: int) -> BatchStart:
        """Where to begin walking to find the first batch with a record at or after `time`."""
        return self._at(bisect_left(self.times, time, 0, len(self.offsets)) - 1)

    def before_position(self, position: int) -> BatchStart:
        """The last known boundary at or before a position."""
        return self._at(bisect_right(self.positions, position, 0, len(self.offsets)) - 1)

    def after_position(self, position: int) -> BatchStart | None:
        """The next known boundary after a position."""
        at = bisect_right(self.positions, position, 0, len(self.offsets))
        return self._at(at) if at < len(self.offsets) else None

    def _at(self, at: int) -> BatchStart:
        if at < 0:
            return BatchStart(HEADER_BLOCK, self.base_offset)
        return BatchStart(self.positions[at], self.base_offset + self.offsets[at])

    def cut(self, position: int, max_timestamp: int, max_timestamp_offset: int) -> None:
        """Takes back the batches at and after a position."""
        at = bisect_left(self.positions, position)
        del self.offsets[at:], self.positions[at:], self.times[at:]
        self.max_timestamp, self.max_timestamp_offset = max_timestamp, max_timestamp_offset

    def covered(self, end: BatchStart, *, complete: bool = False) -> Covered:
        """What a block says when the index goes up to there."""
        return Covered(end.offset, end.position, self.max_timestamp, self.max_timestamp_offset, complete)


def head(base_offset: int) -> bytes:
    data = _HEAD.pack(MAGIC, VERSION, base_offset)
    return data + _CRC.pack(crc32c(data))


def block(index: Index, start: int, stop: int, covered: Covered) -> bytes:
    """Entries start..stop as a block of the file."""
    flags = _COMPLETE if covered.complete else 0
    body = _BLOCK.pack(stop - start, flags, *covered[:4])
    for column in (index.offsets, index.positions, index.times):
        part = column[start:stop]
        if _SWAP:
            part.byteswap()
        body += part.tobytes()
    return body + _CRC.pack(crc32c(body))


def load(data: bytes, base_offset: int, path: str) -> tuple[Index, Covered | None, int]:
    """The entries of all good blocks, how far they go (None: no block), and the size in bytes of what was good."""
    index = Index(base_offset)
    if len(data) < HEAD_SIZE or not data.startswith(MAGIC):
        return index, None, 0
    _, version, base = _HEAD.unpack_from(data)
    if _CRC.unpack_from(data, _HEAD.size)[0] != crc32c(data[: _HEAD.size]):
        return index, None, 0
    if version > VERSION:
        raise DataFolderError(f"{path} has index format {version}, newer than {VERSION}; open it with a newer Tidelog")
    if base != base_offset:
        return index, None, 0
    covered = None
    position = HEAD_SIZE
    while position + _BLOCK.size + _CRC.size <= len(data):
        count, flags, *facts = _BLOCK.unpack_from(data, position)
        end = position + _BLOCK.size + count * _ENTRY_SIZE
        if end + _CRC.size > len(data) or _CRC.unpack_from(data, end)[0] != crc32c(memoryview(data)[position:end]):
            break
        _extend(index, data, position + _BLOCK.size, count)
        covered = Covered(facts[0], facts[1], facts[2], facts[3], flags & _COMPLETE != 0)
        index.max_timestamp, index.max_timestamp_offset = covered.max_timestamp, covered.max_timestamp_offset
        position = end + _CRC.size
    return index, covered, position


def _extend(index: Index, data: bytes, position: int, count: int) -> None:
    for column, width in ((index.offsets, 4), (index.positions, 4), (index.times, 8)):
        part = array(column.typecode, data[position : position + count * width])
        if _SWAP:
            part.byteswap()
        column.extend(part)
        position += count * width
