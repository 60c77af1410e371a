"""Which bytes of a segment this process has checked or written itself."""

from __future__ import annotations


class CheckedRanges:
    """Disjoint, sorted ranges. Any thread: the tuple is replaced whole, and what a race loses is only checked again."""

    __slots__ = ("_ranges", "own_from")

    def __init__(self, own_from: int) -> None:
        self.own_from = own_from  # this process wrote or checked everything from here to the end
        self._ranges: tuple[tuple[int, int], ...] = ()

    def covers(self, start: int, stop: int) -> bool:
        if start >= self.own_from:
            return True
        return any(first <= start and (stop <= last or last >= self.own_from) for first, last in self._ranges)

    def add(self, start: int, stop: int) -> None:
        merged = []
        for first, last in self._ranges:
            if last < start or first > stop:
                merged.append((first, last))
            else:
                start, stop = min(start, first), max(stop, last)
        self._ranges = tuple(sorted([*merged, (start, stop)]))
