"""The log files that are open: the least recently used one is closed when a limit is reached.

Closed means that this cache lets go of it. Whoever still holds the file (a commit under way, a slice being sent) keeps
it open. A file with bytes not yet synced is always held by its partition's tail, so an error of the disk cannot get
lost between a close and an open.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from tidelog.log.files import Files, OpenFile

OPEN_FILES_LIMIT = 2048


class OpenFiles:
    """Any thread."""

    __slots__ = ("_files", "_lock", "_open", "limit")

    def __init__(self, files: Files, limit: int = OPEN_FILES_LIMIT) -> None:
        self.limit = limit
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
        return self.find(path) or self._keep(path, OpenFile(self._files, self._files.open(path)))

    def create(self, path: str) -> OpenFile:
        """A file that was not there before."""
        return self._keep(path, OpenFile(self._files, self._files.open(path, create=True)))

    def forget(self, path: str) -> None:
        """The name is about to be removed, renamed or opened anew."""
        with self._lock:
            file = self._open.pop(path, None)
        del file

    def _keep(self, path: str, file: OpenFile) -> OpenFile:
        oldest = None
        with self._lock:
            kept = self._open.setdefault(path, file)
            if len(self._open) > self.limit:
                oldest = self._open.popitem(last=False)
        del oldest  # its close is a system call, so it happens after the lock
        return kept
