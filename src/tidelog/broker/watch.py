"""Groups that read too slowly: retention will take what they have not read, and they are told before it does.

    walking     over all committed offsets, PLACES_A_TURN of them a second; what must be looked up is, in a thread
    pausing     WALK_EVERY_S after the beginning of a walk, or half of log.retention.check.interval.ms if that is less

What is found is judged by `slow_consumers`. An episode that begins, gets worse or ends is a record in the compacted
topic `__tidelog.warnings`, which is made when the first one is written:

    key      {"v":1,"kind":"retention","group":G,"topic":T,"partition":P}
    value    {"at_ms":MS,"state":"warned"|"lost","since_ms":MS,"committed":N,"start":N,"end":N,"lag_records":N,
              "lag_bytes":N,"lag_ms":MS|null,"left_ms":MS|null,"by":"time"|"size"|null,"lost_records":N}
    null     the episode is over

They are read back after a start, so that a restart repeats no warning. Memory is bounded: an entry for each episode, up
to EPISODES_MAX, and RATE_SAMPLES for each partition that retention may cut by size and somebody lags in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker import warnings_topic
from tidelog.broker.decision import Instant
from tidelog.broker.names import is_own
from tidelog.broker.slow_consumers import (
    LOST,
    Episode,
    Found,
    TimeLeft,
    Written,
    bytes_per_s,
    judge,
    threshold_ms,
    time_left,
)
from tidelog.errors import OffsetOutOfRange, StorageError
from tidelog.log.settings import FOREVER

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.partition import Partition
    from tidelog.log.backlog import Unread
    from tidelog.log.log import Log

PLACES_A_TURN = 500
WALK_EVERY_S = 30.0
EPISODES_MAX = 50_000
RATE_SAMPLES = 20
KIND = "retention"


class GroupPartition(NamedTuple):
    group: str
    topic: str
    partition: int


class Look(NamedTuple):
    """What is to be looked up, and what for."""

    place: GroupPartition
    committed: int
    partition: Partition


class Writing:
    """How fast a partition is written: its end when it was last looked at, and what had been written by then."""

    __slots__ = ("offset", "samples")

    def __init__(self, offset: int, at_s: float) -> None:
        self.offset = offset
        self.samples: deque[Written] = deque([Written(at_s, 0)], maxlen=RATE_SAMPLES)

    def note(self, log: Log, end: int, at_s: float) -> None:
        if at_s > self.samples[-1].at_s:
            total = self.samples[-1].total_bytes + log.bytes_between(self.offset, end)
            self.samples.append(Written(at_s, total))
            self.offset = end


class Watch:
    """The loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._walk: Iterator[tuple[GroupPartition, int]] | None = None
        self._next_walk_s = 0.0
        self._busy = False
        self._episodes: dict[GroupPartition, Episode] | None = None  # None: they have not been read back yet
        self._writing: dict[tuple[str, int], Writing] = {}
        self._seen: set[tuple[str, int]] = set()  # partitions of which the rate was asked for in this walk

    def turn(self, now: Instant) -> None:
        """Once a second."""
        if self._busy:
            return
        if self._episodes is None:
            self._recall()
            return
        if self._walk is None:
            if now.monotonic_ms / 1000 < self._next_walk_s:
                return
            self._begin_walk(now.monotonic_ms / 1000)
        looks = self._gather(now)
        if looks:
            self._busy = True
            self._broker.scheduler.in_thread(
                lambda: [(look, _look(look, now.wall_ms)) for look in looks],
                lambda result, error: self._looked(result, error, now),
            )

    # Walking ----------------------------------------------------------------------------------------------------------

    def _begin_walk(self, now_s: float) -> None:
        every_s = min(WALK_EVERY_S, self._broker.config.int("log.retention.check.interval.ms") / 2000)
        self._next_walk_s = now_s + every_s
        self._walk = self._places()
        self._seen = set()

    def _places(self) -> Iterator[tuple[GroupPartition, int]]:
        """Every committed offset; those that come and go while we walk do not matter."""
        offsets = self._broker.groups.offsets
        for group in list(offsets):
            for (topic, index), committed in list(offsets.get(group, {}).items()):
                if not is_own(topic):  # the broker cuts its own as it likes
                    yield GroupPartition(group, topic, index), committed.offset

    def _gather(self, now: Instant) -> list[Look]:
        """The next ones that may be in trouble, without looking at the disk."""
        assert self._walk is not None
        looks = []
        calm = []
        for _ in range(PLACES_A_TURN):
            at = next(self._walk, None)
            if at is None:
                self._end_walk(now)
                break
            place, committed = at
            partition = self._partition(place)
            if partition is not None and _may_lose(partition, committed):
                looks.append(Look(place, committed, partition))
            else:
                calm.append(place)
        self._forget(calm, now)
        return looks

    def _partition(self, place: GroupPartition) -> Partition | None:
        try:
            return self._broker.find_partition(place.topic, place.partition)
        except (OSError, StorageError) as error:
            self._broker.logger.seldom("lag not known", topic=place.topic, partition=place.partition, error=error)
            return None

    def _end_walk(self, now: Instant) -> None:
        self._walk = None
        self._writing = {at: writing for at, writing in self._writing.items() if at in self._seen}
        offsets = self._broker.groups.offsets
        episodes = self._episodes or {}
        gone = [place for place in episodes if (place.topic, place.partition) not in offsets.get(place.group, {})]
        self._forget(gone, now)

    def _forget(self, places: list[GroupPartition], now: Instant) -> None:
        episodes = self._episodes or {}
        self._write([(place, None, None) for place in places if place in episodes], now)

    # What was found ---------------------------------------------------------------------------------------------------

    def _looked(self, result: object, error: BaseException | None, now: Instant) -> None:
        self._busy = False
        if error is not None:
            self._broker.logger.seldom("lag not known", error=error)
            return
        found: list[tuple[Look, Unread | None]] = result  # type: ignore[assignment]
        changes = [self._judge(look, unread, now) for look, unread in found if unread is not None]
        self._write([change for change in changes if change is not None], now)

    def _judge(
        self, look: Look, unread: Unread, now: Instant
    ) -> tuple[GroupPartition, Episode | None, dict[str, Any] | None] | None:
        assert self._episodes is not None
        settings, place = look.partition.log.settings, look.place
        rate = self._rate(look.partition, unread, now) if settings.retention_bytes != FOREVER else None
        left = time_left(unread.segments, settings, now.wall_ms, unread.first, rate)
        before = self._episodes.get(place)
        threshold = threshold_ms(self._broker.config.values["tidelog.retention.warning.ms"], settings)  # type: ignore[arg-type]
        after = judge(before, Found(unread.lost, left), threshold, now.wall_ms)
        if before is None and after is not None and len(self._episodes) >= EPISODES_MAX:
            self._broker.logger.seldom("more groups lag than are remembered", episodes=EPISODES_MAX)
            return None
        if after == before:
            return None
        return place, after, None if after is None else _told(after, look, unread, left, now.wall_ms)

    def _rate(self, partition: Partition, unread: Unread, now: Instant) -> float | None:
        at, now_s = (partition.topic, partition.index), now.monotonic_ms / 1000
        self._seen.add(at)
        writing = self._writing.get(at)
        if writing is None:
            self._writing[at] = Writing(unread.end, now_s)
            return None
        writing.note(partition.log, unread.end, now_s)
        return bytes_per_s(writing.samples)

    # The topic --------------------------------------------------------------------------------------------------------

    def _write(self, changes: list[tuple[GroupPartition, Episode | None, dict[str, Any] | None]], now: Instant) -> None:
        """What cannot be written is found again at the next walk."""
        if not changes:
            return
        assert self._episodes is not None
        try:
            warnings_topic.write(self._broker, [(_key(place), told) for place, _, told in changes], now.wall_ms)
        except StorageError as error:
            self._broker.logger.seldom("warning not written", error=error)
            return
        for place, after, told in changes:
            if after is None:
                del self._episodes[place]
            else:
                assert told is not None
                self._episodes[place] = after
                self._tell(place, after, told)

    def _tell(self, place: GroupPartition, episode: Episode, told: dict[str, Any]) -> None:
        where = place._asdict()
        if episode.state == LOST:
            self._broker.logger.error("unread records deleted", **where, records=episode.lost, start=told["start"])
        else:
            self._broker.logger.warning(
                "unread records will be deleted",
                **where,
                seconds_left=told["left_ms"] // 1000,
                by=told["by"],
                lag_records=told["lag_records"],
                lag_bytes=told["lag_bytes"],
            )

    def _recall(self) -> None:
        log = warnings_topic.warnings_log(self._broker)
        self._busy = True
        self._broker.scheduler.in_thread(lambda: _read_episodes(log), self._recalled)

    def _recalled(self, result: object, error: BaseException | None) -> None:
        self._busy = False
        if error is not None:
            self._broker.logger.seldom("warnings not read", error=error)
        episodes: dict[GroupPartition, Episode] = result if error is None else {}  # type: ignore[assignment]
        self._episodes = episodes


def _may_lose(partition: Partition, committed: int) -> bool:
    log = partition.log
    if log.settings.retention_ms == FOREVER and log.settings.retention_bytes == FOREVER and log.known:
        return committed < log.start_offset
    return not log.known or committed < log.high_watermark


def _look(look: Look, now_ms: int) -> Unread | None:
    """In a worker thread. None: it could not be told now."""
    try:
        return look.partition.log.unread(look.committed, now_ms)
    except (OffsetOutOfRange, OSError, StorageError):
        return None  # segments went meanwhile, or the disk is in trouble, of which others tell


def _told(episode: Episode, look: Look, unread: Unread, left: TimeLeft | None, now_ms: int) -> dict[str, Any]:
    return {
        "at_ms": now_ms,
        "state": episode.state,
        "since_ms": episode.since_ms,
        "committed": look.committed,
        "start": look.partition.log.start_offset,
        "end": unread.end,
        "lag_records": unread.records,
        "lag_bytes": unread.bytes,
        "lag_ms": None if unread.oldest_ms is None else max(0, now_ms - unread.oldest_ms),
        "left_ms": None if left is None else left.ms,
        "by": None if left is None else left.by,
        "lost_records": unread.lost,
    }


def _read_episodes(log: Log) -> dict[GroupPartition, Episode]:
    """In a worker thread. Where the topic is damaged, what comes behind is not known, and may be told twice."""
    return {
        GroupPartition(key["group"], key["topic"], key["partition"]): Episode(
            told["state"], told["since_ms"], told["lost_records"]
        )
        for key, told in warnings_topic.read(log, KIND)
    }


def _key(place: GroupPartition) -> dict[str, Any]:
    return {"kind": KIND, **place._asdict()}
