"""Compaction of all partitions: one at a time, in turn, a few megabytes at a time, in the background.

    walking      partition by partition, CHECKED_A_TURN of them a second
    compacting   one partition, turn after turn until nothing is due there; with log.cleaner.io.max.bytes.per.second a
                 turn waits until the bytes of the one before are paid for
    pausing      log.cleaner.backoff.ms, after a walk

A log that has not been used since the start is passed over until retention has loaded it. Kafka takes the dirtiest log
first; here each has its turn, so no busy topic keeps another one waiting for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.partition import Partition
    from tidelog.log.compaction.compactor import Pass, Turn

CHECKED_A_TURN = 200
REST_S = 1.0
TURN_BYTES = 4 << 20  # read between two looks at whether somebody else needs the thread


class Cleaner:
    """The loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._walk: Iterator[tuple[str, int]] | None = None
        self._next_walk_s = 0.0
        self._compacting: Partition | None = None
        self._left = 0
        self.rests = False  # set by whoever needs segments as they are (cutting.py): what is begun goes no further
        self._begun_ms = 0  # when the pass that is under way began

    def turn(self, now_s: float) -> None:
        """Once a second."""
        if self.rests or self._compacting is not None or not self._broker.config.flag("log.cleaner.enable"):
            return
        if self._walk is None:
            if now_s < self._next_walk_s:
                return
            self._walk = self._broker.partition_names()
        self._left = CHECKED_A_TURN
        self._go_on()

    def _go_on(self) -> None:
        """To the next partition that may have something to compact."""
        assert self._walk is not None
        while self._left > 0:
            self._left -= 1
            at = next(self._walk, None)
            if at is None:
                self._walk = None
                now = self._broker.now().monotonic_ms
                self._next_walk_s = (now + self._broker.config.int("log.cleaner.backoff.ms")) / 1000
                return
            partition = self._broker.open_partition(*at)
            if partition is not None and partition.log.may_be_dirty:
                self._compacting, self._begun_ms = partition, self._broker.now().monotonic_ms
                self._compact(partition)
                return

    def _compact(self, partition: Partition) -> None:
        if partition.dropped:
            self._compacting = None
            return
        if self.rests:
            self._broker.scheduler.call_later(REST_S, partial(self._compact, partition))
            return
        key_bytes = self._broker.config.int("log.cleaner.dedupe.buffer.size")
        partition.log.compact(self._broker.now().wall_ms, TURN_BYTES, partial(self._told, partition), key_bytes)

    def _told(self, partition: Partition, turn: Turn) -> None:
        if turn.over is not None:
            self._tell(partition, turn.over)
        if not turn.more:
            self._compacting = None
            if self._walk is not None and not partition.dropped:
                self._broker.scheduler.call_later(0.0, self._go_on_later)
            return
        limit = self._broker.config.values["log.cleaner.io.max.bytes.per.second"]
        assert isinstance(limit, int | float)
        self._broker.scheduler.call_later(turn.read_bytes / max(limit, 1), partial(self._compact, partition))

    def _go_on_later(self) -> None:
        if self._compacting is None and self._walk is not None:
            self._go_on()

    def _tell(self, partition: Partition, over: Pass) -> None:
        tally = over.tally
        begun_ms, self._begun_ms = self._begun_ms, self._broker.now().monotonic_ms
        self._broker.logger.info(
            "compacted",
            topic=partition.topic,
            partition=partition.index,
            offsets=f"{over.start} to {over.end}",
            records=f"{tally.records_before} to {tally.records_after}",
            bytes=f"{tally.bytes_before} to {tally.bytes_after}",
            seconds=(self._begun_ms - begun_ms) / 1000,
        )
        said = (
            (tally.keyless, "records without a key were removed: nothing could ever follow on them"),
            (tally.unreadable, "batches whose records cannot be read were left as they are"),
            (not over.whole, "segments with holes were left out, and tombstones stay until they are repaired"),
        )
        for count, what in said:
            if count:
                self._broker.logger.warning(
                    "compaction", topic=partition.topic, partition=partition.index, count=int(count), what=what
                )
