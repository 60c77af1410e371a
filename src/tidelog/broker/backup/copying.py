"""One partition into a backup: complete segments linked where that is possible, the last one copied up to the cut.

A complete segment is never written again, so a second name for it is as good as a copy; of the last one, and of every
small file, the backup has a copy of its own. What the backup before has already is taken over from there, with its
checksum. Every batch that is new to the backup is checked: what is damaged is copied as it is and told as a hole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tidelog.broker.backup.manifest import BackedUpPartition, Kept
from tidelog.broker.backup.pins import NO_LINKS, Pin, Pinned, facts_of
from tidelog.errors import BackupError
from tidelog.log import facts as facts_file
from tidelog.log.checking import check_batches, find_next
from tidelog.log.clean_mark import CleanMark
from tidelog.log.facts import FACTS_NAME, NO_FACTS, Facts, Hole
from tidelog.log.files import OWNER_ONLY_FOLDER, Files, RealFiles, write_fully
from tidelog.log.header_block import HEADER_BLOCK, SLOT_AT, Slot, owner_by, pack_block, pack_slot, unpack_block
from tidelog.log.index import BatchStart
from tidelog.log.segment import LOG_SUFFIX, Name
from tidelog.log.tail import FIRST_SLOT
from tidelog.record.codec import crc32c

COPY_WINDOW = 4 << 20


class Before(NamedTuple):
    """The backup that there was: where its tree is, and what is in each folder, by name."""

    tree: str
    files: Mapping[str, Mapping[str, Kept]]
    holes: Mapping[str, tuple[Hole, ...]]


NOTHING_BEFORE = Before("", {}, {})


class Copied(NamedTuple):
    mark: CleanMark
    files: tuple[Kept, ...]
    holes: tuple[Hole, ...]

    def named(self, folder: str, topic: str) -> BackedUpPartition:
        return BackedUpPartition(folder, topic, int(folder.rpartition("-")[2]), *self)


class Copier:
    """Into one tree. `told` is called with the bytes that were just dealt with."""

    def __init__(self, files: Files, tree: str, before: Before, at_ms: int, told: Callable[[int], None]) -> None:
        self._files = files
        self._reads = RealFiles()  # of what has been copied, for reading alone
        self._tree = tree
        self._at_ms = at_ms
        self._before = before
        self._told = told
        self.taken_over = 0  # bytes that the backup before had already

    def copy(self, pinned: Pinned) -> Copied:
        """A partition, into a folder of its own name."""
        folder, mark = pinned.folder, pinned.mark
        self._files.make_folder(f"{self._tree}/{folder}")
        facts = self._facts(pinned)
        kept: list[Kept] = []
        holes: list[Hole] = []
        names = list(pinned.segments)
        for number, name in enumerate(names, 1):
            last = number == len(names)
            one = self._last(pinned, name) if last else self._complete(folder, name, pinned.segments[name])
            end = mark.end_offset if last else names[number].base_offset
            holes += self._holes(folder, name, one, end, facts)
            kept.append(one)
        if not names or mark.position <= HEADER_BLOCK:
            kept.append(self._empty(folder, mark.end_offset))
        size = sum(one.size for one in kept)
        position = kept[-1].size
        start = max(min(mark.start_offset, mark.end_offset), names[0].base_offset if names else mark.end_offset)
        kept += [self.copy_file(pin, folder, name) for name, pin in pinned.others.items() if name != FACTS_NAME]
        if facts != NO_FACTS:
            kept.append(self._write(folder, FACTS_NAME, facts_file.pack(facts)))
        left = CleanMark(start, mark.end_offset, mark.leader_epoch, size, position)
        return Copied(left, tuple(kept), tuple(holes))

    def _facts(self, pinned: Pinned) -> Facts:
        """As they were at the cut, as far as they have changed since."""
        facts = facts_of(pinned)
        if facts is None:
            if FACTS_NAME in pinned.others:
                raise BackupError(f"{pinned.folder}/{FACTS_NAME} is damaged; restart the broker, which mends it")
            facts = NO_FACTS
        end = pinned.mark.end_offset
        bases = {name.base_offset for name in pinned.segments}
        return facts._replace(
            start_offset=min(facts.start_offset, end) if bases else end,
            first_dirty=min(facts.first_dirty, end),
            epochs=tuple(epoch for epoch in facts.epochs if epoch.start_offset <= end),
            holes=tuple(hole for hole in facts.holes if hole.segment in bases and hole.base_offset < end),
        )

    # Segments ---------------------------------------------------------------------------------------------------------

    def _complete(self, folder: str, name: Name, pin: Pin) -> Kept:
        file = f"{name}{LOG_SUFFIX}"
        size = _size(pin)
        known = self._before.files.get(folder, {}).get(file)
        there = f"{self._before.tree}/{folder}/{file}"
        if known is not None and known.size == size and _link(there, self._at(folder, file)):
            self.taken_over += size
            self._told(size)
            return known
        if pin.fd < 0 and _link(pin.path, self._at(folder, file)):
            return Kept(file, size, self._checksum(pin))
        return self.copy_file(pin, folder, file)

    def _last(self, pinned: Pinned, name: Name) -> Kept:
        """Up to the cut, under a head that says that all of it is synced; as it is when a next one had been begun."""
        pin, stop, file = pinned.segments[name], pinned.mark.position, f"{name}{LOG_SUFFIX}"
        if stop <= HEADER_BLOCK:
            return self.copy_file(pin, pinned.folder, file)
        head = unpack_block(pin.read(HEADER_BLOCK), pin.path)
        created_ms = head.created_ms if head is not None else self._at_ms
        block = _block(pinned.folder, name.base_offset, created_ms, Slot(FIRST_SLOT, pinned.mark.end_offset, stop))
        return self.copy_file(pin, pinned.folder, file, block, stop)

    def _empty(self, folder: str, offset: int) -> Kept:
        """One that had just been begun; or retention has taken all that the cut had, and it goes on where it ended."""
        block = _block(folder, offset, self._at_ms, Slot(FIRST_SLOT, offset, HEADER_BLOCK))
        return self._write(folder, f"{Name(offset)}{LOG_SUFFIX}", block)

    def _holes(self, folder: str, name: Name, kept: Kept, end_offset: int, facts: Facts) -> list[Hole]:
        if self._before.files.get(folder, {}).get(kept.name) == kept:
            return [hole for hole in self._before.holes.get(folder, ()) if hole.segment == name.base_offset]
        return find_holes(self._reads, self._at(folder, kept.name), name, end_offset, facts)

    # Bytes ------------------------------------------------------------------------------------------------------------

    def copy_file(self, pin: Pin, folder: str, name: str, head: bytes = b"", stop: int | None = None) -> Kept:
        """`head` takes the place of the first bytes; nothing at or after `stop` is copied."""
        source = pin.open()
        target = self._files.open(self._at(folder, name), create=True)
        try:
            stop = os.fstat(source).st_size if stop is None else stop
            write_fully(self._files, target, head, 0)
            position, crc = len(head), crc32c(head)
            while position < stop:
                data = os.pread(source, min(COPY_WINDOW, stop - position), position)
                if not data:
                    raise BackupError(f"{folder}/{name} has {position} bytes and {stop} are wanted; try again")
                write_fully(self._files, target, data, position)
                crc = crc32c(data, crc)
                position += len(data)
                self._told(len(data))
        finally:
            os.close(source)
            self._files.close(target)
        return Kept(name, stop, crc)

    def take(self, path: str, folder: str, name: str) -> Kept:
        """A file that is never written again, by a name that may lead through folders of its own."""
        Path(self._at(folder, name)).parent.mkdir(parents=True, exist_ok=True, mode=OWNER_ONLY_FOLDER)
        pin = Pin(path)
        if _link(path, self._at(folder, name)):
            return Kept(name, _size(pin), self._checksum(pin))
        return self.copy_file(pin, folder, name)

    def _write(self, folder: str, name: str, data: bytes) -> Kept:
        target = self._files.open(self._at(folder, name), create=True)
        try:
            write_fully(self._files, target, data, 0)
        finally:
            self._files.close(target)
        return Kept(name, len(data), crc32c(data))

    def _checksum(self, pin: Pin) -> int:
        fd = pin.open()
        try:
            crc = position = 0
            while data := os.pread(fd, COPY_WINDOW, position):
                crc = crc32c(data, crc)
                position += len(data)
                self._told(len(data))
            return crc
        finally:
            os.close(fd)

    def _at(self, folder: str, name: str) -> str:
        return f"{self._tree}/{folder}/{name}"


def find_holes(files: Files, path: str, name: Name, end_offset: int, facts: Facts) -> list[Hole]:
    """Every batch of a segment's file is checked; what is bad, and how far that goes: as is known, or may be."""
    known = {hole.position: hole for hole in facts.holes if hole.segment == name.base_offset}
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        start = BatchStart(HEADER_BLOCK, name.base_offset)
        stop = BatchStart(os.fstat(fd).st_size, end_offset)
        holes = []
        while start != stop:
            checked = check_batches(files, fd, start, stop.position, facts.epochs)
            if checked.end == stop:
                break
            hole = known.get(checked.end.position)
            if hole is None:
                fault = checked.fault or f"offset {end_offset} is due"
                hole = _hole(name, checked.end, find_next(files, fd, checked.end, stop, facts.epochs), fault)
            holes.append(hole)
            start = BatchStart(hole.end_position, hole.end_offset)
        return holes
    finally:
        os.close(fd)


def _hole(name: Name, start: BatchStart, end: BatchStart, fault: str) -> Hole:
    return Hole(start.offset, end.offset, name.base_offset, start.position, end.position, False, fault)


def _block(folder: str, base_offset: int, created_ms: int, slot: Slot) -> bytes:
    block, packed = pack_block(base_offset, created_ms, owner_by(folder)), pack_slot(slot)
    block[SLOT_AT[0] : SLOT_AT[0] + len(packed)] = packed
    return bytes(block)


def _size(pin: Pin) -> int:
    fd = pin.open()
    try:
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def _link(source: str, target: str) -> bool:
    """False where that is not possible."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in NO_LINKS:
            return False
        raise
    return True
