"""A stretch of a segment file, whole batches, to be sent as it is.

A slice holds its file open until `release`, whatever happens to the segment meanwhile. `is_hot` says whether it may be
sent at once: its bytes are in memory, and this process wrote or checked them. If not, `warm` in another thread first:
it reads and checks what comes from the disk, so that rot is never sent on.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.log.checking import check_batches
from tidelog.log.epochs import History
from tidelog.log.files import Files, OpenFile, read_fully
from tidelog.log.segment import BadHeader, Segment


class Cold(Exception):
    """What was asked for is not in memory: ask again in a thread that may wait for the disk."""


class Holes(Protocol):
    def found_bad(self, segment: Segment, bad: BadHeader) -> Exception: ...


class Slice:
    """`size` may shrink in `warm`. One thread at a time."""

    __slots__ = ("_epochs", "_file", "_files", "_holes", "_segment", "base_offset", "position", "size")

    def __init__(
        self,
        holes: Holes,
        epochs: History,
        segment: Segment,
        file: OpenFile,
        position: int,
        size: int,
        base_offset: int,
    ) -> None:
        self._holes = holes
        self._epochs = epochs
        self._segment = segment
        self._files: Files = segment.files
        self._file: OpenFile | None = file
        self.position = position
        self.size = size
        self.base_offset = base_offset  # of the first batch, which may be below the offset that was asked for

    def fileno(self) -> int:
        return self._held().fd

    def read(self) -> bytes:
        """The bytes, unchecked unless it `is_hot` or was warmed."""
        return read_fully(self._files, self._held().fd, self.size, self.position)

    def is_hot(self) -> bool:
        if not self._segment.checked.covers(self.position, self.position + self.size):
            return False
        return self._files.is_cached(self._held().fd, self.position, self.size)

    def warm(self) -> None:
        """Reads and checks. A bad batch ends the slice before it; HoleError when that is the first one."""
        stop = self.position + self.size
        checked = check_batches(self._files, self._held().fd, self.position, stop, self.base_offset, self._epochs)
        self._segment.checked.add(self.position, checked.position)
        if checked.fault is not None:
            error = self._holes.found_bad(self._segment, BadHeader(checked.position, checked.offset, checked.fault))
            if checked.position == self.position:
                raise error
            self.size = checked.position - self.position

    def release(self) -> None:
        self._file = None

    def _held(self) -> OpenFile:
        assert self._file is not None, "slice was released"
        return self._file
