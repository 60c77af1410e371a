"""The log files that are open: the least recently used one is closed when a limit is reached.

Closed means that this cache lets go of it. Whoever still holds the file (a commit under way, a slice being sent) keeps
it open. A file with bytes not yet synced is held until it is synced, so an error of the disk cannot get lost between a
close and an open. When the process has no descriptors left, half of the cache goes before anybody is told so.
"""

from __future__ import annotations

import resource
import threading
from collections import OrderedDict
from errno import EMFILE, ENFILE

from tidelog.log.files import Files, OpenFile

OPEN_FILES_LIMIT = 2048  # or a quarter of what the process may open, if that is less


class OpenFiles:
    """Any thread."""

    __slots__ = ("_files", "_lock", "_open", "limit")

    def __init__(self, files: Files, limit: int | None = None) -> None:
        self.limit = limit if limit is not None else _default_limit()
        self._files = files
        self._open: OrderedDict[str, OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def find(self, path: str) -> OpenFile | None:
        """The file if it is open: never touches the disk."""
        with self._lock:
            file = self._open.get(path)
            if file is not None:
                self._open.move_to_end(path)
            return file

    def get(self, path: str) -> OpenFile:
        return self.find(path) or self._keep(path, self._open_file(path, create=False))

    def create(self, path: str) -> OpenFile:
        """A file that was not there before."""
        return self._keep(path, self._open_file(path, create=True))

    def forget(self, path: str) -> None:
        """The name is about to be removed, renamed or opened anew."""
        with self._lock:
            file = self._open.pop(path, None)
        del file

    def _open_file(self, path: str, *, create: bool) -> OpenFile:
        try:
            return OpenFile(self._files, self._files.open(path, create=create))
        except OSError as error:
            if error.errno not in (EMFILE, ENFILE):
                raise
            self._shrink(len(self._open) // 2)
            return OpenFile(self._files, self._files.open(path, create=create))

    def _keep(self, path: str, file: OpenFile) -> OpenFile:
        with self._lock:
            kept = self._open.setdefault(path, file)
        self._shrink(self.limit)
        return kept

    def _shrink(self, size: int) -> None:
        gone = []
        with self._lock:
            while len(self._open) > size:
                gone.append(self._open.popitem(last=False))
        gone.clear()  # closing is a system call, so it happens after the lock


def _default_limit() -> int:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_LIMIT if allowed == resource.RLIM_INFINITY else max(1, min(OPEN_FILES_LIMIT, allowed // 4))
