"""Are these bytes the batches that were written there? And if not, where do good batches begin again?

A batch is good when its checksum is, and when the two fields outside the checksum are what they must be: offsets are
dense, and the leader epoch is the one of that offset. So every bit of a batch is covered.

Where a batch is bad, its own length cannot be believed. What can is a boundary known from elsewhere (an index entry,
the end of the segment), with its offset. Good batches begin again at the first position from which whole, good, dense
batches lead exactly to such a boundary; a batch inside a record's value does not pass for one.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.errors import MalformedBatch
from tidelog.log.epochs import History, epoch_at
from tidelog.log.files import Files, read_fully
from tidelog.log.index import BatchStart
from tidelog.record.codec import peek, scan
from tidelog.record.header import HEADER_SIZE, MAGIC, MAGIC_AT, BatchHeader

CHECK_WINDOW = 1 << 20
SEARCH_WINDOW = 1 << 20


class Checked(NamedTuple):
    """Good batches up to `end`; `fault` says what is wrong there, None when that is where they were to end."""

    end: BatchStart
    fault: str | None
    headers: list[tuple[int, BatchHeader]]


def check_batches(
    files: Files, fd: int, start: BatchStart, stop: int, epochs: History, *, keep_headers: bool = False
) -> Checked:
    """Checks the batches from a boundary to position `stop`, which is to be between two batches."""
    position, offset = start
    headers: list[tuple[int, BatchHeader]] = []
    window = CHECK_WINDOW
    while position < stop:
        data = read_fully(files, fd, min(window, stop - position), position)
        found = scan(data)
        for at, header in zip(found.positions, found.headers, strict=True):
            if header.base_offset != offset or header.leader_epoch != epoch_at(epochs, offset):
                fault = f"batch says offset {header.base_offset}, epoch {header.leader_epoch}; offset {offset} is due"
                return Checked(BatchStart(position + at, offset), fault, headers)
            if keep_headers:
                headers.append((position + at, header))
            offset = header.next_offset
        position += found.end
        if found.end:
            window = CHECK_WINDOW
        elif (larger := size_of(data)) is not None and window < larger <= stop - position:
            window = larger
        else:
            return Checked(BatchStart(position, offset), found.error, headers)
    return Checked(BatchStart(position, offset), None, headers)


def size_of(data: bytes) -> int | None:
    """The size that the batch at the beginning says it has; None when it says nothing."""
    try:
        return peek(data).size if len(data) >= HEADER_SIZE else None
    except MalformedBatch:
        return None


def find_next(files: Files, fd: int, start: BatchStart, stop: BatchStart, epochs: History) -> BatchStart:
    """Where good batches begin again after the bad one at `start`; at the latest at `stop`, which is known for one."""
    for window in range(start.position + 1, stop.position, SEARCH_WINDOW):
        data = read_fully(files, fd, min(SEARCH_WINDOW + HEADER_SIZE, stop.position - window), window)
        magic = data.find(MAGIC, MAGIC_AT)
        while magic != -1:
            at, magic = magic - MAGIC_AT, data.find(MAGIC, magic + 1)
            offset = _offset_of(data, at)
            if offset is None or not start.offset < offset < stop.offset:
                continue
            candidate = BatchStart(window + at, offset)
            if check_batches(files, fd, candidate, stop.position, epochs).end == stop:
                return candidate
    return stop


def _offset_of(data: bytes, at: int) -> int | None:
    """The base offset, if a header could begin there."""
    try:
        return peek(data, at).base_offset
    except MalformedBatch:
        return None
