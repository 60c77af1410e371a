"""The seam to the operating system's files: everything that this room does to a disk goes through `Files`.

`RealFiles` is the operating system; `tidelog.testing.disk` has a disk that forgets, tears, flips, fails and fills. Both
give real file descriptors, so that a slice can go to `sendfile`. Errors are the operating system's own (`OSError`);
what they mean for a partition is decided by the callers.

What callers may rely on: `write` and `read` take positions and may be short; `sync` makes durable what was written to
that file before the call, and its length; a new, renamed or removed name is durable only after `sync_folder`;
`sync_all` is both for everything on the file system of that folder, and tells of failures where `can_sync_all`. Nothing
else is durable.

What is made here is its owner's alone (`OWNER_ONLY`, `OWNER_ONLY_FOLDER`): records are nobody else's to read. What is
there already keeps its mode.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from errno import EAGAIN, EIO, EMFILE, ENFILE, EOPNOTSUPP
from pathlib import Path
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview

PAGE = 4096
PROBE_STEP = 128 * 1024  # one probe per read-ahead window: a page that is cached had its neighbours read with it
TEMPORARY = ".tmp"
OFFSET_DIGITS = 20  # of a file that is named after an offset
SPARE_TRIES, SPARE_PAUSE_S = 100, 0.02
OWNER_ONLY, OWNER_ONLY_FOLDER = 0o600, 0o700  # given where a name is made: a umask is the whole process's
SYNCFS_TELLS_ERRORS_SINCE = (5, 8)  # before that version of Linux it said "fine" whatever happened

_FOLDER_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY


class Entry(NamedTuple):
    """A name in a folder; folders have size 0."""

    name: str
    size: int


class Files(Protocol):
    @property
    def can_sync_all(self) -> bool: ...
    def open(self, path: str, *, create: bool = False) -> int: ...
    def close(self, fd: int) -> None: ...
    def read(self, fd: int, size: int, position: int) -> bytes: ...
    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int: ...
    def size(self, fd: int) -> int: ...
    def is_there(self, path: str) -> bool: ...
    def is_same(self, fd: int, path: str) -> bool: ...
    def truncate(self, fd: int, size: int) -> None: ...
    def sync(self, fd: int) -> None: ...
    def sync_all(self, path: str) -> None: ...
    def sync_folder(self, path: str) -> None: ...
    def list(self, path: str) -> list[Entry]: ...
    def make_folder(self, path: str) -> None: ...
    def remove_folder(self, path: str) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def is_cached(self, fd: int, position: int, size: int) -> bool: ...
    def read_cached(self, fd: int, size: int, position: int) -> bytes | bytearray | None: ...
    def forget(self, fd: int, position: int, size: int) -> None: ...
    def free_bytes(self, path: str) -> int: ...
    def unwritten_bytes(self) -> int: ...


class RealFiles:
    """The operating system. Any number of threads and partitions.

    One descriptor is kept for the sync of a folder: when the process has no other left, a new segment must not look
    as if the disk had failed.
    """

    __slots__ = ("_file_systems", "_spare", "_sparing", "can_sync_all")

    def __init__(self) -> None:
        self.can_sync_all = sys.platform == "linux" and _kernel() >= SYNCFS_TELLS_ERRORS_SINCE
        self._file_systems: dict[int, int] = {}
        self._sparing = threading.Lock()
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        for fd in (self._spare, *self._file_systems.values()):
            if fd >= 0:
                close(fd)

    def open(self, path: str, *, create: bool = False) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        return os.open(path, flags, OWNER_ONLY)

    def close(self, fd: int) -> None:
        os.close(fd)

    def read(self, fd: int, size: int, position: int) -> bytes:
        return os.pread(fd, size, position)

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        return os.pwritev(fd, buffers, position)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def is_there(self, path: str) -> bool:
        """Whether something has this name. Asked at every commit, so it is the cheapest way to know."""
        return os.access(path, os.F_OK) or not _is_gone(path)

    def is_same(self, fd: int, path: str) -> bool:
        """Whether the open file is the one that has this name."""
        try:
            named, opened = os.stat(path), os.fstat(fd)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(named, opened)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    if sys.platform == "darwin":

        def sync(self, fd: int) -> None:
            import fcntl

            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:

        def sync(self, fd: int) -> None:
            os.fdatasync(fd)

    def sync_all(self, path: str) -> None:
        device = os.stat(path).st_dev  # noqa: PTH116 (a Path costs more than the call)
        fd = self._file_systems.get(device)
        if fd is None:
            # It stays open: only what went wrong since the opening is sure to be told.
            fd = self._file_systems.setdefault(device, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        _syncfs(fd)

    def sync_folder(self, path: str) -> None:
        try:
            fd = os.open(path, _FOLDER_FLAGS)
        except OSError as error:
            if error.errno not in (EMFILE, ENFILE):
                raise
            fd = self._open_by_spare(path)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
            self._keep_spare()

    def _open_by_spare(self, path: str) -> int:
        """Another thread may be quicker to what is set free; then it is tried again a moment later."""
        for _ in range(SPARE_TRIES):
            with self._sparing:
                spare, self._spare = self._spare, -1
                if spare >= 0:
                    os.close(spare)
                with suppress(OSError):
                    return os.open(path, _FOLDER_FLAGS)
            time.sleep(SPARE_PAUSE_S)
        return os.open(path, _FOLDER_FLAGS)

    def _keep_spare(self) -> None:
        with self._sparing, suppress(OSError):
            if self._spare < 0:
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def list(self, path: str) -> list[Entry]:
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # gone since, as a file is that takes another one's place
                    found.append(Entry(entry.name, entry.stat().st_size if entry.is_file() else 0))
        return found

    def make_folder(self, path: str) -> None:
        Path(path).mkdir(exist_ok=True, mode=OWNER_ONLY_FOLDER)

    def remove_folder(self, path: str) -> None:
        Path(path).rmdir()

    def rename(self, source: str, target: str) -> None:
        Path(source).replace(target)

    def remove(self, path: str) -> None:
        Path(path).unlink()

    def is_cached(self, fd: int, position: int, size: int) -> bool:
        """Whether reading would not wait, judged by a byte in every read-ahead window; True where nobody can tell."""
        if not hasattr(os, "RWF_NOWAIT"):
            return True
        one = bytearray(1)
        try:
            for probe in (*range(position, position + size - 1, PROBE_STEP), position + size - 1):
                os.preadv(fd, (one,), probe, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno == EAGAIN:
                return False
            if error.errno != EOPNOTSUPP:
                raise
        return True

    def read_cached(self, fd: int, size: int, position: int) -> bytes | bytearray | None:
        """All of the bytes, if they can be had without waiting."""
        if not hasattr(os, "RWF_NOWAIT"):
            return os.pread(fd, size, position)
        data = bytearray(size)
        try:
            got = os.preadv(fd, (data,), position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno == EAGAIN:
                return None
            if error.errno != EOPNOTSUPP:
                raise
            return os.pread(fd, size, position)
        return data if got == size else None

    def forget(self, fd: int, position: int, size: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)

    def unwritten_bytes(self) -> int:
        """What waits in the page cache of the whole machine to be written; 0 where nobody can tell."""
        try:
            with open("/proc/meminfo", "rb") as told:  # noqa: PTH123 (a Path costs more than the call)
                lines = told.read()
        except OSError:
            return 0
        return sum(int(lines.partition(name)[2].split(None, 1)[0]) << 10 for name in (b"\nDirty:", b"\nWriteback:"))

    def free_bytes(self, path: str) -> int:
        facts = os.statvfs(path)
        return facts.f_bavail * facts.f_frsize


def _is_gone(path: str) -> bool:
    """A name that cannot be looked up for another reason is not taken for gone."""
    try:
        os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _kernel() -> tuple[int, ...]:
    numbers = os.uname().release.split("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdecimal())


def _syncfs(fd: int) -> None:
    if sys.platform != "linux":
        os.sync()
        return
    import ctypes

    if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def read_fully(files: Files, fd: int, size: int, position: int) -> bytes:
    """`size` bytes, fewer only at the end of the file."""
    data = files.read(fd, size, position)
    if len(data) == size or not data:
        return data
    chunks = [data]
    got = len(data)
    while got < size and (data := files.read(fd, size - got, position + got)):
        chunks.append(data)
        got += len(data)
    return b"".join(chunks)


def write_fully(files: Files, fd: int, data: Buffer, position: int) -> None:
    rest = memoryview(data)
    while rest:
        done = files.write(fd, (rest,), position)
        if done <= 0:
            raise OSError(EIO, "the disk did not accept any byte of a write")
        rest = rest[done:]
        position += done


def read_file(files: Files, path: str) -> bytes | None:
    """The whole of a small file, None when there is none."""
    try:
        fd = files.open(path)
    except FileNotFoundError:
        return None
    try:
        return read_fully(files, fd, files.size(fd), 0)
    finally:
        files.close(fd)


def replace_file(files: Files, path: str, data: Buffer, *, durable: bool = True) -> None:
    """Puts a small file in place. If durable, a power cut leaves either the old one or the new one, whole."""
    put_file(files, path, data, durable=durable)
    if durable:
        files.sync_folder(path.rpartition("/")[0])


def put_file(files: Files, path: str, data: Buffer, *, durable: bool) -> None:
    """The same for a folder that the caller syncs: until then the name may be the old one's or nobody's."""
    write_temporary(files, path, data, durable=durable)
    files.rename(path + TEMPORARY, path)


def write_temporary(files: Files, path: str, data: Buffer, *, durable: bool) -> None:
    """What is to become the file `path`, under the name that it has until it is whole."""
    temporary = path + TEMPORARY
    remove_files(files, [temporary])
    fd = files.open(temporary, create=True)
    try:
        write_fully(files, fd, data, 0)
        if durable:
            files.sync(fd)
    finally:
        files.close(fd)


def remove_files(files: Files, paths: Iterable[str]) -> None:
    """Removes what is there of them; not durable before the folder is synced."""
    for path in paths:
        try:
            files.remove(path)
        except FileNotFoundError:
            continue


def offset_of(name: str, suffix: str) -> int | None:
    """The offset that a file is named after; None for a name that is not one of ours."""
    digits = name.removesuffix(suffix)
    return int(digits) if len(digits) == OFFSET_DIGITS and digits.isdecimal() and name.endswith(suffix) else None


class OpenFile:
    """A descriptor that is closed when nobody holds it any more: the cache, a commit under way, a slice in flight."""

    __slots__ = ("__weakref__", "_files", "fd")

    def __init__(self, files: Files, fd: int) -> None:
        self._files = files
        self.fd = fd

    def __del__(self) -> None:
        self._files.close(self.fd)
