"""A streaming query's plan, kept by the driver between triggers: where it starts, how far each micro-batch goes.

Rules:
- What is decided from offsets alone is in `admission.py`; here is what must be remembered: the last offsets seen, when
  the last micro-batch began, the end that `bind` fixed, the ids of topics.
- A topic that was made anew while the query runs is read from its beginning.
- Otherwise `begin` depends on its arguments and on what lies in the topics, so that a micro-batch that is planned
  again, also after a restart, has the same ranges.
- Offsets that are gone are data loss: an error, or a warning with `fail_on_data_loss` false.
- With `wait_ms`, a look that finds nothing new, as the one before it, waits at the broker for a record: a query at rest
  costs a look a second. The first such look does not wait: Spark may have a micro-batch to run that needs no record,
  and looks here before. Nor does one that alignment or a limit holds back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import read_mark
from tidelog.errors import DataLoss, TidelogError
from tidelog.spark.admission import share_out, waits_for_more
from tidelog.spark.alignment import Alignment
from tidelog.spark.discovery import Discovery
from tidelog.spark.offsets import Offsets
from tidelog.spark.options import GO_ON, SourceOptions
from tidelog.spark.reading import warn_of_loss
from tidelog.spark.reporting import OffsetReporter
from tidelog.spark.ticks import Idleness, Tick, bounded

LOOKS_AT_LATEST = 3  # a broker that has just become leader may say an old end
LOOK_AGAIN_S = 0.2
ANY_BYTES = 1  # of a record that is waited for: the broker hands out one batch, however large


class Planner:
    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.discovery = Discovery(options)
        self.alignment = None if options.alignment_ms is None else Alignment(options, self.discovery)
        self.idleness = Idleness(options.idle_after_ms) if options.ticks else None
        self.reporter = OffsetReporter(self.discovery, options.group)
        self.latest: Offsets = {}
        self._initial: Offsets | None = None
        self._bound: bool = False
        self._target: Offsets | None = None
        self._last_trigger: float | None = None
        self._rested_at: Offsets | None = None  # where the last look has found nothing new
        self._topic_ids: dict[str, bytes] = {}
        self._left_behind: Offsets = {}  # where the query was when a topic was found to be made anew

    def close(self) -> None:
        self.reporter.report()
        self.discovery.close()

    def initial(self) -> Offsets:
        """Once: Spark asks again until its first micro-batch is committed, and `latest` would have moved on."""
        if self._initial is None:
            self._initial = self.discovery.resolve(self.options.starting)
        return self._initial

    def bind(self) -> None:
        self._bound = True

    def end(self, start: Offsets, most: int | None, *, everything: bool, now: float) -> Offsets:
        """How far the micro-batch that starts there goes."""
        found = self._end(start, most, everything=everything, now=now)
        self.reporter.trigger(start, idle=found == start, now=now)
        return found

    def rests(self, start: Offsets, *, found: Offsets) -> bool:
        """Whether there was nothing to read behind `start`, at this look and at the one before."""
        at_rest = found == start == self.latest and not self._bound
        again = at_rest and self._rested_at == start
        self._rested_at = dict(start) if at_rest else None
        return again and self.options.wait_ms > 0

    def await_record(self, start: Offsets) -> None:
        """Returns when there is one, or after `wait_ms`. What is wrong will show at the next look."""
        consumer = Consumer(
            self.discovery.cluster,
            max_wait_ms=self.options.wait_ms,
            max_partition_bytes=ANY_BYTES,
            read_committed=self.options.reach.read_committed,
        )
        try:
            consumer.assign(start)
            consumer.fetch()
        except TidelogError:
            self.discovery.close()

    def _end(self, start: Offsets, most: int | None, *, everything: bool, now: float) -> Offsets:
        self.latest = latest = self._look(start)
        begin = start | self._beginnings(start, latest) | self._anew(start)
        if everything:
            return latest
        least = None if self._bound else self.options.min_offsets
        if least is not None:
            waited = (now - self._last_trigger) * 1000 if self._last_trigger is not None else float("inf")
            if waits_for_more(least, begin, latest, waited_ms=waited, at_most_ms=self.options.max_delay_ms):
                return start
            self._last_trigger = now
        ends = latest if most is None else share_out(most, begin, latest)
        if self.alignment is not None:
            ends = self.alignment.align(begin, latest, ends, bound=self._bound, now=now)
        return ends

    def tick(self, start: Offsets, *, now: float) -> Tick | None:
        """Where the last look has found nothing after `start`: a tick, if it is time for one."""
        if self.idleness is None or self._bound:
            return None
        clock_ms = int(time.time() * 1000)
        if start != self.latest:
            self.idleness.stir(now=now, clock_ms=clock_ms)
            return None
        found = self.idleness.tick(now=now, clock_ms=clock_ms)
        if found is not None and self.discovery.has_open_transactions(self.latest):
            self.idleness.stir(now=now, clock_ms=clock_ms)
            return None
        if found is not None:
            self.idleness.ticked(now)
            found = bounded(found, self._complete_ms())
        return found

    def _complete_ms(self) -> int | None:
        """Up to when the capture that writes the topic has told all; None where it does not say."""
        sink = self.options.ticks_up_to
        mark = None if sink is None else read_mark(self.discovery.cluster, sink)
        return None if mark is None else mark.complete_ms

    def _look(self, start: Offsets) -> Offsets:
        if self._target is not None:
            return self._target
        latest = self.discovery.latest()
        self._compare_ids(start)
        for _ in range(LOOKS_AT_LATEST - 1):
            if all(start.get(at, 0) <= end or at in self._left_behind for at, end in latest.items()):
                break
            time.sleep(LOOK_AGAIN_S)
            latest = self.discovery.latest()
        if self._bound:
            self._target = latest
        return latest

    def _compare_ids(self, start: Offsets) -> None:
        found = self.discovery.topic_ids
        anew = {topic for topic, one in self._topic_ids.items() if found[topic] != one}
        self._topic_ids = dict(found)
        # A query that has gone on from there may come by the same offset again, which is the new topic's then.
        self._left_behind = {at: offset for at, offset in self._left_behind.items() if start.get(at) == offset}
        left = {at: offset for at, offset in start.items() if at.topic in anew}
        for at, offset in left.items():
            self._lose(f"{at} was deleted and created again after it had been read up to {offset}")
        self._left_behind.update(left)

    def _anew(self, start: Offsets) -> Offsets:
        """Where partitions of topics that were made anew begin, as long as the query is still where it was before."""
        return self.discovery.earliest([at for at, offset in self._left_behind.items() if start.get(at) == offset])

    def _beginnings(self, start: Offsets, end: Mapping[TopicPartition, int]) -> Offsets:
        """Where new partitions begin; their end where they were deleted in the meantime."""
        new = [at for at in end if at not in start]
        found = self.discovery.earliest(new)
        return {at: found.get(at, end[at]) for at in new}

    def begin(self, start: Offsets, end: Offsets) -> Offsets:
        """Where each partition of a micro-batch begins, after a look at what is missing."""
        if gone := sorted(start.keys() - end.keys()):
            self._lose(f"{', '.join(map(str, gone))} {'are' if len(gone) > 1 else 'is'} gone")
        new = self._beginnings(start, end)
        for at, offset in new.items():
            if offset > 0:
                self._lose(f"{at} is new to this query and begins at {offset}, not at 0")
        anew = self._anew(start)
        for at, offset in start.items():
            if at not in anew and offset > end.get(at, offset):
                made_anew = "the topic was truncated, or deleted and created again"
                self._lose(f"{at} ends at {end[at]} where the query had read up to {offset}; {made_anew}")
        return start | new | anew

    def topic_ids(self) -> Mapping[str, bytes]:
        """For tasks, which read the topics that were planned and no others of their names."""
        if not self.discovery.topic_ids:
            self.discovery.partitions()  # a micro-batch of the run before is planned again
        return self.discovery.topic_ids

    def _lose(self, gone: str) -> None:
        if self.options.fail_on_data_loss:
            raise DataLoss(f"{gone}; data may be lost: {GO_ON}")
        warn_of_loss(gone)
