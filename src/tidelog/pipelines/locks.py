"""One run an output: a lock beside the checkpoint of each, which the kernel frees when its process ends, however.

    <checkpoints>/<app>/<output>@lock    locked (flock) by the run that has the output; its content is that process

Rules:
- All outputs of a run are locked, or none: of two runs that wait for each other's one gets all.
- It is by the output's name and not by its generation: a run goes on with the next one, and a rebuild builds beside it.
- '@' is in no name of a topic or view, so that the file is nobody's checkpoint.
- A lock is of this machine. Where checkpoints are elsewhere (hdfs://, s3a://), there is none, and a run goes by what
  others have told of themselves. Whatever happens, the sink's transactional id is the truth: of two drivers it fences
  one.
- Children do not inherit it: one that outlives its run does not hold up the next.
- A file system that knows no locks has none (`are_kept` is False): that is no reason not to run.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from tidelog.clock import rest
from tidelog.errors import DataFolderError
from tidelog.process import ALIVE, READY, notify

SUFFIX = "@lock"
EVERYBODY_READS = 0o644
HOLDER_BYTES = 1024
LOOK_S = 0.2
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class LockHolder(NamedTuple):
    """Who has an output, as its lock says."""

    output: str
    pid: int | None = None
    host: str | None = None

    def __str__(self) -> str:
        where = "" if self.host in (None, socket.gethostname()) else f" on {self.host}"
        return f"process {self.pid}{where}" if self.pid else "another process"


def local_folder(checkpoints: str) -> Path | None:
    """None where they are not in files of this machine."""
    scheme, found, _ = checkpoints.partition("://")
    if not found:
        return Path(checkpoints)
    return Path(unquote(urlsplit(checkpoints).path)) if scheme == "file" else None


class OutputLocks:
    """Owns the files. `folder` is that of the app's checkpoints."""

    def __init__(self, folder: Path, outputs: Iterable[str]) -> None:
        self._folder = folder
        self._outputs = sorted(outputs)
        self._held: list[int] = []
        self.are_kept = True  # whether the file system keeps locks

    def take(self) -> LockHolder | None:
        """All of them, or none, and who has one of them."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for name in self._outputs:
                if (holder := self._take(name)) is not None:
                    self.release()
                    return holder
        except OSError as error:
            self.release()
            raise DataFolderError(
                f"checkpoints cannot be written to {self._folder}: {error.strerror}; give a folder by --checkpoints"
            ) from None
        return None

    def wait(self, stopping: threading.Event, tell: Callable[[LockHolder], object]) -> bool:
        """Until all are had: True. False where that is stopped before. `tell` is told of each who is waited for."""
        last: LockHolder | None = None
        while (holder := self.take()) is not None:
            if holder != last:
                tell(holder)
            last = holder
            notify(READY, ALIVE)  # a supervisor is not to end who only waits
            rest(stopping, LOOK_S)
            if stopping.is_set():
                return False
        return True

    def release(self) -> None:
        for lock in self._held:
            os.close(lock)
        self._held = []

    def _take(self, name: str) -> LockHolder | None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        lock = os.open(self._folder / f"{name}{SUFFIX}", flags, EVERYBODY_READS)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read(name, lock)
            os.close(lock)
            return holder
        except OSError as error:
            os.close(lock)
            if error.errno not in NO_LOCKS:
                raise
            self.are_kept = False
            return None
        self._held.append(lock)
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        return None


def _read(output: str, lock: int) -> LockHolder:
    """It may have been locked just now, and say nothing yet."""
    try:
        told: Any = json.loads(os.pread(lock, HOLDER_BYTES, 0))
        return LockHolder(output, int(told["pid"]), str(told["host"]))
    except (ValueError, KeyError, TypeError):
        return LockHolder(output)
