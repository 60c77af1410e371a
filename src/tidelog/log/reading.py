"""Reading a partition: from an offset, by time, and what to do where the bytes are bad. Any thread.

The loop's thread replaces `segments`, `visible` and `facts` whole; a reader takes each of them once. Nothing at or
above `visible` is ever looked at.

Known holes are in `facts.holes`, sorted. A read inside one that `repair` has not passed raises HoleError; inside a
passed one it goes on behind it. A slice never contains one. A hole that is come upon is told to `on_hole`, which
remembers it.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator

from tidelog.errors import HoleError, OffsetOutOfRange
from tidelog.log.facts import Facts, Hole
from tidelog.log.files import read_fully
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.index import NO_TIMESTAMP, Entry, Index
from tidelog.log.index_cache import IndexCache
from tidelog.log.index_file import find_hole, rebuild_index
from tidelog.log.segment import BadHeader, Place, Segment, Step
from tidelog.log.slice import Cold, Slice
from tidelog.log.tail import Extent
from tidelog.record.header import BatchHeader


class Reading:
    __slots__ = ("_index_cache", "_rebuilding", "facts", "folder", "interval", "on_hole", "segments", "visible")

    def __init__(self, folder: str, index_cache: IndexCache, on_hole: Callable[[Hole], None]) -> None:
        self.folder = folder
        self.on_hole = on_hole
        self.interval = 0
        self.segments: tuple[Segment, ...] = ()
        self.visible: Extent | None = None
        self.facts = Facts()
        self._index_cache = index_cache
        self._rebuilding = threading.Lock()

    # By offset --------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, limit: int | None, *, min_one: bool, wait: bool) -> Slice | None:
        visible, facts = self.visible, self.facts
        if visible is None:
            return None
        top = visible.offset if limit is None or limit > visible.offset else limit
        if facts.holes:
            offset = self._pass_holes(offset)
        if offset >= top:
            return None
        segment = self.segment_of(offset)
        place = segment.find_recent(offset) or self._find(segment, offset, wait)
        stop = self.end_of(segment)[0]
        if top < visible.offset:
            stop = self._position_of(segment, top, wait)
        for hole in facts.holes:
            if hole.segment == segment.base_offset and hole.position >= place.position:
                stop = min(stop, hole.position)
        end = place.position + max_bytes
        end = stop if end >= stop else segment.boundary(place.position, end)
        if end < place.position + place.size:
            if not min_one:
                return None
            end = place.position + place.size
        file = segment.find_file()
        if file is None:
            if not wait:
                raise Cold
            file = segment.file()
        return Slice(self, facts.epochs, segment, file, place.position, end - place.position, place.base_offset)

    def segment_of(self, offset: int) -> Segment:
        segments = self.segments
        at = bisect_right(segments, offset, key=_base_offset) - 1
        if at < 0:  # deleted since the caller looked at the start offset
            start = segments[0].base_offset if segments else offset + 1
            raise OffsetOutOfRange(f"offset {offset} was deleted; the first is {start}", start, self._high_watermark())
        return segments[at]

    def end_of(self, segment: Segment) -> tuple[int, int]:
        """Where the visible part of a segment ends: (position, offset)."""
        visible = self.visible
        assert visible is not None
        if segment is visible.segment:
            return visible.position, visible.offset
        segments = self.segments
        following = bisect_right(segments, segment.base_offset, key=_base_offset)
        if segment.base_offset > visible.segment.base_offset or following == len(segments):
            return HEADER_BLOCK, segment.base_offset
        return segment.end, segments[following].base_offset

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
        entry = index.before_offset(offset - segment.base_offset) if index is not None else None
        return entry.position if entry is not None else HEADER_BLOCK

    def _find(self, segment: Segment, offset: int, wait: bool) -> Place:
        if not wait:
            raise Cold
        end, end_offset = self.end_of(segment)
        found = segment.find(self.index_of(segment), offset, end)
        if found is None:
            found = BadHeader(end, offset, f"offsets {offset} to {end_offset} are missing")
        if isinstance(found, BadHeader):
            raise self.found_bad(segment, found)
        return found

    def _position_of(self, segment: Segment, offset: int, wait: bool) -> int:
        """Where an offset begins, or the end of the segment when it is behind it."""
        end, end_offset = self.end_of(segment)
        if offset >= end_offset:
            return end
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
                        self.on_hole(hole)
            self._index_cache.note(segment)
        return index

    # Holes ------------------------------------------------------------------------------------------------------------

    def found_bad(self, segment: Segment, bad: BadHeader) -> HoleError:
        """Finds out how far it goes, has it remembered, and gives the error to raise."""
        hole = find_hole(segment, segment.index, bad, self.end_of(segment), self.facts.epochs)
        self.on_hole(hole)
        return self._hole_error(hole)

    def _pass_holes(self, offset: int) -> int:
        for hole in self.facts.holes:
            if hole.base_offset <= offset < hole.end_offset:
                if not hole.passed:
                    raise self._hole_error(hole)
                offset = hole.end_offset
        return offset

    def _hole_error(self, hole: Hole) -> HoleError:
        return HoleError(
            f"offsets {hole.base_offset} to {hole.end_offset - 1} in {self.folder} are damaged ({hole.reason});"
            " restore them from a backup, or let readers pass them with tidelog repair --skip"
        )

    # By time ----------------------------------------------------------------------------------------------------------

    def offset_at(self, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
        """The first visible record at or after a time, as (offset, timestamp)."""
        if self.visible is None:
            return None
        for segment in self.segments:
            if self._latest(segment) < timestamp_ms:
                continue
            entry = self.index_of(segment).before_time(timestamp_ms)
            for position, header in self._headers(segment, entry):
                if header.max_timestamp >= timestamp_ms and header.next_offset > start_offset:
                    found = _first_row(segment, position, header, timestamp_ms, start_offset)
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
            if segment is not visible.segment:
                latest = max(latest, self._latest(segment)) if self.end_of(segment)[1] > segment.base_offset else latest
        latest = max(latest, self._latest_below(visible))
        return self.offset_at(latest, start_offset) if latest != NO_TIMESTAMP else None

    def _latest(self, segment: Segment) -> int:
        known = segment.latest
        return self.index_of(segment).max_timestamp if known is None else known[0]

    def _latest_below(self, visible: Extent) -> int:
        """Of the visible part of the segment that grows: the index knows it up to its last entry, headers the rest."""
        index = self.index_of(visible.segment)
        at = bisect_right(index.positions, visible.position - 1) - 1
        if at < 0:
            return NO_TIMESTAMP
        entry = Entry(index.positions[at], index.offsets[at])
        behind = (header.max_timestamp for _, header in self._headers(visible.segment, entry))
        return max(index.times[at], max(behind, default=NO_TIMESTAMP))

    def _headers(self, segment: Segment, entry: Entry | None) -> Iterator[Step]:
        """The visible headers from an entry on, passing what may be passed."""
        position, relative = entry or (HEADER_BLOCK, 0)
        offset = segment.base_offset + relative
        while True:
            for step in segment.walk(position, offset, self.end_of(segment)[0]):
                if isinstance(step, BadHeader):
                    break
                yield step
            else:
                return
            passed = [hole for hole in self.facts.holes if hole.passed and hole.base_offset == step.offset]
            if not passed:
                raise self.found_bad(segment, step)
            position, offset = passed[0].end_position, passed[0].end_offset

    def _high_watermark(self) -> int:
        return self.visible.offset if self.visible is not None else 0


def _first_row(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    if header.append_time:
        return max(header.base_offset, start_offset), header.max_timestamp
    from tidelog.record.columns import decode

    columns = decode(read_fully(segment.files, segment.file().fd, header.size, position))
    for offset, timestamp in zip(columns.offsets, columns.timestamps, strict=True):
        if timestamp >= timestamp_ms and offset >= start_offset:
            return offset, timestamp
    return None


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
