"""Segments written anew: one file for one or more of them, complete and synced before it gets a name that counts.

    <name>.log.cleaned    being written; a crash leaves it, and the next opening of the partition removes it
    <name>.log            written, synced, renamed, and its folder synced: from here on it counts, and the old ones do
                          not, whether they are still there or not (segment.Name)

A segment that would come out as it is gets no file at all: nothing is written before the first byte that differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from errno import ENOSPC
from typing import NamedTuple

from tidelog.log.files import Files, OpenFile, read_fully, remove_files, write_fully
from tidelog.log.header_block import HEADER_BLOCK, SLOT_AT, Slot, owner_by, pack_block, pack_slot
from tidelog.log.index import BatchStart, Index
from tidelog.log.index_file import save_index
from tidelog.log.open_files import OpenFiles
from tidelog.log.segment import CLEANED_SUFFIX, Name, Segment
from tidelog.log.settings import MAX_SEGMENT_BYTES
from tidelog.log.tail import FIRST_SLOT
from tidelog.record.codec import scan
from tidelog.record.compacting import Filtered, empty_batch
from tidelog.record.header import Buffer, Gap

WRITE_BYTES = 1 << 20
SYNC_BYTES = 32 << 20  # written between two syncs: one for a whole segment would keep those of acks waiting
ROOM_LEFT = 64 << 20  # bytes of the disk that compaction leaves to those who append, or as many as it needs itself


class Rewritten(NamedTuple):
    old: Sequence[Segment]
    new: Segment
    end_offset: int


class Rewrite:
    """One new segment under way. One thread at a time."""

    def __init__(
        self, files: Files, open_files: OpenFiles, old: Sequence[Segment], name: Name, interval: int, now_ms: int
    ) -> None:
        self.old = old
        self.gap: Gap | None = None
        self._files = files
        self._interval = interval
        self._now_ms = now_ms
        self._made = Segment(files, open_files, old[0].folder, name, HEADER_BLOCK)
        self._name = name
        self._index = Index(name.base_offset)
        self._file: OpenFile | None = None
        self._waiting = bytearray()
        self._unsynced = 0
        self._end = HEADER_BLOCK  # of what has been put, written or not
        self._copied = self._unchanged = HEADER_BLOCK  # how far, of how much that was found unchanged

    def put(self, window: Buffer, filtered: Filtered) -> None:
        """What is left of a window."""
        self.gap = filtered.gap
        if self._file is None:
            if len(self.old) == 1 and self._is_same(window, filtered):
                self.gap = None
                self._note(window)
                return
            self._begin()
        self._add(filtered.data)

    def catch_up(self) -> int:
        """Copies some of what was found unchanged before the first change; how much that was, 0 when all is there."""
        size = min(WRITE_BYTES, self._unchanged - self._copied)
        if size > 0:
            data = read_fully(self._files, self.old[0].file().fd, size, self._copied)
            self._write(data, self._copied)
            self._copied += size
        return size

    def _is_same(self, window: Buffer, filtered: Filtered) -> bool:
        gap = empty_batch(*filtered.gap) if filtered.gap is not None else b""
        if len(filtered.data) + len(gap) != len(window):
            return False
        return bytes(filtered.data) + gap == bytes(window)  # copies, because views are compared byte by byte

    def finish(self) -> Rewritten | None:
        """The new segment, synced and still without its name; None when nothing has changed."""
        if self.gap is not None:
            self._add(empty_batch(*self.gap))
        if self._file is None:
            return None
        self._flush()
        self._write_head()
        self._files.sync(self._file.fd)
        made = self._made
        made.end, made.index = self._end, self._index
        made.checked.own_from = self._unchanged  # what was copied is checked before it is sent
        made.created_ms = self.old[0].created_ms
        self._file = None
        return Rewritten(self.old, made, self._name.end_offset)

    def abandon(self) -> None:
        if self._file is not None:
            self._file = None
            with suppress(OSError):
                remove_files(self._files, [self._path])

    @property
    def _path(self) -> str:
        return self._made.log_path + CLEANED_SUFFIX

    def _begin(self) -> None:
        """The file; what was found unchanged until now follows bit by bit, with `catch_up`."""
        files = self._files
        size = sum(segment.end for segment in self.old)
        needed = size + min(size, ROOM_LEFT)
        if files.free_bytes(self.old[0].folder) < needed:
            raise OSError(ENOSPC, f"compaction needs {needed} bytes of room")
        remove_files(files, [self._path])
        self._file = OpenFile(files, files.open(self._path, create=True))
        self._unchanged = self._end

    def _add(self, data: Buffer) -> None:
        self._note(data)
        self._waiting += data
        if len(self._waiting) >= WRITE_BYTES:
            self._flush()

    def _note(self, data: Buffer) -> None:
        found = scan(data, crc=False)
        if self._end + len(data) > MAX_SEGMENT_BYTES:
            raise OSError(ENOSPC, f"segment {self._name} would be larger than a segment can be")
        for position, header in zip(found.positions, found.headers, strict=True):
            self._index.note(header.base_offset, self._end + position, header.latest, self._interval)
        self._end += len(data)

    def _flush(self) -> None:
        self._write(self._waiting, self._end - len(self._waiting))
        self._waiting = bytearray()

    def _write(self, data: Buffer, position: int) -> None:
        assert self._file is not None
        write_fully(self._files, self._file.fd, data, position)
        self._unsynced += len(data)
        if self._unsynced >= SYNC_BYTES:
            self._files.sync(self._file.fd)
            self._unsynced = 0

    def _write_head(self) -> None:
        assert self._file is not None
        first = self.old[0]
        first.look_up_created(self._now_ms)
        block = pack_block(first.base_offset, first.created_ms, owner_by(first.folder))
        slot = pack_slot(Slot(FIRST_SLOT, self._name.end_offset, self._end))
        block[SLOT_AT[0] : SLOT_AT[0] + len(slot)] = slot
        write_fully(self._files, self._file.fd, block, 0)


def publish(rewritten: Rewritten) -> None:
    """Gives it the name by which it counts, durably."""
    new = rewritten.new
    new.files.rename(new.log_path + CLEANED_SUFFIX, new.log_path)
    new.files.sync_folder(new.folder)
    index = new.index
    assert index is not None
    with suppress(OSError):  # it can be made anew
        covered = index.covered(BatchStart(new.end, rewritten.end_offset), complete=True)
        save_index(new, index, len(index), covered)


def discard(rewritten: Rewritten) -> None:
    """It has no name yet, and is not to get one."""
    new = rewritten.new
    with suppress(OSError):
        remove_files(new.files, [new.log_path + CLEANED_SUFFIX])


def take_back(rewritten: Rewritten) -> None:
    """It was published, and what it was to replace is not there any more."""
    rewritten.new.remove()
    rewritten.new.files.sync_folder(rewritten.new.folder)


def remove_old(rewritten: Rewritten) -> None:
    """After a crash before this is done, the next opening of the partition does it; then they are gone already."""
    for segment in rewritten.old:
        with suppress(FileNotFoundError):
            segment.hold()
            segment.remove()
