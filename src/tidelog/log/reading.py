"""Reading a partition: from an offset, by time, and what to do where the bytes are bad. Any thread.

The loop's thread replaces `segments`, `visible` and `facts` whole; a reader takes each of them once. Nothing at or
above `visible` is ever looked at.

A read inside a known hole raises HoleError, or goes on behind it when `repair` has passed it. A slice never contains
one. A hole that is come upon is known at once, and told to `on_hole`, which sees to it that it is not forgotten.

Compaction replaces segments (`replace`). A reader that found its place in an old one goes on there: the segment keeps
its file, and knows where it ended. A hole in it is of no interest any more: what took its place was checked.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

from tidelog.errors import CorruptBatch, HoleError, OffsetOutOfRange, TruncatedBatch
from tidelog.log.checking import check_batches
from tidelog.log.facts import NO_FACTS, Hole
from tidelog.log.files import Buffer, read_fully
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.holes import Holes
from tidelog.log.index import NO_TIMESTAMP, BatchStart, Index
from tidelog.log.index_cache import IndexCache
from tidelog.log.index_file import find_hole, rebuild_index
from tidelog.log.record_times import TIMES_BYTES_MAX, TimeSearch
from tidelog.log.retention import SegmentFacts
from tidelog.log.segment import WALK_WINDOW, BadHeader, BatchPosition, Segment, Step
from tidelog.log.slice import Asked, Cold, Slice
from tidelog.log.tail import Extent
from tidelog.record.header import BatchHeader


class Reading:
    __slots__ = (
        "_index_cache",
        "_rebuilding",
        "_replacing",
        "facts",
        "holes",
        "interval",
        "on_hole",
        "segments",
        "visible",
    )

    def __init__(self, folder: str, index_cache: IndexCache, on_hole: Callable[[Hole], None]) -> None:
        self.on_hole = on_hole
        self.interval = 0
        self.segments: tuple[Segment, ...] = ()
        self.visible: Extent | None = None
        self.facts = NO_FACTS
        self.holes = Holes(folder)
        self._index_cache = index_cache
        self._rebuilding = threading.Lock()
        self._replacing = threading.Lock()

    # By offset --------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, limit: int | None, *, min_one: bool, wait: bool) -> Slice | None:
        visible, holes = self.visible, self.holes
        if visible is None:
            return None
        asked = Asked(offset, max_bytes, limit)
        top = visible.offset if limit is None or limit > visible.offset else limit
        if holes.known:
            offset = holes.passed(offset)
        if offset >= top:
            return None
        segment = self.segment_of(offset)
        if wait and segment.is_crowded_out:
            return None  # not now: a reader asks again, and a slow one may have let go by then
        place = segment.find_recent(offset) or self._find(segment, offset, wait)
        stop = self.end_of(segment).position if top == visible.offset else self._position_of(segment, top, wait)
        if holes.known:
            stop = holes.stop_before(segment.base_offset, place.position, stop)
        end = place.position + max_bytes
        end = stop if end >= stop else segment.boundary(place.position, end)
        if end < place.position + place.size:
            if not min_one:
                return None
            # A place that was found while the segment grew may seem to be larger than it is.
            end = min(place.position + place.size, stop)
        file = segment.find_file()
        if file is None:
            if not wait:
                raise Cold
            file = segment.file()
        start = BatchStart(place.position, place.base_offset)
        return Slice(self, asked, self.facts.epochs, segment, file, start, end)

    def find_slice(self, asked: Asked) -> Slice | None:
        """The same read again, when more is known of what is bad."""
        return self.read(*asked, min_one=True, wait=True)

    def segment_of(self, offset: int) -> Segment:
        segments = self.segments
        at = bisect_right(segments, offset, key=_base_offset) - 1
        if at < 0:  # deleted since the caller looked at the start offset
            start = segments[0].base_offset if segments else offset + 1
            raise OffsetOutOfRange(f"offset {offset} was deleted; the first is {start}", start, self._high_watermark())
        return segments[at]

    def end_of(self, segment: Segment) -> BatchStart:
        """Where the visible part of a segment ends."""
        if segment.end_offset is not None:
            return BatchStart(segment.end, segment.end_offset)
        visible = self.visible
        assert visible is not None
        if segment is visible.segment:
            return BatchStart(visible.position, visible.offset)
        segments = self.segments
        following = bisect_right(segments, segment.base_offset, key=_base_offset)
        if segment.base_offset > visible.segment.base_offset or following == len(segments):
            return BatchStart(HEADER_BLOCK, segment.base_offset)
        return BatchStart(segment.end, segments[following].base_offset)

    def offset_behind(self, segment: Segment, position: int) -> int:
        """An offset that no batch before a position has: the lowest that is known without looking at the disk."""
        end = self.end_of(segment)
        if position >= end.position:
            return end.offset
        offsets, positions = segment.recent
        at = bisect_left(positions, position)
        if positions and positions[0] <= position and at < len(offsets):
            return min(offsets[at], end.offset)
        index = segment.index
        following = index.after_position(position - 1) if index is not None else None
        return end.offset if following is None else min(following.offset, end.offset)

    def bytes_between(self, start: int, stop: int) -> int:
        """About how many bytes there are from one offset to another, without looking at the disk."""
        if self.visible is None or start >= stop:
            return 0
        total = 0
        for segment in self.segments:
            end, end_offset = self.end_of(segment)
            if segment.base_offset < stop and end_offset > start:
                first = HEADER_BLOCK if start <= segment.base_offset else self._about(segment, start)
                last = end if stop >= end_offset else self._about(segment, stop)
                total += max(0, last - first)
        return total

    def _about(self, segment: Segment, offset: int) -> int:
        place = segment.find_recent(offset)
        if place is not None:
            return place.position
        index = segment.index
        return index.before_offset(offset).position if index is not None else HEADER_BLOCK

    def segment_facts(self) -> list[SegmentFacts]:
        """Of the visible segments, the oldest first."""
        visible = self.visible
        if visible is None:
            return []
        last = visible.segment.base_offset
        return [
            SegmentFacts(segment.base_offset, self.end_of(segment).offset, segment.end, self.latest_of(segment))
            for segment in self.segments
            if segment.base_offset <= last
        ]

    def batches_in(self, hole: Hole) -> int | None:
        """How many batches a hole has taken; None when what is left of their headers does not say. Waits."""
        segment = next((one for one in self.segments if one.base_offset == hole.segment), None)
        start = BatchStart(hole.position, hole.base_offset)
        steps = list(segment.walk(start, hole.end_position)) if segment is not None else []  # it may be deleted since
        headers = [step.header for step in steps if isinstance(step, Step)]
        whole = headers and len(headers) == len(steps) and headers[-1].next_offset == hole.end_offset
        return len(headers) if whole else None

    def _find(self, segment: Segment, offset: int, wait: bool) -> BatchPosition:
        if not wait:
            return self._find_cached(segment, offset)
        while True:
            start = self.holes.behind(segment.base_offset, self.index_of(segment).before_offset(offset), offset)
            found = segment.find(start, offset, self.end_of(segment).position)
            if isinstance(found, BatchPosition):
                return found
            hole = self._find_bad(segment, start)
            if hole.end_offset > offset:
                raise self.holes.error(hole)

    def _find_cached(self, segment: Segment, offset: int) -> BatchPosition:
        """For a consumer that is behind by no more than what is in memory: no thread, no waiting."""
        index, file = segment.index, segment.find_file()
        if index is None or file is None:
            raise Cold
        start, stop = index.before_offset(offset), self.end_of(segment).position
        window = min(WALK_WINDOW, stop - start.position)
        if self.holes.known or window <= 0 or not segment.files.is_cached(file.fd, start.position, window):
            raise Cold
        found = segment.find(start, offset, stop)
        if not isinstance(found, BatchPosition):
            raise Cold
        return found

    def _position_of(self, segment: Segment, offset: int, wait: bool) -> int:
        """Where an offset begins, or the end of the segment when it is behind it."""
        end = self.end_of(segment)
        if offset >= end.offset:
            return end.position
        return (segment.find_recent(offset) or self._find(segment, offset, wait)).position

    def index_of(self, segment: Segment) -> Index:
        """May wait for the disk: an index that is not in memory is loaded, or made anew."""
        index = segment.index
        if index is None:
            with self._rebuilding:
                index = segment.index
                if index is None:
                    stop = self.end_of(segment)
                    index, holes = rebuild_index(segment, stop, self.facts.epochs, self.interval)
                    segment.index = index
                    for hole in holes:
                        self.note_hole(segment, hole)
            self._index_cache.note(segment)
        return index

    # Holes ------------------------------------------------------------------------------------------------------------

    def found_bad(self, segment: Segment, start: BatchStart, fault: str | None) -> HoleError:
        """A bad batch begins there. The error is for whoever asked for it."""
        return self.holes.error(self._note_bad(segment, start, fault))

    def note_hole(self, segment: Segment, hole: Hole) -> None:
        """Not in a segment that was deleted meanwhile: where it ends cannot be told without those that followed it."""
        with self._replacing:
            new = segment in self.segments and self.holes.add(hole)
        if new:
            self.on_hole(hole)

    def replace(self, old: Sequence[Segment], new: Segment) -> bool:
        """The loop's thread: one segment takes the place of some in a row. False when they are not all there."""
        segments = self.segments
        at = segments.index(old[0]) if old[0] in segments else 0
        stop = at + len(old)
        if segments[at:stop] != tuple(old) or stop == len(segments):
            return False
        with self._replacing:
            for segment, following in pairwise(segments[at : stop + 1]):
                segment.end_offset = following.base_offset
            self.segments = (*segments[:at], new, *segments[stop:])
            self.holes.forget({segment.base_offset for segment in old})
        return True

    def _note_bad(self, segment: Segment, start: BatchStart, fault: str | None) -> Hole:
        """Finds out how far it goes, and has it remembered."""
        hole = find_hole(segment, segment.index, start, fault, self.end_of(segment), self.facts.epochs)
        self.note_hole(segment, hole)
        return hole

    def _find_bad(self, segment: Segment, start: BatchStart) -> Hole:
        """A walk from there came to no good end; checksums say which batch is at fault."""
        stop = self.end_of(segment)
        checked = check_batches(segment.files, segment.file().fd, start, stop.position, self.facts.epochs)
        return self._note_bad(segment, checked.end, checked.fault)

    # By time ----------------------------------------------------------------------------------------------------------

    def offset_at(self, timestamp_ms: int, start_offset: int, most: int = TIMES_BYTES_MAX) -> tuple[int, int] | None:
        """The first visible record at or after a time, as (offset, timestamp); `most` bytes are decoded for it."""
        if self.visible is None:
            return None
        search = TimeSearch(timestamp_ms, start_offset, most)
        for segment in self.segments:
            if self._latest(segment) < timestamp_ms:
                continue
            start = self.index_of(segment).before_time(timestamp_ms)
            for position, header in self._headers(segment, start):
                if search.may_be_in(header):
                    read = partial(_read_batch, segment, position, header)
                    try:
                        found = search.find(header, read)
                    except (CorruptBatch, TruncatedBatch) as error:
                        raise self.found_bad(segment, BatchStart(position, header.base_offset), str(error)) from error
                    if found is not None:
                        return found
        return None

    def max_timestamp(self, start_offset: int) -> tuple[int, int] | None:
        """The first visible record with the latest timestamp, as (offset, timestamp)."""
        visible = self.visible
        if visible is None:
            return None
        latest = NO_TIMESTAMP
        for segment in self.segments:
            if segment is not visible.segment and self.end_of(segment).offset > segment.base_offset:
                latest = max(latest, self._latest(segment))
        latest = max(latest, self._latest_below(visible))
        return self.offset_at(latest, start_offset) if latest != NO_TIMESTAMP else None

    def latest_of(self, segment: Segment) -> int | None:
        """For retention: the latest timestamp; if no record has one, when the next segment was made. None: unknown."""
        latest = segment.latest
        if latest is not None and latest[0] == NO_TIMESTAMP:
            return self._following(segment).created_ms or None
        return latest[0] if latest is not None else None

    def look_up_latest(self, segment: Segment, now_ms: int) -> int:
        """The same; waits for the disk where it must."""
        latest = self._latest(segment)
        if latest != NO_TIMESTAMP:
            return latest
        following = self._following(segment)
        following.look_up_created(now_ms)
        return following.created_ms

    def _following(self, segment: Segment) -> Segment:
        """The next segment, or this one if it is the last."""
        segments = self.segments
        at = bisect_right(segments, segment.base_offset, key=_base_offset)
        return segments[at] if at < len(segments) else segment

    def _latest(self, segment: Segment) -> int:
        known = segment.latest
        return self.index_of(segment).max_timestamp if known is None else known[0]

    def _latest_below(self, visible: Extent) -> int:
        """Of the visible part of the segment that grows: the index knows it up to its last entry, headers the rest."""
        index = self.index_of(visible.segment)
        at = bisect_right(index.positions, visible.position - 1) - 1
        if at < 0:
            return NO_TIMESTAMP
        start = index.before_position(visible.position - 1)
        behind = (header.latest for _, header in self._headers(visible.segment, start))
        return max(index.times[at], max(behind, default=NO_TIMESTAMP))

    def _headers(self, segment: Segment, start: BatchStart) -> Iterator[Step]:
        """The visible headers from a boundary on, passing what may be passed."""
        stop = self.end_of(segment)
        while start.position < stop.position:
            for step in segment.walk(start, stop.position):
                if isinstance(step, BadHeader):
                    break
                start = BatchStart(step.position, step.header.base_offset)
                yield step
            else:
                return
            hole = self._find_bad(segment, start)
            self.holes.passed(hole.base_offset)
            start = BatchStart(hole.end_position, hole.end_offset)

    def _high_watermark(self) -> int:
        return self.visible.offset if self.visible is not None else 0


def _read_batch(segment: Segment, position: int, header: BatchHeader) -> Buffer:
    return read_fully(segment.files, segment.file().fd, header.size, position)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
