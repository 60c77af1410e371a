"""Damage that is known: where it is, and whether readers may pass it. Any thread."""

from __future__ import annotations

import threading
from collections.abc import Collection

from tidelog.errors import HoleError
from tidelog.log.facts import Hole
from tidelog.log.index import BatchStart


class Holes:
    """`known` is sorted by offset and replaced whole; most partitions never have any."""

    __slots__ = ("_folder", "_lock", "known")

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self.known: tuple[Hole, ...] = ()

    def add(self, hole: Hole) -> bool:
        """False when it is known already."""
        with self._lock:
            if any(known.base_offset <= hole.base_offset < known.end_offset for known in self.known):
                return False
            self.known = tuple(sorted([*self.known, hole]))
            return True

    def forget(self, segments: Collection[int]) -> None:
        """Of these segments, by their base offsets: other bytes have taken their place."""
        with self._lock:
            self.known = tuple(hole for hole in self.known if hole.segment not in segments)

    def pass_all(self) -> tuple[Hole, ...]:
        """Readers may pass all of them from now on; returns those that they could not pass before."""
        with self._lock:
            before = self.known
            self.known = tuple(hole._replace(passed=True) for hole in before)
        return tuple(hole for hole in before if not hole.passed)

    def passed(self, offset: int) -> int:
        """The offset, or the one behind the holes that it is in; raises at one that may not be passed."""
        for hole in self.known:
            if hole.base_offset <= offset < hole.end_offset:
                if not hole.passed:
                    raise self.error(hole)
                offset = hole.end_offset
        return offset

    def may_be_passed(self, offset: int) -> bool:
        return any(hole.passed and hole.base_offset <= offset < hole.end_offset for hole in self.known)

    def stop_before(self, segment: int, position: int, stop: int) -> int:
        """How far one may read from a position without coming to a hole."""
        for hole in self.known:
            if hole.segment == segment and hole.position >= position:
                return min(stop, hole.position)
        return stop

    def behind(self, segment: int, boundary: BatchStart, offset: int) -> BatchStart:
        """A boundary nearer to the offset than the given one, if the end of a hole is."""
        for hole in self.known:
            if hole.segment == segment and boundary.offset < hole.end_offset <= offset:
                boundary = BatchStart(hole.end_position, hole.end_offset)
        return boundary

    def error(self, hole: Hole) -> HoleError:
        return HoleError(
            f"offsets {hole.base_offset} to {hole.end_offset - 1} in {self._folder} are damaged ({hole.reason});"
            " restore them from a backup, or let readers pass them with tidelog repair --skip"
        )
