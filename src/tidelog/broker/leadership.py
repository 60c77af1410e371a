"""Who leads a partition: this broker, unless the partition is offline.

What Metadata, DescribeTopicPartitions and DescribeCluster tell is here, so that they never differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.loading import find, when_loaded
from tidelog.broker.partition import Partition
from tidelog.broker.topics import Topic
from tidelog.wire.error_code import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

NO_LEADER = -1
UNKNOWN_EPOCH = -1

# What a client may do, as bits by Kafka's numbers of operations: everything, as long as there are no access rules.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


class Leadership(NamedTuple):
    error_code: int
    leader_id: int
    leader_epoch: int
    offline_replicas: list[int]


def when_known(
    broker: Broker, call: Call, topics: Iterable[tuple[Topic, Iterable[int]]], then: Callable[[], None]
) -> None:
    """Calls `then` when `leadership` of these partitions need not wait for the disk, as it must after a crash."""
    unknown = [
        (topic.name, index)
        for topic, indexes in topics
        for index in indexes
        if broker.leader_epoch(topic, index) is None
    ]
    when_loaded(broker, call, unknown, then, known=True)


def leadership(broker: Broker, topic: Topic, index: int) -> Leadership:
    node_id = broker.config.int("node.id")
    epoch = broker.leader_epoch(topic, index)
    if epoch is not None:
        return Leadership(ErrorCode.NONE, node_id, epoch, [])
    partition = find(broker, topic.name, index)
    if not isinstance(partition, Partition):
        return Leadership(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, UNKNOWN_EPOCH, [node_id])
    if partition.log.offline is not None:
        return Leadership(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, partition.log.leader_epoch, [node_id])
    return Leadership(ErrorCode.NONE, node_id, partition.log.leader_epoch, [])
