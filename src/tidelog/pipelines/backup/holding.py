"""Checkpoints held by second names while a backup is taken, because Spark removes what it needs no more.

    <checkpoints>/.backup.<app>/<query>/...    hard links to the files of <checkpoints>/<app>/<query>/...
    <checkpoints>/.backup.<app>@lock           locked by the backup that holds them (`pipelines/locks.py`)

A file of a checkpoint is written by another name and renamed, and never changed after that, so a link is as good as a
copy. All is held before the cut, and until behind it a thread looks again and again: what was there for a moment is
held, however little Spark keeps. Where there are no hard links, files are copied, which may be too slow for that.

Rules:
- The files of a folder are held before those in folders below it: a snapshot of RocksDB before the files that it names,
  which were there before it was.
- A file that was replaced counts as it is now: it is of a micro-batch that was run again.
- Names that begin with a dot are of files that are being written, or checksums of others (`.0.crc`): those go along.
- One backup of an app at a time: a second would remove what the first one holds. Only who has the lock removes it.
- What a killed backup leaves is removed by the next one of the same app.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from errno import EMLINK, ENOSYS, EOPNOTSUPP, EPERM, EXDEV
from pathlib import Path
from threading import Event, Thread

from tidelog.errors import BackupError
from tidelog.pipelines.locks import OutputLocks

NO_LINKS = (EPERM, EOPNOTSUPP, ENOSYS, EMLINK, EXDEV)
LOOK_EVERY_S = 0.05
BEING_WRITTEN = ".tmp"
COMMIT = re.compile(r"([^/]+)/commits/([0-9]+)")


class HeldCheckpoints:
    """All checkpoints of one app. `begin`, then `finish` behind the cut; both again for the next cut. Who wants to be
    refused before anything is copied calls `lock` first.
    """

    def __init__(self, checkpoints: Path, app: str) -> None:
        self._source = checkpoints / app
        self.folder = checkpoints / f".backup.{app}"
        self._app = app
        self._lock = OutputLocks(checkpoints, [self.folder.name])
        self._is_mine = False
        self._held: dict[str, tuple[int, int]] = {}  # inode and size by path
        self._ending = Event()
        self._thread: Thread | None = None
        self._failed: OSError | None = None
        self.committed: dict[str, int] = {}  # by query: the last micro-batch that was done before the cut was asked for

    def lock(self) -> None:
        if self._is_mine or not self._source.is_dir():
            return
        if (holder := self._lock.take()) is not None:
            raise BackupError(
                f"{holder} is taking a backup of app {self._app}, whose checkpoints are in {self._source}; wait until"
                " that backup has ended, or end that process, and try again"
            )
        self._is_mine = True

    def begin(self) -> None:
        self.lock()
        if not self._is_mine:
            return
        if not self._held:
            self._remove()
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.look()
        self.committed = last_commits(self._held)
        self._ending.clear()
        self._thread = Thread(target=self._follow, name="tidelog-holding", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Returns when all is held that was there when this was called."""
        self._stop()
        if self._failed is not None:
            raise self._failed
        if self._source.is_dir():
            self.look()

    def release(self) -> None:
        self._stop()
        self._held.clear()
        if self._is_mine:
            self._remove()
            self._lock.release()
            self._is_mine = False

    def _stop(self) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _follow(self) -> None:
        try:
            while not self._ending.is_set():
                self.look()
                self._ending.wait(LOOK_EVERY_S)
        except OSError as error:
            self._failed = error

    @property
    def queries(self) -> list[Path]:
        """What is held of each, in folders named as theirs."""
        return sorted(path for path in self.folder.iterdir() if path.is_dir()) if self.folder.is_dir() else []

    def look(self) -> None:
        for folder, _, names in os.walk(self._source):
            below = os.path.relpath(folder, self._source)
            for name in sorted(names):
                if not name.endswith(BEING_WRITTEN):
                    with suppress(FileNotFoundError):  # Spark has cleaned up
                        self._hold(f"{folder}/{name}", os.path.normpath(f"{below}/{name}"))

    def _hold(self, path: str, name: str) -> None:
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116  many, and often
        if self._held.get(name) == (found.st_ino, found.st_size):
            return
        target = f"{self.folder}/{name}"
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        new = f"{target}{BEING_WRITTEN}"
        Path(new).unlink(missing_ok=True)
        try:
            os.link(path, new)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            shutil.copyfile(path, new)
        Path(new).replace(target)
        Path(new).unlink(missing_ok=True)  # two names of one file are not replaced by each other
        self._held[name] = (found.st_ino, found.st_size)


def last_commits(names: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for said in filter(None, map(COMMIT.fullmatch, names)):
        found[said[1]] = max(int(said[2]), found.get(said[1], 0))
    return found
