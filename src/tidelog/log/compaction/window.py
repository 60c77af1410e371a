"""Reading a complete segment for compaction: whole batches, a window at a time, every one of them checked.

Nothing is copied into a new segment that was not found good just before: what compaction writes would pass for good.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.log.checking import size_of
from tidelog.log.epochs import History, epoch_at
from tidelog.log.files import read_fully
from tidelog.log.index import BatchStart
from tidelog.log.segment import Segment
from tidelog.record.codec import scan
from tidelog.record.header import BatchHeader

WINDOW = 128 << 10  # more would keep other threads waiting for the interpreter where batches are tiny


class Window(NamedTuple):
    data: memoryview
    headers: list[BatchHeader]
    end: BatchStart


class BadBatch(Exception):
    """What is at `place` is not what was written there."""

    def __init__(self, segment: Segment, place: BatchStart, fault: str) -> None:
        super().__init__(f"segment {segment.base_offset} at byte {place.position}: {fault}")
        self.segment = segment
        self.place = place
        self.fault = fault


def read_window(segment: Segment, start: BatchStart, epochs: History) -> Window:
    """The batches from a boundary on. Pages that had to be read for it do not stay in memory."""
    files, fd, stop = segment.files, segment.file().fd, segment.end
    size = min(WINDOW, stop - start.position)
    cached = files.is_cached(fd, start.position, size)
    data = read_fully(files, fd, size, start.position)
    found = scan(data)
    if not found.headers and (larger := size_of(data)) is not None and size < larger <= stop - start.position:
        data = read_fully(files, fd, larger, start.position)
        found = scan(data)
    if not found.headers:
        raise BadBatch(segment, start, found.error or "a batch is due")
    offset = start.offset
    for position, header in zip(found.positions, found.headers, strict=True):
        if header.base_offset != offset or header.leader_epoch != epoch_at(epochs, offset):
            fault = f"batch says offset {header.base_offset}, epoch {header.leader_epoch}; offset {offset} is due"
            raise BadBatch(segment, BatchStart(start.position + position, offset), fault)
        offset = header.next_offset
    if not cached:
        files.forget(fd, start.position, found.end)
    return Window(memoryview(data)[: found.end], found.headers, BatchStart(start.position + found.end, offset))
