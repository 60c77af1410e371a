"""The brokers themselves: which there are, what they offer, and how much of their disks each partition takes."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import Node, TopicPartition
from tidelog.client.refusal import check
from tidelog.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


class ClusterDescription(NamedTuple):
    cluster_id: str | None
    controller: int
    nodes: tuple[Node, ...]
    features: dict[str, int]
    is_tidelog: bool


class LogDir(NamedTuple):
    node_id: int
    path: str
    error_code: int
    total_bytes: int  # of the disk; -1 when the broker does not say
    usable_bytes: int
    sizes: dict[TopicPartition, int]


def describe(cluster: Cluster) -> ClusterDescription:
    read = cluster.retry(lambda: cluster.ask_metadata(()))
    nodes = tuple(read.nodes[node_id] for node_id in sorted(read.nodes))
    features = dict(sorted(cluster.any_node().features.items()))
    return ClusterDescription(read.cluster_id, read.controller, nodes, features, cluster.is_tidelog())


def log_dirs(cluster: Cluster, topic: str | None = None) -> list[LogDir]:
    """Of all brokers; with `topic`, the sizes of its partitions alone."""
    return cluster.retry(
        lambda: [found for node in describe(cluster).nodes for found in _of_node(cluster, node, topic)]
    )


def _of_node(cluster: Cluster, node: Node, topic: str | None) -> list[LogDir]:
    request = DescribeLogDirsRequest(topics=None)
    if topic is not None:
        indexes = list(cluster.topic(topic).partitions)
        request.topics = [DescribableLogDirTopic(topic=topic, partitions=indexes)]
    answer = cluster.node(node.node_id).call(request, DescribeLogDirsResponse)
    check(answer.error_code, f"log dirs of node {node.node_id}")
    return [_log_dir(node.node_id, given) for given in answer.results]


def _log_dir(node_id: int, given: DescribeLogDirsResult) -> LogDir:
    sizes = {
        TopicPartition(topic.name, partition.partition_index): partition.partition_size
        for topic in given.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }
    return LogDir(node_id, given.log_dir, given.error_code, given.total_bytes, given.usable_bytes, sizes)
