"""A stretch of a segment file, whole batches, to be sent as it is.

A slice holds its file open until `release`, whatever happens to the segment meanwhile. `is_hot` says whether it may be
sent at once: its bytes are in memory, and this process wrote or checked them. If not, `warm` in another thread first:
it reads and checks what comes from the disk, so that rot is never sent on.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from tidelog.errors import HoleError
from tidelog.log.checking import check_batches
from tidelog.log.epochs import History
from tidelog.log.files import Files, OpenFile, read_fully
from tidelog.log.index import BatchStart
from tidelog.log.segment import Segment


class Cold(Exception):
    """What was asked for is not in memory: ask again in a thread that may wait for the disk."""


class Asked(NamedTuple):
    """What a slice is the answer to."""

    offset: int
    max_bytes: int
    limit: int | None


class Reader(Protocol):
    def find_slice(self, asked: Asked) -> Slice | None: ...
    def found_bad(self, segment: Segment, start: BatchStart, fault: str) -> HoleError: ...
    def offset_behind(self, segment: Segment, position: int) -> int: ...


class Slice:
    """`position` and `size` may change in `warm`. One thread at a time."""

    __slots__ = ("_asked", "_epochs", "_file", "_files", "_reader", "_segment", "base_offset", "position", "size")

    def __init__(
        self,
        reader: Reader,
        asked: Asked,
        epochs: History,
        segment: Segment,
        file: OpenFile,
        start: BatchStart,
        stop: int,
    ) -> None:
        self._reader = reader
        self._asked = asked
        self._epochs = epochs
        self._segment = segment
        self._files: Files = segment.files
        self._file: OpenFile | None = file
        self.position, self.base_offset = start  # the first batch may begin below the offset that was asked for
        self.size = stop - start.position

    def fileno(self) -> int:
        return self._held().fd

    def read(self) -> bytes:
        """The bytes, unchecked unless it `is_hot` or was warmed."""
        return read_fully(self._files, self._held().fd, self.size, self.position)

    @property
    def stop_offset(self) -> int:
        """Every record of it is below; how far below is not looked up."""
        return self._reader.offset_behind(self._segment, self.position + self.size)

    def is_hot(self) -> bool:
        if not self._segment.checked.covers(self.position, self.position + self.size):
            return False
        return self._files.is_cached(self._held().fd, self.position, self.size)

    def read_hot(self) -> bytes | bytearray | None:
        """The bytes, if they may be sent at once."""
        if not self._segment.checked.covers(self.position, self.position + self.size):
            return None
        return self._files.read_cached(self._held().fd, self.size, self.position)

    def warm(self) -> None:
        """Reads and checks. A bad batch ends the slice before it; HoleError when the offset asked for is in it."""
        while True:
            start = BatchStart(self.position, self.base_offset)
            stop = self.position + self.size
            checked = check_batches(self._files, self._held().fd, start, stop, self._epochs)
            self._segment.checked.add(self.position, checked.end.position)
            if checked.fault is None:
                return
            error = self._reader.found_bad(self._segment, checked.end, checked.fault)
            if checked.end.offset > self._asked.offset:
                self.size = checked.end.position - self.position
                return
            self._find_again(error)

    def _find_again(self, error: HoleError) -> None:
        """A bad header led here: now that it is known, the batch that was asked for may be found behind it."""
        found = self._reader.find_slice(self._asked)
        if found is None or (found._segment is self._segment and found.position <= self.position):
            raise error
        self._segment, self._file = found._segment, found._file
        self.position, self.size, self.base_offset = found.position, found.size, found.base_offset

    def release(self) -> None:
        self._file = None

    def _held(self) -> OpenFile:
        assert self._file is not None, "slice was released"
        return self._file
