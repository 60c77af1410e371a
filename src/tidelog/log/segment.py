"""One segment: a file of batches and what is known of it in memory.

A segment is *planned* (the loop has given it a base offset), then *made* (the committer has created its file, durably),
and while it is the last one of its partition it grows; when the next one is made it is *complete*, wholly synced and
never written again. `end` is the loop's: where the next batch goes, also when the bytes before it are still on their
way to the disk. Compaction writes one anew, or several into one: the new file has a name of its own, with the offset
where it ends and a generation, and the old segments are *replaced*: whoever still reads one goes on with its file.

The position of a batch is found in `recent` (the last batches one by one, in memory) or by the sparse index and a walk
over headers in the file. Readers in other threads are safe without a lock: arrays grow at their end or are replaced
whole, and nobody reads beyond the high watermark, where nothing changes any more. The index of a complete segment may
be let go (`index` None) and is loaded again when it is needed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.errors import MalformedBatch
from tidelog.log.files import Files, OpenFile, read_fully, remove_files
from tidelog.log.header_block import HEADER_BLOCK, unpack_block
from tidelog.log.index import BatchStart, Index
from tidelog.log.open_files import OpenFiles
from tidelog.record.codec import peek
from tidelog.record.header import HEADER_SIZE, BatchHeader

RECENT_BATCHES = 512  # kept one by one; up to twice as many before the older half is let go
WALK_WINDOW = 8192  # read at a time when walking: about two index intervals
LOG_SUFFIX = ".log"
CLEANED_SUFFIX = ".cleaned"  # of a segment that compaction is writing
INDEX_SUFFIX = ".index"
DELETED_SUFFIX = ".deleted"


class Name(NamedTuple):
    """`<base offset>` as it was first written; `<base offset>-<end offset>-<generation>` as compaction has left it.

    A higher generation is the newer one.
    """

    base_offset: int
    end_offset: int = -1
    generation: int = 0

    def __str__(self) -> str:
        if not self.generation:
            return f"{self.base_offset:020d}"
        return f"{self.base_offset:020d}-{self.end_offset:020d}-{self.generation}"

    @classmethod
    def parse(cls, name: str, suffix: str = LOG_SUFFIX) -> Name | None:
        """Of a segment's file; None when it is not one."""
        stem = name.removesuffix(suffix)
        if not all(part.isdecimal() for part in stem.split("-")):
            return None
        found = cls(*(int(part) for part in stem.split("-")[:3]))
        return found if str(found) + suffix == name else None

    def replaces(self, other: Name) -> bool:
        return self.generation > other.generation and (
            self.base_offset <= other.base_offset < self.end_offset
            or other.base_offset <= self.base_offset < other.end_offset
        )


def newest(names: Iterable[Name]) -> list[Name]:
    """Those that count, by offset: where two have the same records, the one of the higher generation."""
    chosen: list[Name] = []
    for name in sorted(names, key=lambda name: -name.generation):
        if not any(other.replaces(name) for other in chosen):
            chosen.append(name)
    return sorted(chosen)


class BatchPosition(NamedTuple):
    position: int
    size: int
    base_offset: int


class BadHeader(NamedTuple):
    """What a walk came upon instead of the batch that should begin at `position` with `offset`."""

    position: int
    offset: int
    reason: str


class Step(NamedTuple):
    position: int
    header: BatchHeader


class Recent(NamedTuple):
    offsets: array[int]
    positions: array[int]


class CheckedRanges:
    """Which bytes of a segment this process has checked or written itself.

    Disjoint, sorted ranges. Any thread: the tuple is replaced whole, and what a race loses is only checked again.
    """

    __slots__ = ("_ranges", "own_from")

    def __init__(self, own_from: int) -> None:
        self.own_from = own_from  # this process wrote or checked everything from here to the end
        self._ranges: tuple[tuple[int, int], ...] = ()

    def covers(self, start: int, stop: int) -> bool:
        if start >= self.own_from:
            return True
        return any(first <= start and (stop <= last or last >= self.own_from) for first, last in self._ranges)

    def add(self, start: int, stop: int) -> None:
        merged = []
        for first, last in self._ranges:
            if last < start or first > stop:
                merged.append((first, last))
            else:
                start, stop = min(start, first), max(stop, last)
        self._ranges = tuple(sorted([*merged, (start, stop)]))


class Segment:
    __slots__ = (
        "_held",
        "_latest",
        "_open_files",
        "base_offset",
        "checked",
        "created_ms",
        "end",
        "end_offset",
        "files",
        "folder",
        "generation",
        "index",
        "index_entries_saved",
        "index_file_size",
        "log_path",
        "recent",
    )

    def __init__(self, files: Files, open_files: OpenFiles, folder: str, name: Name, end: int) -> None:
        self.files = files
        self._open_files = open_files
        self.base_offset = name.base_offset
        self.generation = name.generation
        self.end_offset: int | None = None  # where it ended, when it was replaced
        self.folder = folder
        self.log_path = f"{folder}/{name}{LOG_SUFFIX}"  # asked for several times a commit
        self.end = end
        self._held: OpenFile | None = None
        self.created_ms = 0
        self.index: Index | None = None
        self.index_entries_saved = 0
        self.index_file_size = 0
        self.recent = Recent(array("q"), array("q"))
        self.checked = CheckedRanges(own_from=end)
        self._latest: tuple[int, int] | None = None

    @classmethod
    def plan(cls, files: Files, open_files: OpenFiles, folder: str, base_offset: int, now_ms: int) -> Segment:
        segment = cls(files, open_files, folder, Name(base_offset), HEADER_BLOCK)
        segment.created_ms = now_ms
        segment.index = Index(base_offset)
        return segment

    # Its files --------------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """Of both, without their suffixes."""
        return self.log_path.removesuffix(LOG_SUFFIX)

    @property
    def index_path(self) -> str:
        return self.path + INDEX_SUFFIX

    def file(self) -> OpenFile:
        return self._held or self._open_files.get(self.log_path)

    @property
    def is_crowded_out(self) -> bool:
        """Whether its file is not open, and readers hold too many others."""
        return self._held is None and self._open_files.is_crowded(self.log_path)

    def find_file(self) -> OpenFile | None:
        """The file if it is open: never touches the disk."""
        return self._held or self._open_files.find(self.log_path)

    def hold(self) -> None:
        """It was replaced and its name is about to go: who still reads it needs the file for as long as it takes."""
        self._held = self.file()

    def create(self) -> OpenFile:
        return self._open_files.create(self.log_path)

    def close(self) -> None:
        self._open_files.forget(self.log_path)

    def remove(self) -> None:
        """Takes the names away; whoever still holds the file can go on reading it."""
        self.close()
        deleted = self.log_path + DELETED_SUFFIX
        try:
            self.files.rename(self.log_path, deleted)
        except FileNotFoundError:
            deleted = self.log_path
        remove_files(self.files, (self.index_path, deleted))

    # The loop's thread: growing ---------------------------------------------------------------------------------------

    def note(self, base_offset: int, size: int, max_timestamp: int, interval: int) -> None:
        """Puts a batch at the end."""
        position = self.end
        index = self.index
        assert index is not None
        index.note(base_offset, position, max_timestamp, interval)
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
        self.index.cut(end, max_timestamp, max_timestamp_offset)
        offsets, positions = self.recent
        at = bisect_right(positions, end - 1)
        self.recent = Recent(offsets[:at], positions[:at])
        self.end = end

    # Any thread: finding ----------------------------------------------------------------------------------------------

    @property
    def latest(self) -> tuple[int, int] | None:
        """The latest timestamp and the base offset of the first batch that has it; None when it is not known."""
        index = self.index
        return self._latest if index is None else (index.max_timestamp, index.max_timestamp_offset)

    def look_up_created(self, now_ms: int) -> None:
        """Where it is not known yet; waits for the disk. A head that is not good says nothing: then it is new."""
        if not self.created_ms:
            head = unpack_block(read_fully(self.files, self.file().fd, HEADER_BLOCK, 0), self.log_path)
            self.created_ms = head.created_ms if head is not None else now_ms

    def let_go_of_index(self) -> None:
        """Of a complete segment; the latest timestamp stays."""
        self._latest = self.latest
        self.index = None

    def find_recent(self, offset: int) -> BatchPosition | None:
        """The batch with this offset, if it is one of the last ones."""
        offsets, positions = self.recent
        at = bisect_right(offsets, offset) - 1
        if at < 0:
            return None
        start = positions[at]
        following = positions[at + 1] if at + 1 < len(positions) else self.end
        return BatchPosition(start, following - start, offsets[at])

    def find(self, start: BatchStart, offset: int, limit: int) -> BatchPosition | BadHeader | None:
        """The batch with this offset, walking from a boundary before it, and not beyond position `limit`."""
        for step in self.walk(start, limit):
            if isinstance(step, BadHeader):
                return step
            if step.header.next_offset > offset:
                return BatchPosition(step.position, step.header.size, step.header.base_offset)
        return None

    def walk(self, start: BatchStart, limit: int) -> Iterator[Step | BadHeader]:
        """The headers from a boundary to another, up to the first bad one; only that offsets are dense is checked.

        So what comes may still be bad, and when an offset does not follow, the batch before may be the one at fault.
        """
        position, expected = start
        file = self.file()
        while position < limit:
            window = read_fully(self.files, file.fd, min(WALK_WINDOW, limit - position), position)
            at = 0
            while at + HEADER_SIZE <= len(window):
                try:
                    header = peek(window, at)
                except MalformedBatch as error:
                    yield BadHeader(position + at, expected, str(error))
                    return
                if header.base_offset != expected or position + at + header.size > limit:
                    reason = f"batch says offset {header.base_offset}, size {header.size}; offset {expected} is due"
                    yield BadHeader(position + at, expected, reason)
                    return
                yield Step(position + at, header)
                expected = header.next_offset
                at += header.size
            if at == 0:
                yield BadHeader(position, expected, f"batch is cut after {len(window)} bytes")
                return
            position += at

    def boundary(self, start: int, stop: int) -> int:
        """The last known beginning of a batch after `start` and up to `stop`; `start` when none is known."""
        positions = self.recent.positions
        at = bisect_right(positions, stop) - 1
        if at >= 0:
            return max(positions[at], start)
        index = self.index
        return start if index is None else max(index.before_position(stop).position, start)
