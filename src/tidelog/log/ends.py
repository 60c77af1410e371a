"""Where each partition begins and ends, written down outside of its own folder: the file `ends` in the data folder.

A partition whose files are gone, wholly or in part, cannot say so itself: it looks like a new one, or like a shorter
one. So the data folder has a table of all partitions that ever had a record. Lines of text, each with the CRC-32C of
what stands before " crc " in it:

    tidelog ends 1 crc 5d7a0c11
    {"5f5f...6373-0":[0,12,0],"8f3c...01aa-2":[100,294,1]} crc 8a3fe1c0       [start offset, end offset, leader epoch]
    {"8f3c...01aa-2":[100,300,1],"77e0...9b10-0":null} crc 0b14d2f7           a later line counts; null: it is deleted

Rules:
- A value is a promise: records up to the end were synced before it was written, and they are there still, but for what
  lies below the start. So it never says too much, and lags behind by about a second of writes.
- The start may lag behind further. What the partition's own file of facts says is also a start: that was saved before
  the first of its segments was removed.
- A line is appended and synced at once. When the file has grown it is written anew, whole, and takes the place of the
  old one; so does the first line after anything went wrong. A last line that is torn was never a promise.
- What cannot be read promises nothing. That is said (`fault`), and the table is built anew.

Any thread; `save` by one at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from json import JSONDecodeError, dumps, loads
from typing import NamedTuple

from tidelog.errors import DataFolderError
from tidelog.log.clean_mark import CleanMark
from tidelog.log.files import Files, read_file, replace_file, write_fully
from tidelog.log.seal import sealed, unsealed

ENDS_NAME = "ends"
VERSION = 1
TITLE = b"tidelog ends "
CRC = b" crc "
GROWN_BYTES = 1 << 20  # or this many times the table itself, if that is more:
GROWN_TIMES = 4


class End(NamedTuple):
    """Records from `start_offset` up to and without `end_offset`, the last of them in `leader_epoch`."""

    start_offset: int
    end_offset: int
    leader_epoch: int

    @classmethod
    def of(cls, mark: CleanMark) -> End:
        return cls(mark.start_offset, mark.end_offset, mark.leader_epoch)


Table = dict[str, End]


class Read(NamedTuple):
    """`good_bytes` is where the next line can go; -1 when the file must be written anew."""

    table: Table
    good_bytes: int
    fault: str | None


def pack(lines: Mapping[str, End | None]) -> bytes:
    return sealed(dumps(lines, separators=(",", ":")).encode(), CRC)


def pack_whole(table: Mapping[str, End]) -> bytes:
    return sealed(b"%s%d" % (TITLE, VERSION), CRC) + (pack(table) if table else b"")


def unpack(content: bytes, path: str) -> Read:
    """Raises when a newer Tidelog wrote it."""
    lines = content.splitlines(keepends=True)
    title = unsealed(lines[0], CRC) if lines else None
    if title is None or not title.startswith(TITLE):
        return Read({}, -1, "its first line is damaged")
    version = int(title.removeprefix(TITLE))
    if version > VERSION:
        raise DataFolderError(f"{path} has format version {version}, newer than {VERSION}; use the newer Tidelog")
    table: Table = {}
    bad = []
    for number, line in enumerate(lines[1:], 2):
        try:
            told = loads(unsealed(line, CRC) or b"")
        except (JSONDecodeError, UnicodeDecodeError):
            bad.append(number)
            continue
        for name, end in told.items():
            if end is None:
                table.pop(name, None)
            else:
                table[name] = End(*end)
    torn = bad == [len(lines)] and len(lines) > 2  # the first table comes with the file, whole
    fault = f"line {bad[0]} of it is damaged" if bad and not torn else None
    return Read(table, -1 if bad else len(content), fault)


def read_ends(files: Files, folder: str) -> Read:
    path = f"{folder}/{ENDS_NAME}"
    content = read_file(files, path)
    return Read({}, -1, "it is missing") if content is None else unpack(content, path)


class EndsFile:
    """The table in memory, and what of it has not been written yet."""

    def __init__(self, folder: str, files: Files) -> None:
        self._path = f"{folder}/{ENDS_NAME}"
        self._folder = folder
        self._files = files
        self._lock = threading.Lock()
        self._table: Table = {}
        self._changes: dict[str, End | None] = {}
        self._gone: set[str] = set()  # ids are given once, so what is gone never comes back
        self._size = -1  # where the next line goes; -1: the whole file is due
        self._whole_bytes = 0

    def load(self) -> str | None:
        """What is wrong with the file, None if nothing is."""
        read = read_ends(self._files, self._folder)
        self._table, self._size = read.table, read.good_bytes
        self._whole_bytes = max(read.good_bytes, 0)
        return read.fault

    def find(self, name: str) -> End | None:
        return self._table.get(name)

    def names(self) -> list[str]:
        with self._lock:
            return list(self._table)

    @property
    def is_due(self) -> bool:
        """Whether the file does not say all that is known."""
        return bool(self._changes) or (self._size < 0 and bool(self._table))

    def note(self, name: str, end: End) -> None:
        with self._lock:
            if self._table.get(name) != end and name not in self._gone and end.end_offset > 0:
                self._table[name] = self._changes[name] = end

    def forget(self, name: str) -> None:
        """The partition is deleted."""
        with self._lock:
            self._gone.add(name)
            if self._table.pop(name, None) is not None:
                self._changes[name] = None

    def save(self, *, whole: bool = False, durable: bool = True) -> None:
        """Brings the file up to date; waits for the disk. After an OSError the next call writes all of it."""
        with self._lock:
            changes, self._changes = self._changes, {}
            table = dict(self._table) if whole or self._is_grown else None
        try:
            if table is not None:
                content = pack_whole(table)
                self._size = -1
                replace_file(self._files, self._path, content, durable=durable)
                self._size = self._whole_bytes = len(content)
            elif changes:
                self._append(pack(changes))
        except OSError:
            self._size = -1
            raise

    @property
    def _is_grown(self) -> bool:
        return self._size < 0 or self._size > max(GROWN_BYTES, GROWN_TIMES * self._whole_bytes)

    def _append(self, line: bytes) -> None:
        fd = self._files.open(self._path)
        try:
            write_fully(self._files, fd, line, self._size)
            self._files.sync(fd)
        finally:
            self._files.close(fd)
        self._size += len(line)
