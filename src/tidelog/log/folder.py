"""The data folder as a whole: who serves it, what format it has, which partitions are in it, and how it was left.

    DIR/lock                      locked (flock) by the one process that serves the folder; its content is that pid
    DIR/format                    one line of JSON: {"v": 1, "cluster_id": "..."}; written at the first start
    DIR/clean                     one line of JSON: {"v": 1, "partitions": {"ID-INDEX": mark, ...}}; only while stopped;
                                  a mark of null: the partition must be recovered all the same; then a line
                                  "crc 8a3fe1c0", the CRC-32C of the first line in hex
    DIR/ID-INDEX/                 one partition, by its topic's id in hex: a topic made anew has a folder of its own
    DIR/ID-INDEX.orphaned/        one with records that no topic knew when a broker started; `tidelog repair adopt`
                                  gives it back, nobody else touches it
    DIR/TOPIC.OFFSET.fold         a snapshot of an internal topic (written by the broker)
    DIR/backup.deleted/           second names of files, while a backup is taken, which locks it
    DIR/shunning                  while a restore takes excised records out: no broker starts

States of `clean`, and who sets them: `leave` writes it after everything is synced; `take_marks` removes it,
durably, before anything else is written. So a mark that is there is true, and after an unclean stop there is none:
every partition is then recovered when it is opened.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from contextlib import suppress
from json import JSONDecodeError, dumps, loads
from typing import Any, NamedTuple

from tidelog.errors import DataFolderError
from tidelog.log.clean_mark import CleanMark
from tidelog.log.files import OWNER_ONLY, TEMPORARY, Files, read_file, remove_files, replace_file
from tidelog.log.names import parse_name, partition_name
from tidelog.log.seal import sealed_json, unsealed_json
from tidelog.log.segment import DELETED_SUFFIX

VERSION = 1
LOCK, FORMAT, CLEAN = "lock", "format", "clean"
BACKUP = "backup" + DELETED_SUFFIX
ORPHANED_SUFFIX = ".orphaned"
SHUNNING = "shunning"
EXPECTED = (LOCK, FORMAT + TEMPORARY, "lost+found")  # in a folder that was never begun


class Contents(NamedTuple):
    """Partitions by their topic's id and their index: those that are in use, and those that were set aside."""

    partitions: list[tuple[bytes, int]]
    orphaned: list[tuple[bytes, int]]


class DataFolder:
    def __init__(self, path: str, files: Files) -> None:
        self.path = path.rstrip("/") or "/"
        self._files = files
        self._lock = -1
        self.cluster_id = ""

    def open(self) -> None:
        """Makes it if it is new, locks it, and checks that it is ours to write."""
        self._files.make_folder(self.path)
        self._take_lock()
        try:
            self._check_format()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def refuse_half_restored(self) -> None:
        """A restore that takes excised records out (broker/excision/shunning.py) was killed."""
        if self._files.is_there(f"{self.path}/{SHUNNING}"):
            raise DataFolderError(
                f"{self.path} was being restored, and has records that are to be taken out; remove it and restore again"
            )

    # Whose it is ------------------------------------------------------------------------------------------------------

    def _take_lock(self) -> None:
        lock = os.open(f"{self.path}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise DataFolderError(
                f"{self.path} is served by another broker, process {holder}; stop that one, or give this one a folder"
                " of its own with --data"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)
        self._lock = lock

    def _check_format(self) -> None:
        if not self.read_format():
            self._begin()

    def read_format(self) -> bool:
        """False when there is none yet; raises when it is not ours to read."""
        content = read_file(self._files, f"{self.path}/{FORMAT}")
        if content is None:
            return False
        found = _parse(content, f"{self.path}/{FORMAT}")
        if found["v"] > VERSION:
            raise DataFolderError(
                f"{self.path} has format version {found['v']} and this Tidelog knows up to {VERSION}; use the newer one"
            )
        if not isinstance(found.get("cluster_id"), str):
            raise DataFolderError(f"{self.path}/{FORMAT} is damaged; restore the data folder from a backup")
        self.cluster_id = found["cluster_id"]
        return True

    def _begin(self) -> None:
        foreign = [name for name, _ in self._files.list(self.path) if name not in EXPECTED]
        if foreign:
            raise DataFolderError(
                f"{self.path} is not empty and not a data folder: it has {', '.join(sorted(foreign)[:3])} and no file"
                f" {FORMAT!r}; give another folder with --data"
            )
        from base64 import urlsafe_b64encode

        # The folder's own name must last before anything in it can.
        self._files.sync_folder(os.path.dirname(os.path.abspath(self.path)))  # noqa: PTH100, PTH120 (no links resolved)
        self.cluster_id = urlsafe_b64encode(os.urandom(16))[:22].decode()
        content = dumps({"v": VERSION, "cluster_id": self.cluster_id}) + "\n"
        replace_file(self._files, f"{self.path}/{FORMAT}", content.encode())

    # How it was left --------------------------------------------------------------------------------------------------

    def take_marks(self) -> dict[str, CleanMark | None]:
        """What each partition was like at a clean stop, by the name of its folder; nothing after an unclean one."""
        path = f"{self.path}/{CLEAN}"
        content = read_file(self._files, path)
        if content is None:
            return {}
        marks = _parse_marks(content, path)
        self._files.remove(path)
        self._files.sync_folder(self.path)
        return marks

    def read_marks(self) -> dict[str, CleanMark | None]:
        """The same, and they stay."""
        path = f"{self.path}/{CLEAN}"
        content = read_file(self._files, path)
        return _parse_marks(content, path) if content is not None else {}

    def leave(self, marks: Mapping[str, CleanMark | None]) -> None:
        """After the last write: the next start need not look at these partitions before they are used."""
        self._files.sync_all(self.path)
        replace_file(self._files, f"{self.path}/{CLEAN}", sealed_json({"v": VERSION, "partitions": marks}))

    # What is in it ----------------------------------------------------------------------------------------------------

    def partition(self, topic_id: bytes, index: int) -> str:
        return f"{self.path}/{partition_name(topic_id, index)}"

    def partitions(self) -> list[tuple[bytes, int]]:
        return self.contents().partitions

    def contents(self) -> Contents:
        found = Contents([], [])
        for name, _ in self._files.list(self.path):
            place = parse_name(name.removesuffix(ORPHANED_SUFFIX))
            if place is not None:
                (found.orphaned if name.endswith(ORPHANED_SUFFIX) else found.partitions).append(place)
        return found

    def set_aside(self, topic_id: bytes, index: int) -> str:
        """Under a name that no broker opens and none removes, durably; returns it."""
        path = self.partition(topic_id, index)
        self._files.rename(path, path + ORPHANED_SUFFIX)
        self._files.sync_folder(self.path)
        return path + ORPHANED_SUFFIX

    def bring_back(self, topic_id: bytes, index: int) -> None:
        """What was set aside has its name again. Not durable before the folder is synced."""
        path = self.partition(topic_id, index)
        self._files.rename(path + ORPHANED_SUFFIX, path)

    def remove_left_overs(self) -> None:
        """Folders of deleted partitions that a crash left half removed. Whoever else removes one does not matter."""
        for name, _ in self._files.list(self.path):
            if name.endswith(DELETED_SUFFIX) and not (name == BACKUP and _is_locked(f"{self.path}/{name}")):
                gone = f"{self.path}/{name}"
                with suppress(FileNotFoundError):
                    remove_files(self._files, [f"{gone}/{entry.name}" for entry in self._files.list(gone)])
                    self._files.remove_folder(gone)

    def free_bytes(self) -> int:
        return self._files.free_bytes(self.path)


def _parse_marks(content: bytes, path: str) -> dict[str, CleanMark | None]:
    """Damaged marks are as good as none: every partition is then looked at."""
    found = unsealed_json(content)
    if not isinstance(found, dict) or not isinstance(found.get("v"), int):
        return {}
    if found["v"] > VERSION:
        raise DataFolderError(f"{path} has format version {found['v']}, newer than {VERSION}; use the newer Tidelog")
    try:
        return {name: CleanMark(*mark) if mark is not None else None for name, mark in found["partitions"].items()}
    except (KeyError, TypeError, AttributeError):
        return {}


def backup_is_under_way(data: str) -> bool:
    """Whether old files of the data folder may have second names in it."""
    try:
        return _is_locked(f"{data}/{BACKUP}")
    except FileNotFoundError:
        return False


def _is_locked(folder: str) -> bool:
    """Whether a backup is under way, which holds files there by second names."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _parse(content: bytes, path: str) -> dict[str, Any]:
    try:
        found = loads(content)
    except (JSONDecodeError, UnicodeDecodeError) as error:
        raise DataFolderError(f"{path} is damaged: {error}; restore the data folder from a backup") from error
    if not isinstance(found, dict) or not isinstance(found.get("v"), int):
        raise DataFolderError(f"{path} is not what Tidelog writes there; restore the data folder from a backup")
    return found
