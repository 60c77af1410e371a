"""Taking a backup of a data folder: beside the broker that serves it, or of a stopped one.

    1. the folder of the backup is locked; what a killed one has left in it is removed
    2. a cut is asked for, and every file that belongs to it is pinned; again, if something had gone by then. What goes
       with the log (`companion.py`) is asked before and behind, and says what of it belongs to that cut
    3. everything is copied or linked into a new tree, and checked
    4. it is synced, the tree gets its name, and the manifest is replaced: only now it is the backup
    5. the tree of the backup before is removed

Whatever goes wrong before 4 leaves the backup before as it was. Nothing in the data folder changes but for the names in
`backup.deleted`, which go at the end, and the two files of the cut.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tidelog import __version__
from tidelog.broker.backup import manifest as manifest_file
from tidelog.broker.backup.companion import Belonging, Companion, CutLog
from tidelog.broker.backup.copying import NOTHING_BEFORE, Before, Copier
from tidelog.broker.backup.cut import HOLD_WITHIN_S, Cut, StoppedFolder, asked, check_folder, server_of
from tidelog.broker.backup.manifest import APPS, MANIFEST, TEMPORARY, TREE, Apps, Kept, Manifest
from tidelog.broker.backup.pins import Again, Pin, Pinned, Pins
from tidelog.errors import BackupError
from tidelog.log.files import Files
from tidelog.log.folder import ORPHANED_SUFFIX, DataFolder
from tidelog.log.names import partition_name

ROUNDS = 10
SCRATCH = f"{TREE}apps{TEMPORARY}"

Progress = Callable[[int, int], None]


class Taken(NamedTuple):
    manifest: Manifest
    taken_over: int  # bytes that the backup before had already
    seconds: float
    left_out: tuple[str, ...] = ()  # folders that have no topic: what they belong to is not known


class HeldCut(NamedTuple):
    """All that belongs to one cut, and stays as it is until it is copied."""

    cut: Cut
    pinned: list[Pinned]
    folds: dict[str, Pin]
    apps: Belonging | None


def take(data: str, target: str, files: Files, progress: Progress, companion: Companion | None = None) -> Taken:
    """`progress` is called with the bytes that are done, and how many there are."""
    begun = time.monotonic()
    data, target = data.rstrip("/") or "/", target.rstrip("/") or "/"
    check_folder(data, files)
    if Path(target).resolve().is_relative_to(Path(data).resolve()):
        raise BackupError(f"{target} is in the data folder {data}; a backup needs a folder of its own")
    with _Target(target, files) as folder:
        try:
            made = _take(data, folder, files, progress, companion)
        finally:
            if companion is not None:
                companion.release()
                _remove(folder.scratch)
    aside = DataFolder(data, files).contents().orphaned
    left_out = tuple(sorted(partition_name(*place) + ORPHANED_SUFFIX for place in aside))
    return made._replace(seconds=time.monotonic() - begun, left_out=left_out)


def _take(data: str, folder: _Target, files: Files, progress: Progress, companion: Companion | None) -> Taken:
    if server_of(data) is not None:
        with Pins(data, files) as pins:
            held = _pin_running(data, folder.scratch, files, pins, companion)
            return _Taking(folder, files, progress).run(DataFolder(data, files), held)
    with StoppedFolder(data, files) as cut, Pins(data, files) as pins:
        held = _pin_stopped(cut, folder.scratch, pins, companion)
        return _Taking(folder, files, progress).run(DataFolder(data, files), held)


def _pin_running(data: str, scratch: str, files: Files, pins: Pins, companion: Companion | None) -> HeldCut:
    why = ""
    for _ in range(ROUNDS):
        try:
            if companion is not None:
                companion.before_cut(scratch)
            with asked(data, files) as cut:
                since = time.monotonic()
                if companion is not None:
                    companion.after_cut()
                pinned, folds = pins.pin_all(cut.marks)
                if time.monotonic() - since > HOLD_WITHIN_S:
                    raise Again(f"it took more than {HOLD_WITHIN_S:g} s to get hold of all files")
            return HeldCut(cut, pinned, folds, _belonging(companion, cut, pinned))
        except Again as again:
            why = str(again)
            pins.clear()
    raise BackupError(f"too much changes while the backup is taken: {why}; try again when less is going on")


def _pin_stopped(cut: Cut, scratch: str, pins: Pins, companion: Companion | None) -> HeldCut:
    """The log stays as it is, but the companion may learn of more in it, and is asked again."""
    pinned, folds = pins.pin_all(cut.marks)
    why = ""
    for _ in range(ROUNDS):
        if companion is not None:
            companion.before_cut(scratch)
            companion.after_cut()
        try:
            return HeldCut(cut, pinned, folds, _belonging(companion, cut, pinned))
        except Again as again:
            why = str(again)
    raise BackupError(f"what goes with the log of the stopped broker is not there: {why}; start it, and try again")


def _belonging(companion: Companion | None, cut: Cut, pinned: list[Pinned]) -> Belonging | None:
    if companion is None:
        return None
    found = companion.belonging(CutLog(cut, pinned))
    if found.missing:
        raise Again(found.missing)
    return found


class _Target:
    """The folder of a backup: ours alone, made if it is new, and clean of what a killed backup has left."""

    def __init__(self, path: str, files: Files) -> None:
        self.path = path
        self._files = files
        self._lock = -1
        self.before: Manifest | None = None

    def __enter__(self) -> _Target:
        self._files.make_folder(self.path)
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._look()
        except BlockingIOError:
            os.close(self._lock)
            raise BackupError(f"another backup into {self.path} is under way; wait for its end") from None
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def _look(self) -> None:
        names = {path.name for path in Path(self.path).iterdir()}
        foreign = sorted(name for name in names if not name.startswith((TREE, MANIFEST)) and name != "lost+found")
        if foreign:
            raise BackupError(f"{self.path} is not empty and not a backup: it has {foreign[0]}; give another folder")
        if MANIFEST in names:
            self.before = manifest_file.read(self.path)
        for name in names - {MANIFEST, self.before.tree if self.before is not None else ""}:
            _remove(f"{self.path}/{name}")

    @property
    def scratch(self) -> str:
        """For a companion's own copies; what a killed backup leaves of it is removed as a tree is."""
        return f"{self.path}/{SCRATCH}"

    @property
    def next_tree(self) -> str:
        number = int(self.before.tree.removeprefix(TREE)) + 1 if self.before is not None else 1
        return f"{TREE}{number}"


class _Taking:
    """One backup under way."""

    def __init__(self, target: _Target, files: Files, progress: Progress) -> None:
        self._target = target
        self._files = files
        self._progress = progress
        self._total = self._done = 0

    def run(self, data: DataFolder, held: HeldCut) -> Taken:
        data.read_format()
        before = self._target.before
        if before is not None and before.cluster_id != data.cluster_id:
            raise BackupError(
                f"{self._target.path} is a backup of cluster {before.cluster_id} and {data.path} is {data.cluster_id};"
                " give another folder"
            )
        self._total = sum(pinned_bytes(one) for one in held.pinned)
        tree = f"{self._target.path}/{self._target.next_tree}{TEMPORARY}"
        try:
            self._files.make_folder(tree)
            copier = Copier(self._files, tree, self._before(), held.cut.at_ms, self._tell)
            made = self._copy(copier, data.cluster_id, held)
            self._publish(tree, made)
        except FileNotFoundError as error:
            _remove(tree)
            raise BackupError(f"{error.filename} is gone; did somebody else remove it? try again") from error
        except BaseException:
            _remove(tree)
            raise
        return Taken(made, copier.taken_over, 0.0)

    def _before(self) -> Before:
        before = self._target.before
        if before is None:
            return NOTHING_BEFORE
        kept = {one.folder: {file.name: file for file in one.files} for one in before.partitions}
        holes = {one.folder: one.holes for one in before.partitions}
        return Before(f"{self._target.path}/{before.tree}", kept, holes)

    def _copy(self, copier: Copier, cluster_id: str, held: HeldCut) -> Manifest:
        partitions = []
        for one in held.pinned:
            topic = held.cut.topics[one.folder.partition("-")[0]]
            partitions.append(copier.copy(one).named(one.folder, topic))
        partitions.sort(key=lambda one: (one.topic, one.partition))
        kept: list[Kept] = [copier.copy_file(pin, ".", name) for name, pin in sorted(held.folds.items())]
        apps = None
        if held.apps is not None:
            those = [copier.take(path, APPS, name) for name, path in sorted(held.apps.files.items())]
            apps = Apps(dict(held.apps.about), tuple(those))
        found = (tuple(partitions), tuple(kept), apps)
        return Manifest(__version__, cluster_id, held.cut.at_ms, self._target.next_tree, *found)

    def _publish(self, tree: str, made: Manifest) -> None:
        folder = self._target.path
        self._files.sync_all(folder)
        self._files.rename(tree, f"{folder}/{made.tree}")
        self._files.sync_folder(folder)
        manifest_file.write(self._files, folder, made)
        if self._target.before is not None:
            _remove(f"{folder}/{self._target.before.tree}")

    def _tell(self, size: int) -> None:
        self._done += size
        self._progress(self._done, max(self._done, self._total))


def pinned_bytes(pinned: Pinned) -> int:
    total = 0
    for pin in pinned.segments.values():
        fd = pin.open()
        total += os.fstat(fd).st_size
        os.close(fd)
    return total


def _remove(path: str) -> None:
    """Whatever it is; what cannot be removed now is removed by the next backup."""
    if Path(path).is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        Path(path).unlink(missing_ok=True)
