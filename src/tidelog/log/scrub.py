"""Checking old bytes before somebody needs them: a little at a time, from the oldest to the newest, then again.

A segment whose batches are good and end before the next one begins has lost what lay between, or a whole segment has:
that is a hole as well, without bytes. What readers may pass is known, and told no more.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.log.checking import check_batches
from tidelog.log.facts import Hole
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.index import BatchStart
from tidelog.log.index_file import find_hole
from tidelog.log.reading import Reading
from tidelog.log.segment import Segment

SCRUB_STEP = 4 << 20  # checked between two looks at how far we are


class Scrubbed(NamedTuple):
    checked_bytes: int
    holes: tuple[Hole, ...]
    finished: bool  # the newest visible batch was reached; the next call begins anew


class Scrub:
    """Remembers how far it has come. One thread at a time, any thread."""

    __slots__ = ("_at", "_reading", "_segment")

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._segment: Segment | None = None
        self._at = BatchStart(0, 0)

    def run(self, max_bytes: int) -> Scrubbed:
        """Checks about `max_bytes`; what is bad is told to the partition, and comes back."""
        checked_bytes = 0
        holes: list[Hole] = []
        while checked_bytes < max_bytes:
            if not self._find_next():
                self._segment = None
                return Scrubbed(checked_bytes, tuple(holes), True)
            before = self._at.position
            hole = self._step(min(max_bytes - checked_bytes, SCRUB_STEP))
            checked_bytes += self._at.position - before
            if hole is not None:
                holes.append(hole)
        return Scrubbed(checked_bytes, tuple(holes), False)

    def _find_next(self) -> bool:
        """Goes on with the segment, or with the one after it; False when there is nothing more to check."""
        segments = self._reading.segments
        segment = self._segment
        if segment is not None and segment in segments and self._at.position < self._reading.end_of(segment).position:
            return True
        before = segment.base_offset if segment is not None else -1
        later = [other for other in segments if other.base_offset > before]
        for following in later:
            start = BatchStart(HEADER_BLOCK, following.base_offset)
            if self._reading.visible is not None and self._reading.end_of(following).offset > start.offset:
                self._segment, self._at = following, start
                return True
        return False

    def _step(self, max_bytes: int) -> Hole | None:
        segment = self._segment
        assert segment is not None
        index = self._reading.index_of(segment)
        start, end = self._at, self._reading.end_of(segment)
        stop = min(index.after_position(start.position + max_bytes) or end, end).position
        file = segment.file()
        cached = segment.files.is_cached(file.fd, start.position, stop - start.position)
        epochs = self._reading.facts.epochs
        checked = check_batches(segment.files, file.fd, start, stop, epochs)
        segment.checked.add(start.position, checked.end.position)
        if not cached:
            segment.files.forget(file.fd, start.position, stop - start.position)
        self._at = checked.end
        if checked.fault is None and (stop < end.position or checked.end.offset == end.offset):
            return None
        hole = find_hole(segment, index, checked.end, checked.fault, end, epochs)
        self._reading.note_hole(segment, hole)
        self._at = BatchStart(hole.end_position, hole.end_offset)
        return None if self._reading.holes.may_be_passed(hole.base_offset) else hole
