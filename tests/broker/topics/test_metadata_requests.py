"""Metadata, DescribeCluster and DescribeTopicPartitions in every version, against a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.topics.serving import LISTENER, Served, serving, versions
from broker.topics.test_topic_requests import create
from proving import proves
from tidelog.broker.leadership import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from tidelog.broker.topics import NO_ID
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest
from tidelog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

NOT_ASKED = -0x80000000


def names(*topics: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in topics]


@proves("T1", "T10")
@pytest.mark.parametrize("version", versions(3))
def test_metadata_tells_where_topics_are_in_every_version(served: Served, version: int) -> None:
    served.ask(create("orders", partitions=2), 7)
    reply = served.ask(MetadataRequest(topics=names("orders")), version)
    (node,) = reply.brokers
    assert (node.node_id, (node.host, node.port), node.rack) == (1, LISTENER, None)
    assert reply.controller_id == (1 if version >= 1 else -1)
    assert reply.cluster_id == (served.broker.cluster_id if version >= 2 else None)
    (topic,) = reply.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "orders", False)
    assert topic.topic_id == (served.broker.topics.by_name["orders"].topic_id if version >= 10 else NO_ID)
    assert [one.partition_index for one in topic.partitions] == [0, 1]
    for one in topic.partitions:
        assert (one.error_code, one.leader_id, one.replica_nodes, one.isr_nodes) == (0, 1, [1], [1])
        assert one.leader_epoch == (0 if version >= 7 else -1)
        assert one.offline_replicas == []
    assert topic.topic_authorized_operations == NOT_ASKED


@proves("T1")
@pytest.mark.parametrize("version", versions(3))
def test_all_topics_are_those_of_users(served: Served, version: int) -> None:
    served.ask(create("b", "a"), 7)
    everything = MetadataRequest(topics=[] if version == 0 else None)
    assert [topic.name for topic in served.ask(everything, version).topics] == ["a", "b"]
    nothing = MetadataRequest(topics=[])
    if version > 0:
        assert served.ask(nothing, version).topics == []


@proves("T1")
def test_the_brokers_own_topics_are_told_by_name(served: Served) -> None:
    (topic,) = served.ask(MetadataRequest(topics=names("__tidelog.topics")), 12).topics
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 1)


@proves("T1")
def test_the_groups_topic_has_one_log_also_when_a_client_asks_for_it_first(served: Served) -> None:
    served.ask(MetadataRequest(topics=names("__tidelog.groups")), 12)
    partition = served.broker.partition("__tidelog.groups", 0)
    assert partition is not None
    assert served.broker.coordinator.internal.log is partition.log


@proves("T1", "T10")
@pytest.mark.parametrize("version", versions(3))
def test_a_missing_topic_is_created_when_the_client_allows_it(served: Served, version: int) -> None:
    request = MetadataRequest(topics=names("new", "new", "b d", "__tidelog.mine"))
    found = [(topic.name, topic.error_code, len(topic.partitions)) for topic in served.ask(request, version).topics]
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert found == [("new", 0, 1), ("b d", invalid, 0), ("__tidelog.mine", invalid, 0)]
    if version >= 4:
        forbidden = MetadataRequest(topics=names("newer", "b d"), allow_auto_topic_creation=False)
        codes = [topic.error_code for topic in served.ask(forbidden, version).topics]
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, invalid]
    assert [topic.name for topic in served.broker.topics.visible()] == ["new"]


@proves("T1")
def test_no_topic_is_created_where_the_broker_forbids_it(tmp_path: Path) -> None:
    with serving(tmp_path, **{"auto.create.topics.enable": False}) as served:
        (topic,) = served.ask(MetadataRequest(topics=names("new")), 12).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert served.broker.topics.visible() == []


@proves("T1", "T6")
def test_a_topic_that_was_created_on_the_way_is_there_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path, **{"num.partitions": 4}) as served:
        (topic,) = served.ask(MetadataRequest(topics=names("new")), 12).topics
        assert len(topic.partitions) == 4
    with serving(tmp_path) as served:
        assert served.broker.topics.by_id[topic.topic_id].name == "new"


@proves("T1")
@pytest.mark.parametrize("version", range(10, 14))
def test_topics_are_told_by_id(served: Served, version: int) -> None:
    served.ask(create("orders"), 7)
    topic_id = served.broker.topics.by_name["orders"].topic_id
    asked = [MetadataRequestTopic(name=None, topic_id=one) for one in (topic_id, b"x" * 16)]
    found, unknown = served.ask(MetadataRequest(topics=asked), version).topics
    assert (found.name, found.error_code) == ("orders", 0)
    assert (unknown.error_code, unknown.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, b"x" * 16)
    assert unknown.name == (None if version >= 12 else "")


@proves("T1")
def test_operations_are_told_to_who_asks(served: Served) -> None:
    request = MetadataRequest(
        topics=names("a", "b d"), include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    reply = served.ask(request, 8)
    assert reply.cluster_authorized_operations == CLUSTER_OPERATIONS
    assert [topic.topic_authorized_operations for topic in reply.topics] == [TOPIC_OPERATIONS, NOT_ASKED]


@proves("T6")
def test_an_offline_partition_has_no_leader(served: Served) -> None:
    served.ask(create("orders", partitions=2), 7)
    partition = served.broker.partition("orders", 1)
    assert partition is not None
    partition.log.offline = StorageError("sync failed")
    good, bad = served.ask(MetadataRequest(topics=names("orders")), 12).topics[0].partitions
    assert (good.error_code, good.leader_id, good.offline_replicas) == (0, 1, [])
    assert (bad.error_code, bad.leader_id, bad.offline_replicas) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1])


@proves("T1")
def test_the_rack_is_told_where_it_is_set(tmp_path: Path) -> None:
    with serving(tmp_path, **{"broker.rack": "r1", "node.id": 7}) as served:
        (node,) = served.ask(MetadataRequest(topics=[]), 12).brokers
        assert (node.rack, node.node_id) == ("r1", 7)
        assert served.ask(DescribeClusterRequest(), 2).brokers[0].rack == "r1"


@proves("T1")
@pytest.mark.parametrize("version", versions(60))
def test_the_cluster_is_this_broker(served: Served, version: int) -> None:
    reply = served.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    (node,) = reply.brokers
    assert (reply.error_code, reply.controller_id, reply.cluster_id) == (0, 1, served.broker.cluster_id)
    assert (node.broker_id, (node.host, node.port), node.is_fenced) == (1, LISTENER, False)
    assert reply.cluster_authorized_operations == CLUSTER_OPERATIONS
    if version >= 1:
        assert served.ask(DescribeClusterRequest(endpoint_type=2), version).error_code == 114
        assert served.ask(DescribeClusterRequest(endpoint_type=3), version).error_code == 115


def pages(served: Served, request: DescribeTopicPartitionsRequest) -> list[tuple[str, int]]:
    """All partitions that a client reads that follows the cursors."""
    found: list[tuple[str, int]] = []
    while True:
        reply = served.ask(request, 0)
        page = [(topic.name, one.partition_index) for topic in reply.topics for one in topic.partitions]
        assert 0 < len(page) <= request.response_partition_limit
        found += page
        if reply.next_cursor is None:
            return found
        cursor = reply.next_cursor
        request.cursor = RequestCursor(topic_name=cursor.topic_name, partition_index=cursor.partition_index)


@proves("T1")
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 100])
def test_partitions_are_told_by_the_page_and_none_is_left_out(served: Served, limit: int) -> None:
    served.ask(create("b", partitions=3), 7)
    served.ask(create("a", "c", partitions=2), 7)
    everything = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0), ("c", 1)]
    assert pages(served, DescribeTopicPartitionsRequest(response_partition_limit=limit)) == everything
    some = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="c"), TopicRequest(name="b"), TopicRequest(name="c")], response_partition_limit=limit
    )
    assert pages(served, some) == everything[2:]


@proves("T1")
def test_a_page_says_which_topics_are_unknown_and_who_leads(served: Served) -> None:
    served.ask(create("a"), 7)
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="gone"), TopicRequest(name="a")])
    a, gone = served.ask(request, 0).topics
    assert (gone.name, gone.error_code) == ("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    (one,) = a.partitions
    assert (one.leader_id, one.leader_epoch, one.replica_nodes, one.isr_nodes) == (1, 0, [1], [1])
    assert (one.eligible_leader_replicas, one.last_known_elr, one.offline_replicas) == ([], [], [])


@proves("T1")
def test_a_topic_that_has_gone_since_the_last_page_is_passed_over(served: Served) -> None:
    served.ask(create("a", "c"), 7)
    request = DescribeTopicPartitionsRequest(cursor=RequestCursor(topic_name="b", partition_index=1))
    assert [topic.name for topic in served.ask(request, 0).topics] == ["c"]


@proves("T1")
def test_the_broker_bounds_a_page(tmp_path: Path) -> None:
    with serving(tmp_path, **{"max.request.partition.size.limit": 2}) as served:
        served.ask(create("a", partitions=5), 7)
        reply = served.ask(DescribeTopicPartitionsRequest(response_partition_limit=100), 0)
        assert len(reply.topics[0].partitions) == 2
        assert reply.next_cursor.partition_index == 2
