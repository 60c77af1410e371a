"""Tumbling and hopping windows: [start, end) on a grid, the same for every key.

    number       0       1       2          a window's number; it begins at offset + number * every, before 1970 too
    every 2      |----0----|
    size 5           |----1----|
                         |----2----|
    panes        |.|.|.|.|.|.|.|.|.|        the pane at 4 lies in windows 0 to 2: its `first` and its `last`

Time zones and daylight saving are nothing to it: a day is 24 hours, and begins at midnight in UTC unless the offset
says otherwise.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tidelog.pipelines.operators.grouping import Booleans, Integers, expand
from tidelog.pipelines.operators.windows.output import LateRows
from tidelog.pipelines.operators.windows.panes import Panes
from tidelog.pipelines.operators.windows.spec import Bounds


class Grid(NamedTuple):
    """Microseconds; `every` is not longer than `size`."""

    size: int
    every: int
    offset: int = 0

    @property
    def pane(self) -> int:
        return math.gcd(self.size, self.every)

    @property
    def tumbles(self) -> bool:
        return self.size == self.every

    def panes(self, times: Integers) -> Integers:
        """Where the pane of each time begins."""
        return times - np.mod(times - self.offset, self.pane)

    def first(self, panes: Integers) -> Integers:
        """The number of the first window that has the pane."""
        return -((self.size - self.pane - (panes - self.offset)) // self.every)

    def last(self, panes: Integers) -> Integers:
        return (panes - self.offset) // self.every

    def ended(self, time: Integers | int) -> Integers:
        """The number of the last window that has ended at that time."""
        return np.asarray((time - self.offset - self.size) // self.every)

    def starts(self, numbers: Integers) -> Integers:
        return self.offset + numbers * self.every

    def ends(self, numbers: Integers) -> Integers:
        return self.starts(numbers) + self.size


class Lateness(NamedTuple):
    """For each row: in how many windows it lies, and for how many of these it is too late: the first ones."""

    windows: Integers
    late: Integers


def lateness(grid: Grid, panes: Integers, bounds: Bounds) -> Lateness:
    first, last = grid.first(panes), grid.last(panes)
    windows = last - first + 1
    return Lateness(windows, np.clip(grid.ended(bounds.late) - first + 1, 0, windows))


def late_windows(grid: Grid, places: Integers, panes: Integers, late: Integers) -> LateRows:
    owners, numbers = expand(grid.first(panes), late)
    return LateRows(places[owners], grid.starts(numbers), grid.ends(numbers))


def candidates(grid: Grid, panes: Panes, early: bool, bounds: Bounds) -> tuple[Integers, Integers]:
    """For each pane the windows that it may cause to be put out: the number of the first, and how many.

    One that was there before: those that have ended since. One that has changed: those that still take rows, and have
    ended, or are put out early.
    """
    first, last = grid.first(panes.starts), grid.last(panes.starts)
    until = last if early else np.minimum(last, grid.ended(bounds.reached))
    never = last + 1
    ended = never.copy()
    if not early:
        ended[: panes.old] = grid.ended(panes.seen[panes.codes[: panes.old]]) + 1
    open_ = np.where(panes.changed, grid.ended(bounds.late) + 1, never)
    begin = np.maximum(first, np.minimum(ended, open_))
    return begin, np.maximum(until - begin + 1, 0)


def needed(grid: Grid, panes: Integers, early: bool, allowed: int, bounds: Bounds) -> tuple[Booleans, Integers]:
    """Which panes are still needed, and when each has to be looked at again."""
    first, last = grid.first(panes), grid.last(panes)
    gone = grid.ends(last) + allowed
    following = np.maximum(first, grid.ended(bounds.reached) + 1)
    due = gone if early else np.where(following <= last, grid.ends(following), gone)
    return gone > bounds.reached, due
