"""A stretch of a segment file, whole batches, to be sent as it is.

A slice holds its file open until `release`, whatever happens to the segment meanwhile. `is_hot` says whether sending it
would wait for the disk; if so, `warm` in another thread first.
"""

from __future__ import annotations

from tidelog.log.files import Files, OpenFile, read_fully

WARM_WINDOW = 1 << 20


class Cold(Exception):
    """What was asked for is not in memory: ask again in a thread that may wait for the disk."""


class Slice:
    __slots__ = ("_file", "_files", "position", "size")

    def __init__(self, files: Files, file: OpenFile, position: int, size: int) -> None:
        self._files = files
        self._file: OpenFile | None = file
        self.position = position
        self.size = size

    def fileno(self) -> int:
        return self._held().fd

    def read(self) -> bytes:
        return read_fully(self._files, self._held().fd, self.size, self.position)

    def is_hot(self) -> bool:
        return self._files.is_cached(self._held().fd, self.position, self.size)

    def warm(self) -> None:
        """Brings the bytes into memory; waits for the disk."""
        fd = self._held().fd
        for position in range(self.position, self.position + self.size, WARM_WINDOW):
            self._files.read(fd, WARM_WINDOW, position)

    def release(self) -> None:
        self._file = None

    def _held(self) -> OpenFile:
        assert self._file is not None, "slice was released"
        return self._file
