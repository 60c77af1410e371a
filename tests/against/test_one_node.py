"""What a cluster of one node answers to tools that are about many: the same as Apache Kafka 4.3 with one node, field by
field. Messages are our own words, and which folder, port and time it is differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from against.brokers import Broker
from against.rebalancing import create
from proving import proves
from tidelog.client import Cluster
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.message import Struct
from tidelog.wire.messages import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    describe_log_dirs,
    describe_quorum,
    elect_leaders,
    list_partition_reassignments,
)

METADATA = "__cluster_metadata"
TIMES = ("last_fetch_timestamp", "last_caught_up_timestamp")
FIELDS_OF_ITS_OWN = ("error_message", "port", "host", "leader_epoch", *TIMES)


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as found:
        yield found


def ask(cluster: Cluster, request: Struct, kind: type[Struct], version: int) -> Any:
    return cluster.node(1).call(request, kind, version=version)


def shown(value: Any) -> Any:
    """Without what is a broker's own."""
    if isinstance(value, list):
        return [shown(one) for one in value]
    if not isinstance(value, Struct):
        return value
    return {name: shown(getattr(value, name)) for name in type(value).__annotations__ if name not in FIELDS_OF_ITS_OWN}


@proves("T10")
@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_is_this_node(cluster: Cluster, broker: Broker, topic: str, version: int) -> None:
    create(broker.bootstrap, topic, 1)
    message = describe_quorum
    asked = [(METADATA, 0), (METADATA, 1), ("orders", 0)]
    topics = [
        message.RequestTopicData(topic_name=name, partitions=[message.RequestPartitionData(partition_index=index)])
        for name, index in asked
    ]
    told = [
        ask(cluster, message.DescribeQuorumRequest(topics=[topic]), message.DescribeQuorumResponse, version)
        for topic in topics
    ]
    (partition,) = told[0].topics[0].partitions
    assert partition.leader_epoch >= 0
    assert partition.high_watermark == partition.current_voters[0].log_end_offset > 0
    partition.high_watermark = partition.current_voters[0].log_end_offset = 7
    voter = {"replica_id": 1, "replica_directory_id": bytes(16), "log_end_offset": 7}
    ours = {"partition_index": 0, "error_code": 0, "leader_id": 1, "high_watermark": 7, "observers": []}
    listeners = [{"name": "CONTROLLER"}]
    assert shown(told[0]) == {
        "error_code": 0,
        "topics": [{"topic_name": METADATA, "partitions": [{**ours, "current_voters": [voter]}]}],
        "nodes": [{"node_id": 1, "listeners": listeners}] if version >= 2 else [],
    }
    for (name, index), answer in zip(asked[1:], told[1:], strict=True):
        nothing = {"leader_id": 0, "high_watermark": 0, "current_voters": [], "observers": []}
        unknown = {"partition_index": index, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, **nothing}
        topics_told = [{"topic_name": name, "partitions": [unknown]}]
        assert shown(answer) == {"error_code": 0, "topics": topics_told, "nodes": []}


@proves("T10")
def test_no_leader_needs_to_be_elected(cluster: Cluster, broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 2)
    message = elect_leaders
    asked = [
        message.TopicPartitions(topic=topic, partitions=[0, 1, 9]),
        message.TopicPartitions(topic="absent", partitions=[0]),
    ]

    def elect(kind: int, topics: Any, version: int = 2) -> Any:
        request = message.ElectLeadersRequest(election_type=kind, topic_partitions=topics)
        return ask(cluster, request, message.ElectLeadersResponse, version)

    def codes(answer: Any) -> list[tuple[str, int, int]]:
        results = answer.replica_election_results
        return [(one.topic, part.partition_id, part.error_code) for one in results for part in one.partition_result]

    wanted = (
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    places = [(topic, 0), (topic, 1), (topic, 9), ("absent", 0)]
    for kind in (0, 1):
        assert codes(elect(kind, asked)) == [(*place, code) for place, code in zip(places, wanted, strict=True)]
        everything = elect(kind, None)
        assert everything.error_code == 0
        assert topic in [one.topic for one in everything.replica_election_results]
        assert codes(everything) == []
    assert codes(elect(0, asked[1:], version=0)) == [("absent", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert elect(7, asked).error_code == ErrorCode.INVALID_REQUEST
    assert codes(elect(7, asked)) == [(*place, ErrorCode.INVALID_REQUEST) for place in places]
    assert elect(7, None).replica_election_results == []


@proves("T10")
@pytest.mark.parametrize("allowed", [True, False])
def test_partitions_stay_where_they_are(cluster: Cluster, broker: Broker, topic: str, allowed: bool) -> None:
    create(broker.bootstrap, topic, 2)
    message = alter_partition_reassignments

    def reassign(name: str, *places: tuple[int, list[int] | None]) -> Any:
        parts = [message.ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in places]
        topics = [message.ReassignableTopic(name=name, partitions=parts)]
        request = message.AlterPartitionReassignmentsRequest(allow_replication_factor_change=allowed, topics=topics)
        answer = ask(cluster, request, message.AlterPartitionReassignmentsResponse, 1)
        assert (answer.error_code, answer.error_message) == (0, None)
        assert answer.allow_replication_factor_change is allowed
        assert [one.name for one in answer.responses] == [name]
        return [(one.partition_index, one.error_code) for one in answer.responses[0].partitions]

    assert reassign(topic, (0, [1]), (1, [1]), (0, [1])) == [(0, 0), (1, 0), (0, 0)]
    assert reassign(topic, (0, None)) == [(0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)]
    for replicas in ([2], [1, 1], [], [1, 2], [-1]):
        assert reassign(topic, (0, replicas)) == [(0, ErrorCode.INVALID_REPLICA_ASSIGNMENT)]
    assert reassign(topic, (5, [1])) == [(5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert reassign("absent", (0, None)) == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    listing = list_partition_reassignments
    places = [listing.ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0, 7])]
    for topics in (None, places):
        request = listing.ListPartitionReassignmentsRequest(topics=topics)
        answer = ask(cluster, request, listing.ListPartitionReassignmentsResponse, 0)
        assert shown(answer) == {"throttle_time_ms": 0, "error_code": 0, "topics": []}


@proves("T10")
@pytest.mark.parametrize("version", [1, 2])
def test_a_partition_is_moved_to_no_other_folder(cluster: Cluster, broker: Broker, topic: str, version: int) -> None:
    create(broker.bootstrap, topic, 2)
    asked = describe_log_dirs.DescribeLogDirsRequest(topics=None)
    folder = ask(cluster, asked, describe_log_dirs.DescribeLogDirsResponse, 4).results[0].log_dir
    message = alter_replica_log_dirs

    def move(*wishes: tuple[str, str, list[int]]) -> dict[tuple[str, int], int]:
        dirs = [
            message.AlterReplicaLogDir(path=path, topics=[message.AlterReplicaLogDirTopic(name=name, partitions=parts)])
            for path, name, parts in wishes
        ]
        request = message.AlterReplicaLogDirsRequest(dirs=dirs)
        answer = ask(cluster, request, message.AlterReplicaLogDirsResponse, version)
        parts = [(one.topic_name, part) for one in answer.results for part in one.partitions]
        return {(name, part.partition_index): part.error_code for name, part in parts}

    unknown, elsewhere = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LOG_DIR_NOT_FOUND
    assert move((folder, topic, [0, 1, 9])) == {(topic, 0): 0, (topic, 1): 0, (topic, 9): unknown}
    for path in ("/nowhere", "relative", folder + "/"):
        assert move((path, topic, [0])) == {(topic, 0): elsewhere}
    assert move((folder, "absent", [0])) == {("absent", 0): unknown}
    both = (folder, topic, [0]), ("/nowhere", topic, [1, 0])
    assert move(*both) == {(topic, 0): elsewhere, (topic, 1): elsewhere}
