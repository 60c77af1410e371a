"""What lies in a partition from an offset on, for whoever wants to know how far behind a reader is. Any thread.

It waits for the disk: the header of one batch is read, and indexes that are not in memory are loaded.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.errors import HoleError, MalformedBatch
from tidelog.log.files import read_fully
from tidelog.log.reading import Reading
from tidelog.log.retention import SegmentFacts
from tidelog.record.codec import peek
from tidelog.record.header import HEADER_SIZE


class Unread(NamedTuple):
    """From offset `first` up to and without `end`; `lost` records before it were deleted.

    `oldest_ms` is when the batch with the first one was written, as its records say; None when they do not. Segments
    are all that there are, the oldest first; how old those behind the first record are was not looked up.
    """

    first: int
    end: int
    lost: int
    bytes: int
    oldest_ms: int | None
    segments: tuple[SegmentFacts, ...]

    @property
    def records(self) -> int:
        return self.end - self.first


def find_unread(reading: Reading, start_offset: int, offset: int, now_ms: int) -> Unread:
    """OffsetOutOfRange and OSError when segments are deleted meanwhile: ask again."""
    visible = reading.visible
    end = visible.offset if visible is not None else start_offset
    lost = max(0, min(start_offset, end) - offset)
    first = min(max(offset, start_offset), end)
    if visible is None or first == end:
        return Unread(first, end, lost, 0, None, ())
    facts = []
    for segment in reading.segments:
        if segment.base_offset <= visible.segment.base_offset:
            latest = reading.look_up_latest(segment, now_ms) if segment.base_offset <= first else None
            facts.append(SegmentFacts(segment.base_offset, reading.end_of(segment).offset, segment.end, latest))
    reading.index_of(reading.segment_of(first))
    return Unread(first, end, lost, reading.bytes_between(first, end), _written_ms(reading, first), tuple(facts))


def _written_ms(reading: Reading, offset: int) -> int | None:
    try:
        piece = reading.read(offset, 1, None, min_one=True, wait=True)
        if piece is None:
            return None
        segment = reading.segment_of(offset)
        header = peek(read_fully(segment.files, piece.fileno(), HEADER_SIZE, piece.position))
    except (HoleError, MalformedBatch):
        return None
    written = header.max_timestamp if header.append_time else header.base_timestamp
    return written if written >= 0 else None
