"""Is a backup what its manifest says? Every file's size and checksum, every batch's checksum, every offset.

Nothing is written, and the folder may be on a disk that cannot be. A hole that the manifest tells of is not a fault of
the backup; it is told again. A file that the manifest does not know is one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tidelog.broker.backup import manifest as manifest_file
from tidelog.broker.backup.copying import find_holes
from tidelog.broker.backup.manifest import APPS, BackedUpPartition, Kept, Manifest
from tidelog.errors import DataFolderError
from tidelog.log import facts as facts_file
from tidelog.log.facts import FACTS_NAME, NO_FACTS, Facts
from tidelog.log.files import Files
from tidelog.log.header_block import HEADER_BLOCK, unpack_block
from tidelog.log.segment import Name
from tidelog.record.codec import crc32c

READ_WINDOW = 4 << 20

Progress = Callable[[int, int], None]


class BackupFault(NamedTuple):
    file: str
    what: str


class Verified(NamedTuple):
    manifest: Manifest
    faults: tuple[BackupFault, ...]


def verify(backup: str, files: Files, progress: Progress) -> Verified:
    backup = backup.rstrip("/") or "/"
    found = manifest_file.read(backup)
    check = _Verifying(f"{backup}/{found.tree}", files, progress, found)
    return Verified(found, tuple(check.run()))


class _Verifying:
    def __init__(self, tree: str, files: Files, progress: Progress, manifest: Manifest) -> None:
        self._tree = tree
        self._files = files
        self._progress = progress
        self._manifest = manifest
        self._total = manifest.bytes
        self._done = 0

    def run(self) -> Iterator[BackupFault]:
        for one in self._manifest.partitions:
            faults = [fault for kept in one.files for fault in self._check_file(one.folder, kept)]
            yield from faults or self._check_batches(one)
        for kept in self._manifest.folds:
            yield from self._check_file(".", kept)
        for kept in self._apps:
            yield from self._check_file(APPS, kept)
        yield from self._check_strangers()

    @property
    def _apps(self) -> tuple[Kept, ...]:
        return () if self._manifest.apps is None else self._manifest.apps.files

    def _check_file(self, folder: str, kept: Kept) -> Iterator[BackupFault]:
        name = f"{folder}/{kept.name}".removeprefix("./")
        try:
            fd = os.open(f"{self._tree}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            yield BackupFault(name, "it is missing")
            return
        try:
            crc = position = 0
            while data := os.pread(fd, READ_WINDOW, position):
                crc = crc32c(data, crc)
                position += len(data)
                self._done += len(data)
                self._progress(self._done, self._total)
        finally:
            os.close(fd)
        if position != kept.size:
            yield BackupFault(name, f"it has {position} bytes and had {kept.size}")
        elif crc != kept.crc:
            yield BackupFault(name, "its checksum is not what it was")

    def _check_batches(self, one: BackedUpPartition) -> Iterator[BackupFault]:
        """The files are what they were; so this finds what was wrong already when they were copied."""
        facts = self._facts(one)
        segments = sorted(name for kept in one.files if (name := Name.parse(kept.name)) is not None)
        told = set(one.holes)
        for number, name in enumerate(segments, 1):
            end = segments[number].base_offset if number < len(segments) else one.mark.end_offset
            path = f"{self._tree}/{one.folder}/{name}.log"
            head = unpack_block(_head(path), path)
            if head is None or head.base_offset != name.base_offset:
                yield BackupFault(f"{one.folder}/{name}.log", "it does not begin as a segment does")
            for hole in find_holes(self._files, path, name, end, facts):
                if hole not in told:
                    offsets = f"offsets {hole.base_offset} to {hole.end_offset - 1}"
                    yield BackupFault(f"{one.folder}/{name}.log", f"{offsets} are damaged ({hole.reason})")

    def _facts(self, one: BackedUpPartition) -> Facts:
        path = Path(self._tree, one.folder, FACTS_NAME)
        if not path.exists():
            return NO_FACTS
        facts = facts_file.unpack(path.read_bytes(), str(path))
        if facts is None:
            raise DataFolderError(f"{path} is damaged; take the backup again")
        return facts

    def _check_strangers(self) -> Iterator[BackupFault]:
        known = {f"{one.folder}/{kept.name}" for one in self._manifest.partitions for kept in one.files}
        known |= {kept.name for kept in self._manifest.folds} | {f"{APPS}/{kept.name}" for kept in self._apps}
        for path in sorted(Path(self._tree).rglob("*")):
            name = path.relative_to(self._tree).as_posix()
            if path.is_file() and name not in known:
                yield BackupFault(name, "it is not of this backup")


def _head(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, HEADER_BLOCK, 0)
    finally:
        os.close(fd)
