"""Stages in files, where a task runs beside the driver: what is staged then goes through the broker once, not twice.

    LOCAL/tidelog-stages-<user>/<sink>/<micro-batch>.<run>.<task>.<random>

LOCAL is Spark's folder for scratch data (`spark.local.dir`). <sink> is a digest of the cluster's and the sink's names:
nothing that anybody chose is part of a path.

Rules:
- A task takes this road only if it sees the driver's files: the same machine, mounts and user (`machine`). Elsewhere,
  where the folder cannot be had or is somebody else's, and when the disk is full, it takes the topic.
- Nothing is synced: a stage that is lost fails the micro-batch, and Spark redoes it.
- A micro-batch that is committed takes all files of its sink up to it, whether it had any itself: nobody will read
  them. A task that fails takes its own. So what a killed query leaves goes with its next commit; and where it never
  comes to one, tasks of its next runs delete what is older than STALE_S, so that it does not fill the disk.
- A batch write has a folder of its own, and a query may never run again: whoever stages next deletes what is left of
  any sink after LEFT_S. That is as long as a topic keeps a stage: the other may be alive, and its tasks slow.
- Only files that are named as above are ours to delete.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.metadata import TopicPartition
from tidelog.record.codec import crc32c

if TYPE_CHECKING:
    from tidelog.spark.routing import Routed

STALE_S = 600  # of another run's file
LEFT_S = 86_400  # of another sink's
OF_BLOCKS = "blockmgr-"  # Spark tells workers the folder of its blocks, which lies in the one that was configured
BOOT = Path("/proc/sys/kernel/random/boot_id")
MOUNTS = Path("/proc/self/ns/mnt")
NAME = re.compile(r"([0-9]+)\.([^.]+)\.[0-9]+\.[^.]+")


class StagedBatch(NamedTuple):
    """Where a batch is staged, and what it is. `offset` is a record's in the topic, or a byte's in the file."""

    at: TopicPartition  # its target
    rows: int
    offset: int
    crc: int
    size: int = 0  # in a file


class Driver(NamedTuple):
    """What tasks are told of the driver: where it is, and which run of the query this is."""

    machine: str
    run: str


class Beside(NamedTuple):
    """What a task beside the driver needs to stage in files."""

    folder: Path
    run: str
    batch_id: int


class UpTo(NamedTuple):
    """A sink's folder, and the micro-batch with whose commit it is emptied."""

    folder: Path
    batch_id: int


class Named(NamedTuple):
    """What a file's name says."""

    batch_id: int
    run: str


def driver_here() -> Driver | None:
    """To be asked for in the driver."""
    here = machine()
    return None if here is None else Driver(here, os.urandom(8).hex())


def machine() -> str | None:
    """The same for all processes that see each other's files, and for no others; None where that is not known."""
    try:
        return f"{BOOT.read_text().strip()}/{MOUNTS.stat().st_ino}/{os.getuid()}"
    except (OSError, AttributeError):
        return None


def beside(driver: Driver | None, batch_id: int) -> Beside | None:
    """To be asked for in a task; None where it is not on the driver's machine."""
    if driver is None or driver.machine != machine():
        return None
    return Beside(local_folder(), driver.run, batch_id)


def local_folder() -> Path:
    told = Path(os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0])
    if told.name.startswith(OF_BLOCKS):
        return told.parent
    return told if told.is_absolute() else Path(tempfile.gettempdir())


def folder_of(local: Path, cluster_id: str | None, sink: str) -> Path:
    digest = sha256(f"{cluster_id}/{sink}".encode()).hexdigest()[:32]
    return local / f"tidelog-stages-{os.getuid()}" / digest


class FileStage:
    """Of one task. Each call may raise an OSError; what was added before is still there then."""

    def __init__(self, place: Beside, cluster_id: str | None, sink: str, task: int) -> None:
        folder = folder_of(place.folder, cluster_id, sink)
        for each in (folder.parent, folder):
            _have(each)
        _sweep(folder, place.run)
        self._number, name = tempfile.mkstemp(prefix=f"{place.batch_id}.{place.run}.{task}.", dir=folder)
        self.path = Path(name)
        self.places: list[StagedBatch] = []
        self._end = 0

    def add(self, batch: Routed) -> None:
        left = memoryview(batch.data)
        while left:
            left = left[os.pwrite(self._number, left, self._end + len(batch.data) - len(left)) :]
        self.places.append(StagedBatch(batch.at, batch.rows, self._end, crc32c(batch.data), len(batch.data)))
        self._end += len(batch.data)

    def finish(self) -> None:
        os.close(self._number)

    def discard(self) -> None:
        with suppress(OSError):
            os.close(self._number)
        remove([self.path])


def _have(folder: Path) -> None:
    """Somebody may have made it before us, in a folder that is everybody's: then it is not a place to stage in."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not this user's alone")


def read(path: Path, places: Sequence[StagedBatch]) -> Iterator[tuple[StagedBatch, bytearray]]:
    """An OSError where it is gone, or is not what was staged."""
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for place in places:
            data = bytearray(place.size)
            if os.preadv(number, [data], place.offset) != place.size or crc32c(data) != place.crc:
                raise OSError(f"{path} is not what was staged")
            yield place, data
    finally:
        os.close(number)


def remove(paths: Sequence[Path]) -> None:
    """And the folders, where nothing else is in them."""
    _unlink(paths)
    for folder in {path.parent for path in paths}:
        with suppress(OSError):
            folder.rmdir()


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def remove_up_to(ends: Iterable[UpTo]) -> None:
    """Files of micro-batches that are committed, and those of the same sinks that came before."""
    for folder, last in ends:
        remove([path for path, named in _ours(folder) if named.batch_id <= last])


def _sweep(own: Path, run: str) -> None:
    """A folder that becomes empty goes too, but not this sink's: another task may be about to use it."""
    now = time.time()
    _unlink(path for path, named in _ours(own) if named.run != run and _is_older(path, now - STALE_S))
    for folder in _inside(own.parent):
        if folder != own:
            remove([path for path, _ in _ours(folder) if _is_older(path, now - LEFT_S)])


def _is_older(path: Path, before: float) -> bool:
    try:
        return path.lstat().st_mtime < before
    except OSError:
        return False  # gone meanwhile


def _ours(folder: Path) -> Iterator[tuple[Path, Named]]:
    """A file system may have files of its own here, such as `.nfs0001`."""
    for path in _inside(folder):
        if found := NAME.fullmatch(path.name):
            yield path, Named(int(found[1]), found[2])


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
