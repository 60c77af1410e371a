"""Files of a data folder as they were at a cut, held so that the broker's own housekeeping cannot take them away.

Retention and compaction remove segments, snapshots are replaced, topics are deleted, all while a backup is taken. So
each file that is wanted gets a second name in the folder `backup.deleted` of the data folder, in one go, and is copied
from there. Where the file system has no hard links it is held open instead. The folder is locked meanwhile; once it is
not, because the backup was killed, the next start of the broker removes it as any left-over, and so does the next
backup.

What was chosen must belong to the cut:

- segments with a record below the end. Those that retention took since are not there any more: then the partition
  begins later, as it does for everybody.
- of segments that compaction has replaced, the new ones: what it knew was all below the cut, for it rests since.
- snapshots up to the end, and of an internal topic one that reaches its start.

Where that is not so, because a topic was deleted meanwhile say, a newer cut is needed (`Again`).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from errno import EMLINK, ENOSYS, EOPNOTSUPP, EPERM, EXDEV
from pathlib import Path
from typing import NamedTuple

from tidelog.broker.topics import ACCESS_TOPIC, EXCISIONS_TOPIC, GROUPS_TOPIC, TOPICS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.errors import BackupError
from tidelog.log import snapshot
from tidelog.log.clean_mark import CleanMark
from tidelog.log.facts import FACTS_NAME, Facts, unpack
from tidelog.log.files import OFFSET_DIGITS, OWNER_ONLY_FOLDER, Files, offset_of
from tidelog.log.folder import BACKUP
from tidelog.log.identity import IDENTITY_NAME
from tidelog.log.names import partition_name
from tidelog.log.segment import INDEX_SUFFIX, LOG_SUFFIX, Name, newest

FOLD_SUFFIX = ".fold"
NO_LINKS = (EPERM, EOPNOTSUPP, ENOSYS, EMLINK, EXDEV)
TRIES = 20  # to find a folder's files all there, while retention removes some

FOLDED = {
    partition_name(topic.topic_id, 0): topic.name
    for topic in (TOPICS_TOPIC, GROUPS_TOPIC, ACCESS_TOPIC, TRANSACTIONS_TOPIC, EXCISIONS_TOPIC)
}


class Again(Exception):
    """What the cut speaks of is not there any more: a newer one is needed."""


class Pin(NamedTuple):
    """A file that stays as it is; `fd` where it is held open, else -1 and it has the name `path`."""

    path: str
    fd: int = -1

    def open(self) -> int:
        """To be closed by the caller; for reading alone."""
        return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC) if self.fd < 0 else os.dup(self.fd)

    def read(self, size: int | None = None) -> bytes:
        """The beginning of it, or the whole of a small file."""
        fd = self.open()
        try:
            return os.pread(fd, os.fstat(fd).st_size if size is None else size, 0)
        finally:
            os.close(fd)


class Pinned(NamedTuple):
    """One partition: its segments by name, the oldest first, and the small files beside them."""

    folder: str
    mark: CleanMark
    segments: dict[Name, Pin]
    others: dict[str, Pin]


class Pins:
    """`with Pins(data) as pins`: one backup of a data folder at a time."""

    def __init__(self, data: str, files: Files) -> None:
        self._data = data
        self._files = files
        self._folder = f"{data}/{BACKUP}"
        self._lock = -1
        self._held: list[int] = []
        self._count = 0

    def __enter__(self) -> Pins:
        Path(self._folder).mkdir(exist_ok=True, mode=OWNER_ONLY_FOLDER)
        self._lock = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise BackupError(f"another backup of {self._data} is under way; wait for its end") from None
        self.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()
        with suppress(FileNotFoundError):
            Path(self._folder).rmdir()
        os.close(self._lock)

    def clear(self) -> None:
        for fd in self._held:
            os.close(fd)
        self._held.clear()
        with suppress(FileNotFoundError):  # somebody else has removed it
            for entry in self._files.list(self._folder):
                Path(f"{self._folder}/{entry.name}").unlink(missing_ok=True)

    def pin_all(self, marks: dict[str, CleanMark]) -> tuple[list[Pinned], dict[str, Pin]]:
        """All partitions, and the snapshots of internal topics by name."""
        folds = self._pin_folds(marks)
        pinned = [self._pin_partition(folder, mark) for folder, mark in sorted(marks.items())]
        for one in pinned:
            self._check_fold(one, folds)
        return pinned, folds

    # One partition ----------------------------------------------------------------------------------------------------

    def _pin_partition(self, folder: str, mark: CleanMark) -> Pinned:
        for _ in range(TRIES):
            try:
                names = [entry.name for entry in self._files.list(f"{self._data}/{folder}")]
            except FileNotFoundError:
                raise Again(f"{folder} was deleted") from None
            try:
                return self._pin_names(folder, mark, names)
            except FileNotFoundError:
                continue
        raise Again(f"files of {folder} go faster than they can be held")

    def _pin_names(self, folder: str, mark: CleanMark, names: list[str]) -> Pinned:
        """The facts first: they must not know of more than what the segments have."""
        others = {name: self._pin(folder, name) for name in (FACTS_NAME, IDENTITY_NAME) if name in names}
        parsed = [name for name in map(Name.parse, names) if name is not None]
        chosen = [name for name in newest(parsed) if name.base_offset < mark.end_offset]
        segments = {name: self._pin(folder, f"{name}{LOG_SUFFIX}") for name in chosen}
        small = [name for name in names if (offset_of(name, snapshot.SUFFIX) or 0) <= mark.end_offset]
        wanted = [name for name in small if offset_of(name, snapshot.SUFFIX) is not None]
        wanted += [index for name in chosen[:-1] if (index := f"{name}{INDEX_SUFFIX}") in names]
        others.update({name: self._pin(folder, name) for name in wanted})
        return Pinned(folder, mark, segments, others)

    # Snapshots of internal topics -------------------------------------------------------------------------------------

    def _pin_folds(self, marks: dict[str, CleanMark]) -> dict[str, Pin]:
        ends = {FOLDED[folder]: mark.end_offset for folder, mark in marks.items() if folder in FOLDED}
        folds = {}
        for entry in self._files.list(self._data):
            topic, offset = fold_of(entry.name)
            if topic in ends and offset <= ends[topic]:
                try:
                    folds[entry.name] = self._pin(".", entry.name)
                except FileNotFoundError:
                    continue  # a newer one took its place; whether one is left is looked at below
        return folds

    def _check_fold(self, pinned: Pinned, folds: Iterable[str]) -> None:
        topic = FOLDED.get(pinned.folder)
        facts = facts_of(pinned)
        first = min((name.base_offset for name in pinned.segments), default=pinned.mark.end_offset)
        start = max(first, facts.start_offset if facts is not None else 0)
        reaching = [name for name in folds if fold_of(name)[0] == topic and fold_of(name)[1] >= start]
        if topic is not None and start > 0 and not reaching:
            raise Again(f"{topic} was cut short")

    def _pin(self, folder: str, name: str) -> Pin:
        source = f"{self._data}/{folder}/{name}"
        self._count += 1
        target = f"{self._folder}/{self._count}"
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            self._held.append(os.open(source, os.O_RDONLY | os.O_CLOEXEC))
            return Pin(source, self._held[-1])
        return Pin(target)


def facts_of(pinned: Pinned) -> Facts | None:
    """None when there are none, or the file is damaged."""
    pin = pinned.others.get(FACTS_NAME)
    return None if pin is None else unpack(pin.read(), f"{pinned.folder}/{FACTS_NAME}")


def fold_of(name: str) -> tuple[str, int]:
    """The topic and the offset of a snapshot's file; no topic when it is not one."""
    topic, _, digits = name.removesuffix(FOLD_SUFFIX).rpartition(".")
    if not name.endswith(FOLD_SUFFIX) or len(digits) != OFFSET_DIGITS or not digits.isdecimal():
        return "", -1
    return topic, int(digits)
