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
from tidelog.record.codec import peek, scan
from tidelog.record.header import HEADER_SIZE, MAGIC, MAGIC_AT, BatchHeader

CHECK_WINDOW = 1 << 20
SEARCH_WINDOW = 1 << 20


class Checked(NamedTuple):
    """Good batches up to `position`, the next one has `offset`; `fault` says what is wrong there, None at the end."""

    position: int
    offset: int
    fault: str | None
    headers: list[tuple[int, BatchHeader]]


def check_batches(
    files: Files, fd: int, position: int, stop: int, offset: int, epochs: History, *, keep_headers: bool = False
) -> Checked:
    """Checks the batches from `position`, where `offset` begins, to `stop`, which is between two batches."""
    headers: list[tuple[int, BatchHeader]] = []
    window = CHECK_WINDOW
    while position < stop:
        data = read_fully(files, fd, min(window, stop - position), position)
        found = scan(data)
        for at, header in zip(found.positions, found.headers, strict=True):
            if header.base_offset != offset or header.leader_epoch != epoch_at(epochs, offset):
                fault = f"batch says offset {header.base_offset}, epoch {header.leader_epoch}; offset {offset} is due"
                return Checked(position + at, offset, fault, headers)
            if keep_headers:
                headers.append((position + at, header))
            offset = header.next_offset
        position += found.end
        if found.end:
            window = CHECK_WINDOW
        elif (larger := _size_of(data)) is not None and window < larger <= stop - position:
            window = larger
        else:
            return Checked(position, offset, found.error, headers)
    return Checked(position, offset, None, headers)


def _size_of(data: bytes) -> int | None:
    """The size that the batch at the beginning says it has; None when it says nothing."""
    try:
        return peek(data).size if len(data) >= HEADER_SIZE else None
    except MalformedBatch:
        return None


def find_next(
    files: Files, fd: int, position: int, offset: int, boundary: tuple[int, int], epochs: History
) -> tuple[int, int]:
    """Where good batches begin again after the bad one at `position`, which had `offset`: (position, offset)."""
    stop, stop_offset = boundary
    for start in range(position + 1, stop, SEARCH_WINDOW):
        data = read_fully(files, fd, min(SEARCH_WINDOW + HEADER_SIZE, stop - start), start)
        magic = data.find(MAGIC, MAGIC_AT)
        while magic != -1:
            at, magic = magic - MAGIC_AT, data.find(MAGIC, magic + 1)
            base_offset = _offset_of(data, at)
            if base_offset is None or not offset < base_offset < stop_offset:
                continue
            checked = check_batches(files, fd, start + at, stop, base_offset, epochs)
            if checked.fault is None and checked.offset == stop_offset:
                return start + at, base_offset
    return stop, stop_offset


def _offset_of(data: bytes, at: int) -> int | None:
    """The base offset, if a header could begin there."""
    try:
        return peek(data, at).base_offset
    except MalformedBatch:
        return None
