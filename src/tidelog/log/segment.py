"""One segment: a file of batches and what is known of it in memory.

A segment is *planned* (the loop has given it a base offset), then *made* (the committer has created its file, durably),
and while it is the last one of its partition it grows; when the next one is made it is *complete*, wholly synced and
never written again. `end` is the loop's: where the next batch goes, also when the bytes before it are still on their
way to the disk.

The position of a batch is found in `recent` (the last batches one by one, in memory) or by the sparse index and a walk
over headers in the file. Readers in other threads are safe without a lock: arrays grow at their end or are replaced
whole, and nobody reads beyond the high watermark, where nothing changes any more.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.errors import MalformedBatch
from tidelog.log.files import Files, OpenFile, read_fully, remove_files
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.index import NO_TIMESTAMP, Index
from tidelog.log.open_files import OpenFiles
from tidelog.record.codec import peek
from tidelog.record.header import HEADER_SIZE, BatchHeader

RECENT_BATCHES = 512  # kept one by one; up to twice as many before the older half is let go
WALK_WINDOW = 8192  # read at a time when walking: about two index intervals
LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"


class BadHeader(NamedTuple):
    """What a walk came upon instead of the batch that should begin at `position` with `offset`."""

    position: int
    offset: int
    reason: str


class Place(NamedTuple):
    position: int
    size: int
    base_offset: int


class Recent(NamedTuple):
    offsets: array[int]
    positions: array[int]


class Segment:
    __slots__ = (
        "_indexed_at",
        "_open_files",
        "base_offset",
        "created_ms",
        "end",
        "files",
        "index",
        "max_timestamp",
        "max_timestamp_offset",
        "path",
        "recent",
        "trusted_from",
    )

    def __init__(
        self, files: Files, open_files: OpenFiles, folder: str, base_offset: int, end: int = HEADER_BLOCK
    ) -> None:
        self.files = files
        self._open_files = open_files
        self.base_offset = base_offset
        self.path = f"{folder}/{base_offset:020d}"
        self.end = end
        self.created_ms = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.index: Index | None = None
        self.recent = Recent(array("q"), array("q"))
        self.trusted_from = end
        self._indexed_at = -1

    @property
    def log_path(self) -> str:
        return self.path + LOG_SUFFIX

    @property
    def index_path(self) -> str:
        return self.path + INDEX_SUFFIX

    def file(self) -> OpenFile:
        return self._open_files.get(self.log_path)

    def create(self) -> OpenFile:
        return self._open_files.create(self.log_path)

    def remove(self) -> None:
        """Takes the names away; whoever still holds the file can go on reading it."""
        self._open_files.forget(self.log_path)
        remove_files(self.files, (self.log_path, self.index_path))

    def find_file(self) -> OpenFile | None:
        return self._open_files.find(self.log_path)

    # The loop's thread: growing ---------------------------------------------------------------------------------------

    def note(self, base_offset: int, size: int, max_timestamp: int, interval: int) -> None:
        """Puts a batch at the end."""
        position = self.end
        index = self.index
        assert index is not None
        if self._indexed_at < 0 or position - self._indexed_at >= interval:
            index.add(base_offset - self.base_offset, position, self.max_timestamp)
            self._indexed_at = position
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = base_offset
        offsets, positions = self.recent
        if len(offsets) >= 2 * RECENT_BATCHES:
            self.recent = Recent(offsets[RECENT_BATCHES:], positions[RECENT_BATCHES:])
            offsets, positions = self.recent
        positions.append(position)
        offsets.append(base_offset)
        self.end = position + size

    def cut(self, end: int, max_timestamp: int, max_timestamp_offset: int) -> None:
        """Takes back the batches from position `end` on, and puts back what `note` had changed for them."""
        assert self.index is not None
        self.index.cut(end)
        self._indexed_at = self.index.positions[-1] if len(self.index) else -1
        offsets, positions = self.recent
        at = bisect_right(positions, end - 1)
        self.recent = Recent(offsets[:at], positions[:at])
        self.end = end
        self.max_timestamp, self.max_timestamp_offset = max_timestamp, max_timestamp_offset

    # Any thread: finding ----------------------------------------------------------------------------------------------

    def find_recent(self, offset: int) -> Place | None:
        """The batch with this offset, if it is one of the last ones."""
        offsets, positions = self.recent
        at = bisect_right(offsets, offset) - 1
        if at < 0:
            return None
        start = positions[at]
        following = positions[at + 1] if at + 1 < len(positions) else self.end
        return Place(start, following - start, offsets[at])

    def find(self, offset: int, limit: int) -> Place | BadHeader | None:
        """The batch with this offset, or the first one after it, before position `limit`."""
        place = self.find_recent(offset)
        if place is not None:
            return place
        assert self.index is not None
        start = self.index.position_before(offset - self.base_offset, HEADER_BLOCK)
        for step in self.walk(start, limit):
            if isinstance(step, BadHeader):
                return step
            position, header = step
            if header.next_offset > offset:
                return Place(position, header.size, header.base_offset)
        return None

    def walk(self, position: int, limit: int) -> Iterator[tuple[int, BatchHeader] | BadHeader]:
        """The headers of the batches between two positions, unchecked but for their order, to the first bad one."""
        fd = self.file().fd
        expected = -1
        while position < limit:
            window = read_fully(self.files, fd, min(WALK_WINDOW, max(limit - position, HEADER_SIZE)), position)
            at = 0
            while at + HEADER_SIZE <= len(window):
                try:
                    header = peek(window, at)
                except MalformedBatch as error:
                    yield BadHeader(position + at, expected, str(error))
                    return
                if header.base_offset < expected or position + at + header.size > limit:
                    yield BadHeader(
                        position + at, expected, f"header says offset {header.base_offset}, size {header.size}"
                    )
                    return
                yield position + at, header
                expected = header.next_offset
                at += header.size
            if at == 0:
                yield BadHeader(position, expected, f"file ends {len(window)} bytes later")
                return
            position += at

    def boundary(self, start: int, stop: int) -> int:
        """The last known beginning of a batch after `start` and up to `stop`; `start` when none is known."""
        positions = self.recent.positions
        at = bisect_right(positions, stop) - 1
        if at >= 0:
            return max(positions[at], start)
        assert self.index is not None
        return max(self.index.boundary(stop, start), start)
