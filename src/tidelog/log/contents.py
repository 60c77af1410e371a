"""What a partition's folder holds, seen from outside: without recovering it, and without changing a byte.

For folders that nobody knows of. What counts is whether anything in one could be missed: batches, what recovery has
cut, or a file whose name is not one of ours. Indexes, snapshots and the small files are made of the batches, and are
nothing without them.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.log.facts import FACTS_NAME
from tidelog.log.files import TEMPORARY, Entry, Files, read_fully
from tidelog.log.header_block import HEADER_BLOCK, unpack_slots
from tidelog.log.identity import IDENTITY_NAME
from tidelog.log.index import BatchStart
from tidelog.log.open_files import OpenFiles
from tidelog.log.segment import CLEANED_SUFFIX, DELETED_SUFFIX, INDEX_SUFFIX, Name, Segment, Step, newest
from tidelog.log.snapshot import SUFFIX as SNAPSHOT_SUFFIX

UNKNOWN = -1
OF_BATCHES = (INDEX_SUFFIX, SNAPSHOT_SUFFIX, TEMPORARY, DELETED_SUFFIX, CLEANED_SUFFIX)


class Held(NamedTuple):
    """`records` is how many offsets there are, UNKNOWN when the files do not say; `size` is bytes that count."""

    records: int = 0
    size: int = 0

    @property
    def anything(self) -> bool:
        return self.size > 0 or self.records == UNKNOWN


def look(files: Files, folder: str) -> Held:
    """Waits for the disk. A folder that cannot be read may hold anything."""
    try:
        entries = files.list(folder)
        size = sum(_weight(entry) for entry in entries)
        return Held(_records(files, folder, entries) if size else 0, size)
    except FileNotFoundError:
        return Held()
    except (OSError, StorageError):
        return Held(UNKNOWN, 0)


def _weight(entry: Entry) -> int:
    if Name.parse(entry.name) is not None:
        return max(entry.size - HEADER_BLOCK, 0)
    if entry.name in (FACTS_NAME, IDENTITY_NAME) or entry.name.endswith(OF_BATCHES):
        return 0
    return max(entry.size, 1)


def _records(files: Files, folder: str, entries: list[Entry]) -> int:
    """From the first segment's name to the last good header behind what the last segment's slot says."""
    sizes = {name: entry.size for entry in entries if (name := Name.parse(entry.name)) is not None}
    chosen = newest(sizes)
    if not chosen:
        return 0
    last = Segment(files, OpenFiles(files, 1), folder, chosen[-1], sizes[chosen[-1]])
    slot = unpack_slots(read_fully(files, last.file().fd, HEADER_BLOCK, 0))
    start = BatchStart(HEADER_BLOCK, last.base_offset)
    if slot is not None and slot.synced_position <= last.end:
        start = BatchStart(slot.synced_position, slot.synced_offset)
    end = start.offset
    for step in last.walk(start, last.end):
        if isinstance(step, Step):
            end = step.header.next_offset
    return end - chosen[0].base_offset
