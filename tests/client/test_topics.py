"""Topics, their partitions, records and settings, administered the same way on both brokers."""

from __future__ import annotations

import pytest

from against.patience import eventually
from proving import proves
from tidelog.client.admin import brokers, configs, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, NOT_FOUND, list_offsets
from tidelog.client.producer import Producer
from tidelog.errors import BrokerError
from tidelog.wire.error_code import ErrorCode


def code_of(caught: pytest.ExceptionInfo[BrokerError]) -> int:
    return caught.value.code


@proves("T1", "T10")
@pytest.mark.story
def test_a_topic_is_made_seen_and_deleted(cluster: Cluster, topic: str) -> None:
    made = topics.create(cluster, topic, partitions=3)
    assert made.led and made.has_id and list(made.partitions) == [0, 1, 2]
    assert topic in topics.names(cluster)
    assert topics.describe(cluster, [topic]) == [made]
    topics.delete(cluster, topic)
    assert topic not in topics.names(cluster)
    with pytest.raises(BrokerError) as caught:
        topics.delete(cluster, topic)
    assert code_of(caught) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@proves("T1", "T10")
def test_a_topic_made_anew_has_another_id(cluster: Cluster, topic: str) -> None:
    first = topics.create(cluster, topic, partitions=1)
    topics.delete(cluster, topic)
    assert topics.create(cluster, topic, partitions=1).topic_id != first.topic_id


@proves("T1", "T10")
@pytest.mark.parametrize(
    ("name", "settings", "code"),
    [
        ("not a name", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (None, {"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        (None, {"replication": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        (None, {"configs": {"no.such.setting": "1"}}, ErrorCode.INVALID_CONFIG),
        (None, {"configs": {"retention.ms": "soon"}}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_wrong_topic_is_refused(
    cluster: Cluster, topic: str, name: str | None, settings: dict[str, object], code: int
) -> None:
    with pytest.raises(BrokerError) as caught:
        topics.create(cluster, name or topic, **settings)  # type: ignore[arg-type]
    assert code_of(caught) == code
    assert topic not in topics.names(cluster)


@proves("T1", "T10")
def test_a_topic_is_made_once(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    with pytest.raises(BrokerError) as caught:
        topics.create(cluster, topic, partitions=1)
    assert code_of(caught) == ErrorCode.TOPIC_ALREADY_EXISTS


@proves("T1", "T10")
def test_partitions_are_only_ever_added(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    assert list(topics.add_partitions(cluster, topic, 4).partitions) == [0, 1, 2, 3]
    for fewer in (4, 2):
        with pytest.raises(BrokerError) as caught:
            topics.add_partitions(cluster, topic, fewer)
        assert code_of(caught) == ErrorCode.INVALID_PARTITIONS


@proves("T8", "T10")
def test_deleted_records_are_gone_and_offsets_stay(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Producer(cluster) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, partition=number % 2)
    assert topics.delete_records(cluster, {first: 4, second: topics.HIGH_WATERMARK}) == {first: 4, second: 10}
    starts = list_offsets(cluster, {first: EARLIEST, second: EARLIEST})
    assert {at: found.offset for at, found in starts.items()} == {first: 4, second: 10}
    with pytest.raises(BrokerError) as caught:
        topics.delete_records(cluster, {first: 11})
    assert code_of(caught) == ErrorCode.OFFSET_OUT_OF_RANGE


@proves("T7", "T10")
def test_offsets_are_found_by_place_and_by_time(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    at = TopicPartition(topic, 0)
    times = [1_700_000_000_000, 1_700_000_005_000, 1_700_000_002_000]
    with Producer(cluster) as producer:
        for timestamp in times:
            producer.send(topic, b"x", partition=0, timestamp=timestamp)
            producer.flush()

    def offset_of(what: int) -> int:
        return list_offsets(cluster, {at: what})[at].offset

    assert (offset_of(EARLIEST), offset_of(LATEST), offset_of(MAX_TIMESTAMP)) == (0, 3, 1)
    assert offset_of(times[0]) == 0
    assert offset_of(times[0] + 1) == 1
    assert offset_of(times[1]) == 1
    assert offset_of(times[1] + 1) == NOT_FOUND


@proves("T1", "T10")
def test_settings_are_shown_with_their_sources_and_changed_one_by_one(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1, configs={"retention.ms": "60000", "segment.bytes": "2000000"})

    def own() -> dict[str, str | None]:
        shown = configs.describe(cluster, configs.TOPIC, topic)
        return {one.name: one.value for one in shown if one.source == "topic"}

    assert own() == {"retention.ms": "60000", "segment.bytes": "2000000"}
    configs.alter(cluster, configs.TOPIC, topic, set={"retention.ms": "70000"}, delete=["segment.bytes"])
    eventually(own, lambda shown: shown == {"retention.ms": "70000"})
    configs.alter(cluster, configs.TOPIC, topic, set={"max.message.bytes": "5000"}, validate_only=True)
    assert own() == {"retention.ms": "70000"}
    (one,) = configs.describe(cluster, configs.TOPIC, topic, keys=["cleanup.policy"], documentation=True)
    assert (one.name, one.value, one.is_default, one.type) == ("cleanup.policy", "delete", True, "list")
    configs.alter(cluster, configs.TOPIC, topic, append={"cleanup.policy": "compact"})
    eventually(lambda: own().get("cleanup.policy"), lambda policy: policy == "delete,compact")


@proves("T1", "T10")
def test_settings_of_what_is_not_there_are_refused(cluster: Cluster, topic: str) -> None:
    with pytest.raises(BrokerError) as caught:
        configs.describe(cluster, configs.TOPIC, topic)
    assert code_of(caught) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(BrokerError) as caught:
        configs.alter(cluster, configs.TOPIC, topic, set={"retention.ms": "1"})
    assert code_of(caught) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@proves("T1", "T10")
def test_a_brokers_settings_are_shown(cluster: Cluster) -> None:
    (node,) = brokers.describe(cluster).nodes
    shown = {one.name: one for one in configs.describe(cluster, configs.BROKER, str(node.node_id))}
    assert shown["num.partitions"].value == "1"
    assert shown["log.dirs"].source == "broker (static)"


@proves("T10")
def test_our_own_settings_are_left_out_with_a_warning_where_the_broker_is_not_ours(
    cluster: Cluster, topic: str, recwarn: pytest.WarningsRecorder
) -> None:
    topics.create(cluster, topic, partitions=1, configs={"tidelog.durability": "memory", "retention.ms": "60000"})
    shown = {one.name: one.value for one in configs.describe(cluster, configs.TOPIC, topic)}
    assert shown["retention.ms"] == "60000"
    if cluster.is_tidelog():
        assert shown["tidelog.durability"] == "memory"
        assert not recwarn.list
    else:
        assert "tidelog.durability" not in shown
        assert ["tidelog.durability" in str(warning.message) for warning in recwarn.list] == [True]


@proves("T8", "T10")
def test_log_dirs_say_what_each_partition_takes(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=2)
    with Producer(cluster) as producer:
        producer.send(topic, b"x" * 10_000, partition=1)
    both = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    # Apache Kafka makes the folder of a partition when it likes.
    cluster.wait_until(lambda: set(brokers.log_dirs(cluster, topic)[0].sizes) == both)
    (held,) = brokers.log_dirs(cluster, topic)
    assert set(held.sizes) == both
    assert held.sizes[TopicPartition(topic, 1)] >= 10_000
    assert held.path and held.total_bytes > 0
    assert TopicPartition(topic, 1) in brokers.log_dirs(cluster)[0].sizes
