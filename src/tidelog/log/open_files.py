"""The log files that are open: the least recently used one is closed when a limit is reached.

Closed means that this cache lets go of it. Whoever still holds the file (a commit under way, a slice being sent) keeps
it open. A file with bytes not yet synced is held until it is synced, so an error of the disk cannot get lost between a
close and an open. When the process has no descriptors left, half of the cache goes before anybody is told so.

Clients that are slow to take what they asked for hold files, too. Those that the cache has let go of have a limit of
their own; beyond it nothing is opened for readers (`is_crowded`), and whoever writes still finds descriptors.
"""

from __future__ import annotations

import resource
import threading
from collections import OrderedDict
from errno import EMFILE, ENFILE
from weakref import WeakSet

from tidelog.log.files import Files, OpenFile

OPEN_FILES_LIMIT = 2048  # or an eighth of what the process may open, if that is less
HELD_AT_LEAST = 32  # or an eighth of what the process may open, if that is more


class OpenFiles:
    """Any thread."""

    __slots__ = ("_files", "_lock", "_made", "_open", "held_limit", "limit")

    def __init__(self, files: Files, limit: int | None = None) -> None:
        allowed = _share_of_the_process()
        self.limit = limit if limit is not None else max(1, min(OPEN_FILES_LIMIT, allowed))
        self.held_limit = max(HELD_AT_LEAST, allowed if limit is None else limit)
        self._files = files
        self._open: OrderedDict[str, OpenFile] = OrderedDict()
        self._made: WeakSet[OpenFile] = WeakSet()  # and somebody still holds it
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def is_crowded(self, path: str) -> bool:
        """Whether readers hold so many files that this one, which is not open, must wait for them."""
        return path not in self._open and len(self._made) - len(self._open) >= self.held_limit

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
            fd = self._files.open(path, create=create)
        except OSError as error:
            if error.errno not in (EMFILE, ENFILE):
                raise
            self._shrink(len(self._open) // 2)
            fd = self._files.open(path, create=create)
        file = OpenFile(self._files, fd)
        with self._lock:
            self._made.add(file)
        return file

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


def _share_of_the_process() -> int:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_LIMIT if allowed == resource.RLIM_INFINITY else allowed // 8
