"""How far groups are behind, seen from outside, on any broker."""

from __future__ import annotations

import time

import pytest

import tidelog
from against.patience import eventually
from proving import proves
from tidelog.client.admin import groups, topics
from tidelog.client.admin.configs import TOPIC, alter
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.producer import Producer
from tidelog.control import lag
from tidelog.control.lag import RATE_WINDOW_MS, PartitionExtent, time_left
from tidelog.control.retention_warnings import read_warnings
from tidelog.control.survey import FOREVER, Retention

HOUR_MS = 3_600_000
QUIET = {"tidelog.log.level": "ERROR"}


def write(cluster: Cluster, topic: str, count: int, *, partition: int = 0, ago_ms: int = 0) -> None:
    """As many batches of one record each."""
    now = int(time.time() * 1000)
    for number in range(count):
        with Producer(cluster) as producer:
            producer.send(topic, b"%d" % number * 1000, partition=partition, timestamp=now - ago_ms)


@proves("T8", "T10")
@pytest.mark.story
def test_lag_in_records_bytes_and_time_and_the_time_left(cluster: Cluster, topic: str, group: str) -> None:
    at = TopicPartition(topic, 0)
    topics.create(cluster, topic, partitions=2, configs={"retention.ms": str(24 * HOUR_MS)})
    write(cluster, topic, 4, ago_ms=3 * HOUR_MS)
    write(cluster, topic, 6)
    groups.commit(cluster, group, {at: 2, TopicPartition(topic, 1): 0})
    first, second = lag.of_group(cluster, group)
    assert (first.at, first.committed, first.start, first.end, first.records, first.lost) == (at, 2, 0, 10, 8, 0)
    assert first.bytes is not None and 8_000 < first.bytes < 16_000
    assert first.age_ms is not None and 3 * HOUR_MS <= first.age_ms < 3 * HOUR_MS + 600_000
    assert first.left_ms == 24 * HOUR_MS - first.age_ms
    assert (second.records, second.bytes, second.age_ms, second.left_ms) == (0, 0, 0, None)


@proves("T8", "T10")
def test_many_groups_in_few_requests_each_with_its_own_age(cluster: Cluster, topic: str) -> None:
    at = TopicPartition(topic, 0)
    topics.create(cluster, topic)
    for hours in (5, 4, 3, 2, 1):
        write(cluster, topic, 1, ago_ms=hours * HOUR_MS)
    found = lag.of_groups(cluster, {f"g{offset}": {at: offset} for offset in range(6)})
    ages = [found[f"g{offset}"][0].age_ms for offset in range(6)]
    assert [None if age is None else age // HOUR_MS for age in ages] == [5, 4, 3, 2, 1, 0]


@proves("T8", "T10")
def test_what_was_deleted_unread_is_lost(cluster: Cluster, topic: str, group: str) -> None:
    at = TopicPartition(topic, 0)
    topics.create(cluster, topic)
    write(cluster, topic, 10)
    groups.commit(cluster, group, {at: 2})
    topics.delete_records(cluster, {at: 6})
    (one,) = lag.of_group(cluster, group)
    assert (one.start, one.records, one.lost) == (6, 4, 4)


@proves("T8", "T10")
def test_a_large_batch_has_its_age_too(cluster: Cluster, topic: str, group: str) -> None:
    topics.create(cluster, topic, partitions=3)
    now = int(time.time() * 1000)
    for index in range(3):
        with Producer(cluster) as producer:
            producer.send(topic, bytes(200_000), partition=index, timestamp=now - HOUR_MS)
    groups.commit(cluster, group, {TopicPartition(topic, index): 0 for index in range(3)})
    assert [one.age_ms is not None and one.age_ms >= HOUR_MS for one in lag.of_group(cluster, group)] == [True] * 3


@proves("T8", "T10")
def test_by_size_the_time_left_follows_from_what_is_written(cluster: Cluster, topic: str, group: str) -> None:
    at = TopicPartition(topic, 0)
    configs = {"retention.ms": "-1", "retention.bytes": "1000000"}
    topics.create(cluster, topic, configs=configs)
    write(cluster, topic, 20)
    groups.commit(cluster, group, {at: 10})
    (one,) = lag.of_group(cluster, group)
    assert one.left_ms is not None and one.bytes is not None
    written = 2 * one.bytes  # the other half too, and all in the last minutes
    assert one.left_ms == pytest.approx((1_000_000 - one.bytes) / written * RATE_WINDOW_MS, rel=0.1)


@proves("T8")
def test_a_broker_of_ours_warns_and_then_its_own_time_left_is_told() -> None:
    """By the real clock: the warning, what is told from outside, and the loss with how many."""
    at, warnings = TopicPartition("orders", 0), TopicPartition("__tidelog.warnings", 0)
    settings = {"log.retention.check.interval.ms": 500, "tidelog.retention.warning.ms": 1_200_000, **QUIET}
    with tidelog.Broker(settings=settings) as broker, Cluster(broker.bootstrap) as cluster:
        configs = {"retention.ms": "1300000", "internal.segment.bytes": "16384"}
        topics.create(cluster, at.topic, configs=configs)
        assert read_warnings(cluster) == {}
        write(cluster, at.topic, 30, ago_ms=600_000)
        groups.commit(cluster, "billing", {at: 3})
        warned = eventually(lambda: read_warnings(cluster).get(("billing", at)))
        assert warned is not None
        assert warned.state == "warned" and warned.left_ms is not None and 0 < warned.left_ms <= 700_000
        (told,) = lag.of_group(cluster, "billing")
        assert told.left_ms is not None and told.left_ms <= warned.left_ms and told.lost == 0
        # So that nobody waits for it: what is ten minutes old is now too old.
        alter(cluster, TOPIC, at.topic, set={"retention.ms": "300000"})
        eventually(lambda: read_warnings(cluster)["billing", at].state == "lost")
        (told,) = lag.of_group(cluster, "billing")
        assert told.lost == (told.start or 0) - 3 > 0
        groups.commit(cluster, "billing", {at: 30})
        eventually(lambda: read_warnings(cluster) == {})
        assert list_offsets(cluster, {warnings: LATEST})[warnings].offset >= 3


@proves("T8", "T10")
def test_a_topic_that_is_gone_hides_nobody(cluster: Cluster, topic: str) -> None:
    at, gone = TopicPartition(topic, 0), TopicPartition(f"{topic}-gone", 0)
    topics.create(cluster, topic)
    write(cluster, topic, 3)
    first, second = lag.of_groups(cluster, {"g": {at: 1, gone: 5}})["g"]
    assert (first.records, second.end, second.records, second.lost) == (2, None, None, 0)


@proves("T8")
@pytest.mark.parametrize(
    ("retention", "age_ms", "behind", "left"),
    [
        (Retention(FOREVER, FOREVER), 10, 10, None),
        (Retention(100, FOREVER), 10, 10, 90),
        (Retention(100, FOREVER), 110, 10, 0),
        (Retention(100, FOREVER), None, 10, None),
        (Retention(FOREVER, 1000), 10, 1000, 0),
        (Retention(FOREVER, 1000), 10, 400, RATE_WINDOW_MS * 6),
        (Retention(FOREVER, 1000), 10, None, None),
        (Retention(100, 1000), 10, 400, 90),
        (Retention(10 * RATE_WINDOW_MS, 1000), 0, 400, RATE_WINDOW_MS * 6),
        (None, 10, 10, None),
    ],
)
def test_the_shorter_of_both_counts(
    retention: Retention | None, age_ms: int | None, behind: int | None, left: int | None
) -> None:
    """Ten records of a hundred bytes, one of them written lately."""
    assert time_left(PartitionExtent(0, 10, 1000, retention, 1), age_ms, behind) == left


@proves("T8")
def test_nothing_is_taken_by_size_where_nothing_is_written() -> None:
    assert time_left(PartitionExtent(0, 10, 1000, Retention(FOREVER, 5000), 0), 10, 400) is None
