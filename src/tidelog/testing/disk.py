"""A disk that breaks on purpose: it forgets what was not synced, tears, fails, fills up and loses power at any step.

`SimulatedDisk` is a `tidelog.log.files.Files` over a real folder. What the program sees is that folder, as if through
the page cache; beside it the disk remembers what has been synced. `crash` makes another folder: one of the many states
that a power cut could have left. The rules are those of POSIX and no kinder:

- Of each 4 KB page of a file, any state since the last sync of that file may be there, whatever other pages are.
- The length of a file is any that it had since then. The very last write may be torn at any byte.
- A name that was made, renamed or removed counts only when its folder has been synced; until then each change is there
  or is not, in any combination. A rename is one change.
- After a sync that failed, the pages are clean: another sync does not bring them to the disk, and reading shows them
  until the power goes.

    disk = SimulatedDisk(folder)
    disk.cut_power_at(17)                                # the 17th operation from here on fails, and all later ones
    ... the program runs on disk until PowerCut ...
    image = disk.crash(other_folder, seed=5)             # what is left; open it with a new SimulatedDisk
    disk.fail("sync", OSError(EIO, "..."), name=".log")  # the next sync of such a file fails
    disk.capacity = 1_000_000                            # ENOSPC beyond
    flip_bit(path, byte, bit)                            # rot, in an image

The same seed gives the same image after the same operations. All operations may come from any thread.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from errno import EIO, ENOSPC
from functools import reduce
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from tidelog.log.files import PAGE, Buffer, Entry, RealFiles

KEEP_CHANCES = (0.0, 0.5, 1.0)  # of one unsynced change to survive; drawn once for each file and folder
TEAR_CHANCE = 0.5


class PowerCut(OSError):
    """The power is gone: every operation on this disk fails."""

    def __init__(self) -> None:
        super().__init__(EIO, "the simulated power is cut")


class Write(NamedTuple):
    position: int
    data: bytes


class Truncate(NamedTuple):
    size: int


@dataclass(eq=False, slots=True)
class File:
    """`durable` is on the disk for certain; `changes` since then may be, page by page."""

    durable: bytes = b""
    changes: list[Write | Truncate] = field(default_factory=list)


class NameChange(NamedTuple):
    """`old` goes and `new` comes, in one step; either may be None."""

    old: str | None
    new: str | None
    node: File | Folder | None


@dataclass(eq=False, slots=True)
class Folder:
    names: dict[str, File | Folder] = field(default_factory=dict)
    durable: dict[str, File | Folder] = field(default_factory=dict)
    changes: list[NameChange] = field(default_factory=list)


@dataclass(slots=True)
class Fault:
    operation: str
    error: OSError
    name: str
    times: int


class SimulatedDisk:
    """What is in the folder at the beginning counts as synced."""

    def __init__(self, folder: Path, *, seed: int = 0) -> None:
        self.folder = folder
        self.capacity: int | None = None
        self.cached = True  # what `is_cached` says
        self.can_sync_all = True
        self.others_bytes = 0  # of other programs, that wait to be written
        self.steps = 0
        self.syncs = 0
        self._cut_at: int | None = None
        self._cut_operation: str | None = None
        self._off = False
        self._faults: list[Fault] = []
        self._random = random.Random(seed)
        self._real = RealFiles()
        self._lock = threading.RLock()
        self._open: dict[int, tuple[File, str]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._root = _adopt(folder)

    # What a test does to it -------------------------------------------------------------------------------------------

    def cut_power_at(self, count: int, operation: str | None = None) -> None:
        """From the given number of operations on (1 is the next), all fail; the one at the cut may be half done.

        With `operation` (a method's name) only those count.
        """
        self._cut_at, self._cut_operation = count, operation

    def cut_power(self) -> None:
        self._off = True

    @property
    def is_off(self) -> bool:
        return self._off

    def fail(self, operation: str, error: OSError, *, name: str = "", times: int = 1) -> None:
        """The next operations of that kind (the method's name) on paths that contain `name` raise the error."""
        self._faults.append(Fault(operation, error, name, times))

    def mend(self) -> None:
        """No faults from here on, and no limit. Power that was cut stays cut."""
        self._faults.clear()
        self._cut_at = self.capacity = None

    def crash(self, image: Path, seed: int) -> Path:
        """One state that a power cut now could leave, as a folder. The disk itself stays as it is."""
        with self._lock:
            _write_image(self._root, image, random.Random(seed))
        return image

    # What the program does on it --------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> int:
        with self._lock:
            self._step("create" if create else "open", path)
            fd = self._real.open(path, create=create)
            folder, name = self._place(path)
            if create:
                self._rename(folder, NameChange(None, name, File()))
            node = folder.names[name]
            assert isinstance(node, File)
            self._open[fd] = (node, path)
            try:
                self._cut_if_due()
            except PowerCut:
                self.close(fd)
                raise
            return fd

    def close(self, fd: int) -> None:
        with self._lock:
            self._open.pop(fd, None)
            self._real.close(fd)

    def read(self, fd: int, size: int, position: int) -> bytes:
        with self._lock:
            self._step("read", self._open[fd][1])
            return self._real.read(fd, size, position)

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        with self._lock:
            file, path = self._open[fd]
            self._step("write", path)
            data = b"".join(bytes(buffer) for buffer in buffers)
            data = data[: self._room(fd, position, len(data))]
            self._real.write(fd, (data,), position)
            file.changes.append(Write(position, data))
            self._cut_if_due()
            return len(data)

    def size(self, fd: int) -> int:
        with self._lock:
            self._step("size", self._open[fd][1])
            return self._real.size(fd)

    def is_there(self, path: str) -> bool:
        """What has a name is not asked of the disk, but of the kernel, which remembers: no step, and never refused."""
        return self._real.is_there(path)

    def is_same(self, fd: int, path: str) -> bool:
        return self._real.is_same(fd, path)

    def truncate(self, fd: int, size: int) -> None:
        with self._lock:
            file, path = self._open[fd]
            self._step("truncate", path)
            self._real.truncate(fd, size)
            file.changes.append(Truncate(size))
            self._cut_if_due()

    def sync(self, fd: int) -> None:
        with self._lock:
            file, path = self._open[fd]
            self.syncs += 1
            try:
                self._step("sync", path)
            except OSError:
                if not self._off:
                    file.durable = _survivor(file, self._random)
                    file.changes.clear()
                raise
            self._cut_if_due()
            _settle(file)

    def sync_all(self, path: str) -> None:
        with self._lock:
            self._step("sync_all", path)
            self._cut_if_due()
            for node in _nodes(self._root):
                _settle(node)

    def sync_folder(self, path: str) -> None:
        with self._lock:
            self._step("sync_folder", path)
            self._cut_if_due()
            _settle(self._find(path))

    def list(self, path: str) -> list[Entry]:
        with self._lock:
            self._step("list", path)
            return self._real.list(path)

    def make_folder(self, path: str) -> None:
        with self._lock:
            self._step("make_folder", path)
            self._real.make_folder(path)
            folder, name = self._place(path)
            if name not in folder.names:
                self._rename(folder, NameChange(None, name, Folder()))
            self._cut_if_due()

    def remove_folder(self, path: str) -> None:
        with self._lock:
            self._step("remove_folder", path)
            self._real.remove_folder(path)
            folder, name = self._place(path)
            self._rename(folder, NameChange(name, None, None))
            self._cut_if_due()

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            self._step("rename", source)
            self._real.rename(source, target)
            folder, old = self._place(source)
            other, new = self._place(target)
            assert folder is other, "a rename between folders is not simulated"
            self._rename(folder, NameChange(old, new, folder.names[old]))
            self._cut_if_due()

    def remove(self, path: str) -> None:
        with self._lock:
            self._step("remove", path)
            self._real.remove(path)
            folder, name = self._place(path)
            self._rename(folder, NameChange(name, None, None))
            self._cut_if_due()

    def is_cached(self, fd: int, position: int, size: int) -> bool:
        return self.cached

    def read_cached(self, fd: int, size: int, position: int) -> bytes | None:
        data = self.read(fd, size, position) if self.cached else None
        return data if data is not None and len(data) == size else None

    def forget(self, fd: int, position: int, size: int) -> None:
        """The page cache is not simulated: what was read can be read again."""

    def free_bytes(self, path: str) -> int:
        capacity = self.capacity  # once: another thread may mend the disk
        return self._real.free_bytes(path) if capacity is None else max(0, capacity - self._used())

    def unwritten_bytes(self) -> int:
        return self.others_bytes

    # Inside -----------------------------------------------------------------------------------------------------------

    def _step(self, operation: str, path: str) -> None:
        if self._off:
            raise PowerCut
        self.steps += 1
        if self._cut_at is not None and self._cut_operation in (None, operation):
            self._cut_at -= 1
        for fault in self._faults:
            if fault.times > 0 and fault.operation == operation and fault.name in path:
                fault.times -= 1
                raise fault.error

    def _cut_if_due(self) -> None:
        if self._cut_at is not None and self._cut_at <= 0:
            self._off = True
            raise PowerCut

    def _find(self, path: str) -> Folder:
        node: Folder | File = self._root
        for name in Path(path).relative_to(self.folder).parts:
            assert isinstance(node, Folder)
            node = node.names[name]
        assert isinstance(node, Folder)
        return node

    def _place(self, path: str) -> tuple[Folder, str]:
        return self._find(str(Path(path).parent)), Path(path).name

    def _rename(self, folder: Folder, change: NameChange) -> None:
        folder.changes.append(change)
        _apply_name(folder.names, change)

    def _used(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def _room(self, fd: int, position: int, size: int) -> int:
        """How much of a write fits: all, a part, or an error when nothing does."""
        capacity = self.capacity  # once: another thread may mend the disk
        if capacity is None:
            return size
        growth = max(0, position + size - self._real.size(fd))
        fits = size - max(0, growth - max(0, capacity - self._used()))
        if fits <= 0:
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        return fits


def flip_bit(path: Path, byte: int, bit: int = 0) -> None:
    """Rot: one bit of a file is not what was written."""
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)


def _adopt(folder: Path) -> Folder:
    names: dict[str, File | Folder] = {
        path.name: _adopt(path) if path.is_dir() else File(path.read_bytes()) for path in sorted(folder.iterdir())
    }
    return Folder(names, dict(names))


def _nodes(folder: Folder) -> Iterator[File | Folder]:
    yield folder
    for node in folder.names.values():
        if isinstance(node, Folder):
            yield from _nodes(node)
        else:
            yield node


def _settle(node: File | Folder) -> None:
    if isinstance(node, Folder):
        node.durable = dict(node.names)
    else:
        node.durable = reduce(_change, node.changes, node.durable)
    node.changes.clear()


def _apply_name(names: dict[str, File | Folder], change: NameChange) -> None:
    if change.old is not None:
        names.pop(change.old, None)
    if change.new is not None and change.node is not None:
        names[change.new] = change.node


def _change(content: bytes, change: Write | Truncate) -> bytes:
    if isinstance(change, Truncate):
        return content[: change.size].ljust(change.size, b"\0")
    return (
        content[: change.position].ljust(change.position, b"\0")
        + change.data
        + content[change.position + len(change.data) :]
    )


def _survivor(file: File, rng: random.Random) -> bytes:
    """A content that the disk may have: for every page one of its states, a length that the file had."""
    if not file.changes:
        return file.durable
    states = list(accumulate(file.changes, _change, initial=file.durable))
    last = file.changes[-1]
    if isinstance(last, Write) and rng.random() < TEAR_CHANCE:
        torn = Write(last.position, last.data[: rng.randrange(len(last.data) + 1)])
        states[-1] = _change(states[-2], torn)
    chance = rng.choice(KEEP_CHANCES)

    def pick() -> bytes:
        return rng.choice(states) if chance == 0.5 else states[-1 if chance else 0]

    size = len(pick())
    pages = (pick()[start : start + PAGE].ljust(PAGE, b"\0") for start in range(0, size, PAGE))
    return b"".join(pages)[:size]


def _write_image(folder: Folder, image: Path, rng: random.Random) -> None:
    image.mkdir(parents=True, exist_ok=True)
    chance = rng.choice(KEEP_CHANCES)
    names = dict(folder.durable)
    for change in folder.changes:
        if rng.random() < chance:
            _apply_name(names, change)
    for name, node in sorted(names.items()):
        if isinstance(node, Folder):
            _write_image(node, image / name, rng)
        else:
            (image / name).write_bytes(_survivor(node, rng))
