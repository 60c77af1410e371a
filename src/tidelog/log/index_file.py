"""Index files: saving what is in memory, loading it again, and making an index anew from the segment itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tidelog.log.checking import check_batches, find_next
from tidelog.log.epochs import History
from tidelog.log.facts import Hole
from tidelog.log.files import read_file, write_fully
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.index import HEAD_SIZE, BatchStart, Covered, Index, block, head, load
from tidelog.log.segment import BadHeader, Segment, Step
from tidelog.record.header import BatchHeader


def save_index(segment: Segment, index: Index, entries: int, covered: Covered) -> None:
    """Adds a block with the entries that the file does not have yet. One thread at a time for each segment.

    Not synced: what a power cut takes of it is made anew.
    """
    files = segment.files
    try:
        fd = files.open(segment.index_path)
    except FileNotFoundError:
        fd = files.open(segment.index_path, create=True)
        segment.index_file_size = segment.index_entries_saved = 0
    try:
        if segment.index_file_size < HEAD_SIZE:
            segment.index_entries_saved = 0
            write_fully(files, fd, head(segment.base_offset), 0)
            segment.index_file_size = HEAD_SIZE
        data = block(index, segment.index_entries_saved, entries, covered)
        write_fully(files, fd, data, segment.index_file_size)
        segment.index_file_size += len(data)
        segment.index_entries_saved = entries
        files.truncate(fd, segment.index_file_size)
    finally:
        files.close(fd)


def load_index_up_to(segment: Segment, stop: BatchStart) -> tuple[Index, BatchStart, bool]:
    """What is good of the file, how far it goes, and whether that is all of a complete segment.

    A file that goes beyond `stop` is of no use: the segment is shorter than it was.
    """
    data = read_file(segment.files, segment.index_path)
    index, covered, size = load(data or b"", segment.base_offset, segment.index_path)
    if covered is None or covered.end_position > stop.position or covered.end_offset > stop.offset:
        segment.index_file_size = segment.index_entries_saved = 0
        return Index(segment.base_offset), BatchStart(HEADER_BLOCK, segment.base_offset), False
    segment.index_file_size = size
    segment.index_entries_saved = len(index)
    end = BatchStart(covered.end_position, covered.end_offset)
    return index, end, covered.complete and end == stop


def walk_over(
    segment: Segment,
    index: Index,
    start: BatchStart,
    stop: BatchStart,
    epochs: History,
    each: Callable[[int, BatchHeader], None],
) -> list[Hole]:
    """Calls `each` with the headers between two boundaries; what is bad between them comes back.

    A header is believed when the next one follows on it. Where none does, checksums say which of the two is bad.
    """
    holes = []
    while start.position < stop.position:
        held: Step | None = None
        bad = False
        for step in segment.walk(start, stop.position):
            bad = isinstance(step, BadHeader)
            if isinstance(step, BadHeader):
                break
            if held is not None:
                each(*held)
                start = BatchStart(step.position, step.header.base_offset)
            held = step
        if held is not None and not bad and held.header.next_offset == stop.offset:
            each(*held)
            break
        checked = check_batches(segment.files, segment.file().fd, start, stop.position, epochs, keep_headers=True)
        for position, header in checked.headers:
            each(position, header)
        start = checked.end
        if start != stop:
            hole = find_hole(segment, index, start, checked.fault, stop, epochs)
            holes.append(hole)
            start = BatchStart(hole.end_position, hole.end_offset)
    return holes


def find_hole(
    segment: Segment, index: Index | None, start: BatchStart, fault: str | None, stop: BatchStart, epochs: History
) -> Hole:
    """How far the bad bytes go that begin at `start`: to good batches that lead to an index entry or to `stop`.

    There may be none: where a file has lost its head too, it ends before `start`.
    """
    following = index.after_position(start.position) if index is not None else None
    if following is not None and following < stop:
        stop = following
    stop = stop._replace(position=max(stop.position, start.position))
    end = find_next(segment.files, segment.file().fd, start, stop, epochs)
    reason = fault or f"offsets {start.offset} to {stop.offset - 1} are missing"
    return Hole(start.offset, end.offset, segment.base_offset, start.position, end.position, False, reason)


def rebuild_index(segment: Segment, stop: BatchStart, epochs: History, interval: int) -> tuple[Index, list[Hole]]:
    """The index of a complete segment, from what is good of its file and from its headers; the file is mended."""
    index, start, complete = load_index_up_to(segment, stop)
    if complete:
        return index, []

    def note(position: int, header: BatchHeader) -> None:
        index.note(header.base_offset, position, header.latest, interval)

    holes = walk_over(segment, index, start, stop, epochs, note)
    if segment.end_offset is not None:  # it was replaced, and has no name any more
        return index, holes
    with suppress(OSError):  # it is in memory; the file can be mended another time
        save_index(segment, index, len(index), index.covered(stop, complete=True))
    return index, holes
