"""Partitions that catch up together: what `admission.ceiling` needs to know of their times, asked of the brokers.

Rules:
- The time of a partition is looked at where it is to be read next, once for each place.
- Where that would cut a micro-batch short, it is looked at where the micro-batch leaves the partition as well: what is
  left unread is all that can come late. So a replay takes as much at a time as its limit allows, whatever the lateness,
  as long as all partitions end at about the same time.
- The broker's index of timestamps names the first offset that is above the ceiling, wherever it lies. It may have been
  read already, or be a transaction's end, whose time is the clock's. From there on, and always where the time is a
  field of the value, the place is looked for by halves among the records that can be seen.
- A query that is bound to an end is not held by partitions that have reached it: nothing more will come of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import NOT_FOUND
from tidelog.spark.admission import Pace, ceiling, end_below
from tidelog.spark.discovery import Discovery
from tidelog.spark.offsets import Offsets
from tidelog.spark.options import SourceOptions
from tidelog.spark.timing import times_at
from tidelog.spark.value_times import time_reader

LOOK_BACK = 2  # offsets before the end of a partition: the last may be a transaction's end, which has no time


class Alignment:
    def __init__(self, options: SourceOptions, discovery: Discovery) -> None:
        assert options.alignment_ms is not None
        self.lateness_ms = options.alignment_ms
        self.options = options
        self.time_of = time_reader(options.align_by)
        self.discovery = discovery
        self._times: dict[TopicPartition, tuple[int, int | None]] = {}  # offset, and the time there
        self._at_end_since: dict[TopicPartition, float] = {}

    def align(self, start: Offsets, latest: Offsets, ends: Offsets, *, bound: bool, now: float) -> Offsets:
        """The ends, or earlier ones. `start` has every partition of `latest`; `now` is in seconds."""
        if len(latest) == 1:
            return ends  # nobody is left behind
        behind = {at: start[at] for at, end in latest.items() if start[at] < end}
        at_end = [] if bound else [at for at in latest if at not in behind and start[at] > 0]
        self._at_end_since = {at: self._at_end_since.get(at, now) for at in at_end}
        highest = self._ceiling(start, latest, bound, now)
        if highest is None or not self._passing(behind, highest):
            return ends
        higher = self._ceiling(ends, latest, bound, now)
        if higher is None:
            return ends
        highest = max(highest, higher)
        passing = self._passing(behind, highest)
        return ends | {at: self._end(at, first, highest, start[at], ends[at]) for at, first in passing.items()}

    def _ceiling(self, places: Offsets, latest: Offsets, bound: bool, now: float) -> int | None:
        """By the times of what is to be read next, if it is read from there."""
        behind = {at: places[at] for at, end in latest.items() if places[at] < end}
        at_end = [] if bound else [at for at in latest if at not in behind and places[at] > 0]
        waiting = {at: max(places[at] - LOOK_BACK, 0) for at in at_end}
        self._look(behind | waiting)
        paces = {at: Pace(self._times[at][1]) for at in behind}
        paces |= {at: Pace(self._times[at][1], (now - self._at_end_since.get(at, now)) * 1000) for at in waiting}
        return ceiling(paces, lateness_ms=self.lateness_ms, idle_after_ms=self.options.idle_after_ms)

    def _look(self, places: Offsets) -> None:
        unknown = [(at, offset) for at, offset in places.items() if self._times.get(at, (None,))[0] != offset]
        found = self._times_at(unknown)
        self._times = {at: (offset, found[at]) if at in found else self._times[at] for at, offset in places.items()}

    def _times_at(self, places: Iterable[tuple[TopicPartition, int]]) -> dict[TopicPartition, int | None]:
        committed = self.options.reach.read_committed
        return times_at(self.discovery.cluster, places, self.time_of, read_committed=committed)

    def _passing(self, behind: Offsets, highest: int) -> dict[TopicPartition, int | None]:
        """Those that may pass the ceiling, with the first offset above it where that is known."""
        if not self.options.align_by.is_record_time:
            return dict.fromkeys(behind)
        found = self.discovery.offsets(behind, highest + 1)
        return {at: first for at, first in found.items() if first != NOT_FOUND}

    def _end(self, at: TopicPartition, first: int | None, highest: int, start: int, end: int) -> int:
        known = start if first is None else max(start, first)  # nothing before it is above
        if known >= end:
            return end
        return end_below(highest, known, end, lambda offset: self._times_at([(at, offset)])[at])
