"""A group that reads too slowly, on a simulated clock: how far behind it is, how long it has, and the warning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.topics.serving import Served, serving
from proving import proves
from tidelog.broker.decision import Instant
from tidelog.broker.slow_consumers import (
    BY_SIZE,
    BY_TIME,
    HOUR_MS,
    LOST,
    RATE_WATCH_S,
    WARNED,
    Episode,
    Found,
    TimeLeft,
    Written,
    bytes_per_s,
    judge,
    threshold_ms,
    time_left,
)
from tidelog.broker.topics import WARNINGS_TOPIC
from tidelog.broker.watch import Watch
from tidelog.log.retention import SegmentFacts, expired
from tidelog.log.settings import FOREVER, LogSettings
from tidelog.record.codec import check
from tidelog.record.columns import decode, encode
from tidelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

BEGIN_MS = 1_700_000_000_000
MINUTE_MS = 60_000
RETENTION_MS = 20 * MINUTE_MS
THRESHOLD_MS = RETENTION_MS // 10
RECORD_BYTES = 1000

NEVER = LogSettings(retention_ms=FOREVER)


def facts(*segments: tuple[int, int]) -> list[SegmentFacts]:
    """Segments of (size, latest timestamp), ten offsets each."""
    return [SegmentFacts(number * 10, number * 10 + 10, size, latest) for number, (size, latest) in enumerate(segments)]


# The arithmetic ---------------------------------------------------------------------------------------------------


@proves("T8")
@pytest.mark.parametrize(
    ("segments", "settings", "now", "offset", "rate", "left"),
    [
        (facts((100, 5), (100, 6)), replace(NEVER, retention_ms=10), 7, 0, None, TimeLeft(8, BY_TIME)),
        (facts((100, 5), (100, 6)), replace(NEVER, retention_ms=10), 7, 15, None, TimeLeft(9, BY_TIME)),
        # A segment goes no sooner than the one before it, which has a record of later date.
        (facts((100, 50), (100, 6)), replace(NEVER, retention_ms=10), 7, 15, None, TimeLeft(53, BY_TIME)),
        (facts((100, 5), (100, 6)), replace(NEVER, retention_ms=10), 70, 0, None, TimeLeft(0, BY_TIME)),
        (facts((100, 5), (100, 6)), NEVER, 7, 0, 100.0, None),
        (facts((100, 5), (100, 6)), replace(NEVER, retention_bytes=300), 7, 0, 100.0, TimeLeft(2000, BY_SIZE)),
        (facts((100, 5), (100, 6)), replace(NEVER, retention_bytes=300), 7, 0, None, None),
        (facts((100, 5), (100, 6)), replace(NEVER, retention_bytes=300), 7, 0, 0.0, None),
        (facts((100, 5), (100, 6)), replace(NEVER, retention_bytes=100), 7, 0, None, TimeLeft(0, BY_SIZE)),
        # The last one must be full before anything can lie behind it.
        (
            facts((100, 5), (100, 6)),
            replace(NEVER, retention_bytes=300, segment_bytes=150),
            7,
            15,
            100.0,
            TimeLeft(3500, BY_SIZE),
        ),
        (facts((100, 5)), replace(NEVER, retention_bytes=300, retention_ms=10), 7, 10, 1.0, None),
        (
            facts((100, 5), (100, 6)),
            LogSettings(retention_ms=10_000, retention_bytes=200),
            5,
            0,
            100.0,
            TimeLeft(1000, BY_SIZE),
        ),
    ],
)
def test_the_time_left_is_what_retention_leaves(
    segments: list[SegmentFacts], settings: LogSettings, now: int, offset: int, rate: float | None, left: TimeLeft
) -> None:
    assert time_left(segments, settings, now, offset, rate) == left


SEGMENTS = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 1000)), min_size=2, max_size=6)


@proves("T8")
@given(SEGMENTS, st.integers(0, 300), st.integers(0, 2000), st.integers(0, 40))
def test_nothing_goes_before_its_time_and_everything_goes_after(
    sizes: list[tuple[int, int]], retention: int, now: int, offset: int
) -> None:
    segments, settings = facts(*sizes), replace(NEVER, retention_ms=retention)
    left = time_left(segments, settings, now, offset, None)
    if offset >= segments[-2].end_offset:
        return  # the last one is never deleted as it is
    assert left is not None
    index = offset // 10
    assert expired(segments, settings, now + left.ms, 0) <= index or left.ms == 0
    assert expired(segments, settings, now + left.ms + 1, 0) > index


@proves("T8")
def test_a_rate_is_known_when_it_was_watched_for_a_while() -> None:
    assert bytes_per_s([]) is None
    assert bytes_per_s([Written(0, 0), Written(RATE_WATCH_S - 1, 1000)]) is None
    assert bytes_per_s([Written(0, 500), Written(30, 600), Written(100, 1500)]) == 10


@proves("T8")
def test_a_warning_comes_an_hour_before_or_when_a_tenth_is_left() -> None:
    assert threshold_ms(None, LogSettings(retention_ms=FOREVER)) == HOUR_MS
    assert threshold_ms(None, LogSettings(retention_ms=100 * HOUR_MS)) == HOUR_MS
    assert threshold_ms(None, LogSettings(retention_ms=HOUR_MS)) == HOUR_MS // 10
    assert threshold_ms(5, LogSettings(retention_ms=HOUR_MS)) == 5


@proves("T8")
@pytest.mark.parametrize(
    ("before", "lost", "left", "after"),
    [
        (None, 0, None, None),
        (None, 0, 100, None),
        (None, 0, 99, Episode(WARNED, 7)),
        (None, 4, 500, Episode(LOST, 7, 4)),
        (Episode(WARNED, 1), 0, 5, Episode(WARNED, 1)),
        (Episode(WARNED, 1), 0, 199, Episode(WARNED, 1)),
        (Episode(WARNED, 1), 0, 200, None),
        (Episode(WARNED, 1), 0, None, None),
        (Episode(WARNED, 1), 3, 5, Episode(LOST, 1, 3)),
        (Episode(LOST, 1, 3), 3, 5, Episode(LOST, 1, 3)),
        (Episode(LOST, 1, 3), 9, 5, Episode(LOST, 1, 9)),
        (Episode(LOST, 1, 3), 0, 5, Episode(WARNED, 7)),
        (Episode(LOST, 1, 3), 0, 100, None),
        (Episode(LOST, 1, 3), 0, None, None),
    ],
)
def test_an_episode_is_told_once(before: Episode | None, lost: int, left: int | None, after: Episode | None) -> None:
    found = Found(lost, TimeLeft(left, BY_TIME) if left is not None else None)
    assert judge(before, found, 100, 7) == after


# The watch, on a broker -----------------------------------------------------------------------------------------------


class Clock:
    """A broker whose housekeeping is done by hand, at times that the test makes up."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.now = Instant(BEGIN_MS, 1_000_000)
        self.watch = Watch(served.broker)
        self.watch.turn(self.now)  # reads back what was told before

    @property
    def log(self) -> Any:
        partition = self.served.broker.partition("orders", 0)
        assert partition is not None
        return partition.log

    def create(self, **configs: object) -> None:
        named = [CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in configs.items()]
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1, configs=named)
        (made,) = self.served.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7).topics
        assert made.error_code == 0

    def commit(self, offset: int, group: str = "billing") -> None:
        place = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name="orders", partitions=[place])
        reply = self.served.ask(OffsetCommitRequest(group_id=group, topics=[topic]), 8)
        assert reply.topics[0].partitions[0].error_code == 0

    def write(self, records: int = 1) -> None:
        for _ in range(records):
            batch = encode([(None, bytes(RECORD_BYTES), (), self.now.wall_ms)])
            appended = self.log.append(memoryview(batch), check(batch), self.now.wall_ms)
            while self.log.high_watermark <= appended.last_offset:
                self.served.turn()

    def pass_time(self, ms: int) -> None:
        self.now = Instant(self.now.wall_ms + ms, self.now.monotonic_ms + ms)

    def look(self) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
        """One walk of the watch; all that has ever been told."""
        self.watch.turn(self.now)
        return self.told()

    def told(self) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
        partition = self.served.broker.partition(WARNINGS_TOPIC.name, 0)
        assert partition is not None
        log = partition.log
        while log.high_watermark < log.end_offset:
            self.served.turn()
        rows = []
        while (piece := log.read(len(rows), 1 << 20)) is not None:
            rows += list(decode(piece.read()).rows())
        return [(json.loads(row.key or b""), json.loads(row.value) if row.value else None) for row in rows]

    def retain(self) -> None:
        self.log.apply_retention(self.now.wall_ms)


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[Clock]:
    with serving(tmp_path, **{"group.initial.rebalance.delay.ms": 0}) as served:
        yield Clock(served)


@proves("T8")
def test_a_slow_group_is_warned_before_retention_takes_what_it_has_not_read(clock: Clock) -> None:
    clock.create(retention_ms=RETENTION_MS, internal_segment_bytes=1 << 14)
    clock.write()
    clock.commit(5)
    clock.commit(40, "quick")
    warned_at = lost_at = None
    for minute in range(40):
        clock.write(2)
        clock.pass_time(MINUTE_MS)
        told = clock.look()
        clock.retain()
        if told and warned_at is None:
            warned_at = minute
            key, value = told[0]
            assert key == {"v": 1, "kind": "retention", "group": "billing", "topic": "orders", "partition": 0}
            assert value is not None and clock.log.start_offset <= 5, "it came before the loss"
            assert value["state"] == "warned" and value["by"] == "time"
            assert 0 < value["left_ms"] < THRESHOLD_MS
            assert (value["committed"], value["end"], value["lag_records"]) == (
                5,
                clock.log.end_offset,
                value["end"] - 5,
            )
            assert value["lag_records"] * RECORD_BYTES < value["lag_bytes"] < value["lag_records"] * RECORD_BYTES * 1.2
            # Offset 5 was written in the third minute; one record was there before the first.
            assert value["lag_ms"] == (minute - 1) * MINUTE_MS
        if clock.log.start_offset > 5 and lost_at is None:
            lost_at = minute
    assert warned_at is not None and lost_at is not None and warned_at < lost_at
    told = clock.look()
    of_billing = [value for key, value in told if key["group"] == "billing"]
    assert [value["state"] for value in of_billing if value][:2] == ["warned", "lost"]
    lost = [value["lost_records"] for value in of_billing if value and value["state"] == "lost"]
    assert lost == sorted(set(lost)) and lost[-1] == clock.log.start_offset - 5
    lines = clock.served.log_lines.getvalue()
    assert lines.count("unread records will be deleted group=billing") == 1
    assert lines.count("unread records deleted group=billing") >= 1


@proves("T8")
def test_a_warning_is_given_once_and_taken_back_when_the_group_has_caught_up(clock: Clock) -> None:
    clock.create(retention_ms=RETENTION_MS)
    clock.write(4)
    clock.commit(0)
    clock.pass_time(RETENTION_MS - THRESHOLD_MS + 1)
    assert len(clock.look()) == 1
    clock.pass_time(MINUTE_MS)
    assert len(clock.look()) == 1
    clock.commit(4)
    clock.pass_time(MINUTE_MS)
    assert clock.look()[1:] == [(clock.told()[0][0], None)]
    clock.pass_time(MINUTE_MS)
    assert len(clock.look()) == 2


@proves("T8")
def test_a_restart_repeats_no_warning_and_a_group_that_is_gone_ends_it(clock: Clock) -> None:
    clock.create(retention_ms=RETENTION_MS)
    clock.write(4)
    clock.commit(0)
    clock.pass_time(RETENTION_MS)
    assert len(clock.look()) == 1
    clock.watch = Watch(clock.served.broker)
    clock.look()  # reads back
    assert len(clock.look()) == 1
    del clock.served.broker.groups.offsets["billing"]
    clock.pass_time(MINUTE_MS)
    assert [value for _, value in clock.look()][1:] == [None]


@proves("T8")
def test_by_size_the_rate_of_writing_tells_when_it_goes(clock: Clock) -> None:
    clock.create(retention_ms=-1, retention_bytes=100_000, internal_segment_bytes=1 << 14)
    clock.served.broker.config.values["tidelog.retention.warning.ms"] = 5 * MINUTE_MS
    clock.write()
    clock.commit(0)
    told: list[Any] = []
    for _ in range(30):
        clock.write(5)
        clock.pass_time(MINUTE_MS)
        told = clock.look()
        if told:
            break
        clock.retain()
        assert clock.log.start_offset == 0
    value = told[0][1]
    assert value["state"] == "warned" and value["by"] == "size" and clock.log.start_offset == 0
    # About five records a minute: what is missing to the limit takes as long as is said, give or take a minute.
    minutes = 0
    while clock.log.start_offset == 0:
        clock.write(5)
        minutes += 1
        clock.retain()
    assert abs(minutes - value["left_ms"] / MINUTE_MS) <= 1.5


@proves("T8")
def test_groups_without_trouble_are_left_alone(clock: Clock) -> None:
    clock.create(retention_ms=-1)
    clock.write(4)
    clock.commit(0)
    clock.pass_time(1000 * RETENTION_MS)
    assert clock.look() == []
    assert not list(Path(clock.served.broker.config.texts("log.dirs")[0]).glob(b"__tidelog.warnin".hex() + "*"))
