"""What lies in a partition from an offset on, for whoever wants to know how far behind a reader is. Any thread.

It waits for the disk: the header of one batch is read, and indexes that are not in memory are loaded.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.errors import HoleError, MalformedBatch
from tidelog.log.files import read_fully
from tidelog.log.header_block import HEADER_BLOCK
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


class Most(NamedTuple):
    """What a partition is to keep at most; None: it does not matter."""

    records: int | None
    bytes: int | None
    ms: int | None


def kept_from(reading: Reading, start_offset: int, most: Most, now_ms: int) -> int:
    """Where a partition is to begin, so that it has no more than that: between its start and its high watermark."""
    visible = reading.visible
    if visible is None:
        return start_offset
    kept = start_offset
    if most.records is not None:
        kept = max(kept, visible.offset - most.records)
    if most.bytes is not None:
        kept = max(kept, _last_bytes(reading, most.bytes))
    if most.ms is not None and reading.max_timestamp(start_offset) is not None:
        found = reading.offset_at(now_ms - most.ms, start_offset)
        kept = max(kept, visible.offset if found is None else found[0])
    return min(kept, visible.offset)


def _last_bytes(reading: Reading, most: int) -> int:
    """The first offset behind which there are no more than so many bytes, by the index."""
    visible = reading.visible
    assert visible is not None
    left = most
    for segment in reversed(reading.segments):
        if segment.base_offset > visible.segment.base_offset:
            continue
        end = reading.end_of(segment).position
        if end - HEADER_BLOCK > left:
            reading.index_of(segment)
            return reading.offset_behind(segment, end - left)
        left -= end - HEADER_BLOCK
    return 0


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
