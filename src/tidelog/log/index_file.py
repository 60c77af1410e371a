"""Index files: saving what is in memory, loading it again, and making an index anew from the segment itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tidelog.log.checking import find_next
from tidelog.log.epochs import History
from tidelog.log.facts import Hole
from tidelog.log.files import read_file, write_fully
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.index import HEAD_SIZE, Covered, Index, block, head, load
from tidelog.log.segment import BadHeader, Segment
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


def load_index_up_to(segment: Segment, stop: tuple[int, int]) -> tuple[Index, tuple[int, int], bool]:
    """What is good of the file, up to which (position, offset) it goes, and whether that is all of a complete segment.

    A file that goes beyond `stop` is of no use: the segment is shorter than it was.
    """
    data = read_file(segment.files, segment.index_path)
    index, covered, size = load(data or b"", segment.base_offset, segment.index_path)
    if covered is None or covered.end_position > stop[0] or covered.end_offset > stop[1]:
        segment.index_file_size = segment.index_entries_saved = 0
        return Index(), (HEADER_BLOCK, segment.base_offset), False
    segment.index_file_size = size
    segment.index_entries_saved = len(index)
    start = (covered.end_position, covered.end_offset)
    return index, start, covered.complete and start == stop


def walk_over(
    segment: Segment,
    index: Index,
    start: tuple[int, int],
    stop: tuple[int, int],
    epochs: History,
    each: Callable[[int, BatchHeader], None],
) -> list[Hole]:
    """Calls `each` with the headers between two boundaries (position, offset); what is bad between them comes back."""
    holes = []
    position, offset = start
    while position < stop[0]:
        bad = None
        for step in segment.walk(position, offset, stop[0]):
            if isinstance(step, BadHeader):
                bad = step
                break
            each(*step)
            offset = step.header.next_offset
        if bad is None:
            if offset == stop[1]:
                break
            bad = BadHeader(stop[0], offset, f"offsets {offset} to {stop[1]} are missing")
        hole = find_hole(segment, index, bad, stop, epochs)
        holes.append(hole)
        position, offset = hole.end_position, hole.end_offset
    return holes


def find_hole(segment: Segment, index: Index | None, bad: BadHeader, stop: tuple[int, int], epochs: History) -> Hole:
    """How far the bad bytes go, up to the next boundary that is known: an index entry or `stop`."""
    entry = index.after_position(bad.position) if index is not None else None
    if entry is not None and entry.position < stop[0]:
        stop = (entry.position, segment.base_offset + entry.relative_offset)
    position, offset = find_next(segment.files, segment.file().fd, bad.position, bad.offset, stop, epochs)
    return Hole(bad.offset, offset, segment.base_offset, bad.position, position, False, bad.reason)


def rebuild_index(segment: Segment, stop: tuple[int, int], epochs: History, interval: int) -> tuple[Index, list[Hole]]:
    """The index of a complete segment, from what is good of its file and from its headers; the file is mended."""
    index, start, complete = load_index_up_to(segment, stop)
    if complete:
        return index, []

    def note(position: int, header: BatchHeader) -> None:
        index.note(
            header.base_offset, position, header.base_offset - segment.base_offset, header.max_timestamp, interval
        )

    holes = walk_over(segment, index, start, stop, epochs, note)
    with suppress(OSError):  # it is in memory; the file can be mended another time
        save_index(segment, index, len(index), index.covered(stop[1], stop[0], complete=True))
    return index, holes
