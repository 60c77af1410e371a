"""What the broker does when nobody asks: a little of each, once a second.

    snapshots    of internal topics that have grown                        at once
    retention    every partition, open or not, a few at each turn          every log.retention.check.interval.ms
    compaction   partitions with cleanup.policy=compact (cleaner.py)       every log.cleaner.backoff.ms
    overload     what topics under `drop` lost (overload/dropping.py)       at once
    watch        groups that retention is about to overtake (watch.py)     every WALK_EVERY_S
    acknowledged what named groups are done with (acknowledged.py)         at once
    cut          for a backup that asks where partitions end (cutting.py)  at once
    ends         where partitions end that have grown (keeping_ends.py)    at once
    producers    who has not written for long is forgotten                 with retention
    scrub        old bytes are checked before somebody needs them          SCRUB_BYTES a turn, round and round
    disk         free bytes, and hours until it is full at this rate       every DISK_LOOK_S; warns below DISK_WARNING_H

Producers are forgotten by a clock that believes a step forward late (`clock.py`): a batch that is sent again is
known by its producer, and would count twice where a clock that jumps by a day has made everybody silent for a day.

A rate is known after DISK_WATCH_S, not before: what a start or one large file takes in a moment is not a rate.

Everything that waits for a disk runs in a worker thread, one at a time, so that housekeeping never holds up an ack by
more than its share of one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.acknowledged import delete_acknowledged
from tidelog.broker.cleaner import Cleaner
from tidelog.broker.cutting import Cutting
from tidelog.broker.decision import Instant
from tidelog.broker.overload.policy import DROP
from tidelog.clock import SteadyClock
from tidelog.errors import StorageError

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.partition import Partition
    from tidelog.broker.watch import Watch
    from tidelog.log.scrub import Scrubbed

TURN_S = 1.0
DAMAGE_EVERY_S = 24 * 3600
DAMAGES_REMEMBERED = 10_000
PARTITIONS_A_TURN = 200
SCRUB_BYTES = 4 << 20
DISK_LOOK_S = 10.0
DISK_SAMPLES = 60
DISK_WATCH_S = 300.0
DISK_WARNING_H = 24.0
DISK_WARNING_EVERY_S = 600.0


class Sample(NamedTuple):
    at_s: float
    free_bytes: int


def hours_left(samples: Sequence[Sample]) -> float | None:
    """Until the disk is full, at the present rate; None when it does not get fuller, or was not watched for long.

    The rate is that of the slower half of the time: a disk is filling when it gets fuller all along.
    """
    if len(samples) < 3 or samples[-1].at_s - samples[0].at_s < DISK_WATCH_S:
        return None
    middle = len(samples) // 2
    rate = min(_bytes_per_s(samples[0], samples[middle]), _bytes_per_s(samples[middle], samples[-1]))
    return samples[-1].free_bytes / rate / 3600 if rate > 0 else None


def _bytes_per_s(before: Sample, after: Sample) -> float:
    return (before.free_bytes - after.free_bytes) / (after.at_s - before.at_s)


class Housekeeping:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._cleaner = Cleaner(broker)
        self._watch: Watch | None = None
        self._cutting = Cutting(broker, self._cleaner)
        self._retention_walk: Iterator[tuple[str, int]] | None = None
        self._next_retention_s = 0.0
        self._steady = SteadyClock()
        self._steady.look(**broker.now()._asdict())
        self._scrub_walk: Iterator[tuple[str, int]] = iter(())
        self._scrubbing: Partition | None = None
        self._told_again_s: dict[tuple[str, str], float] = {}  # of damage, by its partition's folder
        self._busy = False
        self._samples: deque[Sample] = deque(maxlen=DISK_SAMPLES)
        self._next_look_s = 0.0
        self._next_warning_s = 0.0

    def begin(self) -> None:
        self._broker.scheduler.call_later(TURN_S, self._turn)

    @property
    def free_bytes(self) -> int | None:
        """At the last look; None before the first."""
        return self._samples[-1].free_bytes if self._samples else None

    @property
    def disk_hours_left(self) -> float | None:
        return hours_left(self._samples)

    def _turn(self) -> None:
        self._broker.scheduler.call_later(TURN_S, self._turn)
        now = self._broker.now()
        self._snapshots()
        self._steady.look(**now._asdict())
        self._retention(now)
        self._look_at_disk(now.monotonic_ms / 1000)
        self._cleaner.turn(now.monotonic_ms / 1000)
        self._watch_groups(now)
        if self._broker.overload_made is not None:
            self._broker.overload_made.turn()
        delete_acknowledged(self._broker)
        self._cutting.turn()
        self._broker.keep_ends()
        self._scrub()

    def _watch_groups(self, now: Instant) -> None:
        from tidelog.broker.watch import Watch

        self._watch = self._watch or Watch(self._broker)
        self._watch.turn(now)

    def _snapshots(self) -> None:
        for internal in self._broker.internal_topics():
            if internal.snapshot_due():
                internal.snapshot(self._broker.scheduler.in_thread, partial(self._snapshot_failed, internal.name))

    def _snapshot_failed(self, topic: str, error: BaseException) -> None:
        self._broker.logger.error("snapshot failed", topic=topic, error=error)

    def _retention(self, now: Instant) -> None:
        now_s = now.monotonic_ms / 1000
        if self._retention_walk is None:
            if now_s < self._next_retention_s:
                return
            self._retention_walk = self._broker.partition_names()
            self._next_retention_s = now_s + self._broker.config.int("log.retention.check.interval.ms") / 1000
        for _ in range(PARTITIONS_A_TURN):
            at = next(self._retention_walk, None)
            if at is None:
                self._retention_walk = None
                return
            self._retain(*at, now.wall_ms)

    def _retain(self, topic: str, index: int, wall_ms: int) -> None:
        try:
            partition = self._broker.find_partition(topic, index)
            if partition is not None:
                log = partition.log
                log.forget_producers(self._steady.read(log.settings.producer_expiration_ms))
                log.apply_retention(wall_ms)
                policy = partition.config.overload
                if policy is not None and policy.kind == DROP:
                    self._broker.overload.dropping.wrote(partition)
        except (OSError, StorageError) as error:
            self._broker.logger.error("retention failed", topic=topic, partition=index, error=error)

    def _scrub(self) -> None:
        if self._busy:
            return
        partition = self._scrubbing
        while partition is None or partition.dropped:
            at = next(self._scrub_walk, None)
            if at is None:
                self._scrub_walk = self._broker.partition_names()
                return
            partition = self._broker.open_partition(*at)
        self._scrubbing = partition
        self._busy = True
        log = partition.log
        self._broker.scheduler.in_thread(lambda: log.scrub(SCRUB_BYTES), self._scrubbed)

    def _scrubbed(self, result: object, error: BaseException | None) -> None:
        self._busy = False
        partition, self._scrubbing = self._scrubbing, None
        if partition is None or partition.dropped:  # what goes wrong with a folder that is being removed is not news
            return
        if error is not None:
            self._tell_damage(partition, "scrub failed", error=error)
            return
        scrubbed: Scrubbed = result  # type: ignore[assignment]
        for hole in scrubbed.holes:
            self._tell_damage(partition, "hole found", hole=hole)
        if not scrubbed.finished:
            self._scrubbing = partition

    def _tell_damage(self, partition: Partition, event: str, **what: object) -> None:
        """Once a day, until somebody mends it: a round over few partitions takes seconds."""
        now_s, damage = self._broker.now().monotonic_ms / 1000, (partition.log.folder, f"{event} {what}")
        if now_s < self._told_again_s.get(damage, 0.0):
            return
        if len(self._told_again_s) >= DAMAGES_REMEMBERED:
            self._told_again_s.clear()
        self._told_again_s[damage] = now_s + DAMAGE_EVERY_S
        self._broker.logger.error(event, topic=partition.topic, partition=partition.index, **what)

    def _look_at_disk(self, now_s: float) -> None:
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + DISK_LOOK_S
        self._samples.append(Sample(now_s, self._broker.free_bytes()))
        left = self.disk_hours_left
        if left is not None and left < DISK_WARNING_H and now_s >= self._next_warning_s:
            self._next_warning_s = now_s + DISK_WARNING_EVERY_S
            self._broker.logger.warning(
                "disk is filling", hours_left=round(left, 1), free_bytes=self._samples[-1].free_bytes
            )
