"""Where a partition begins and ends, and which offset a time falls on: ListOffsets, asked of the leaders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.connection import Connection
from tidelog.client.metadata import TopicPartition, by_topic
from tidelog.client.refusal import check
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3  # the record with the highest timestamp
READ_UNCOMMITTED, READ_COMMITTED = 0, 1

NOT_FOUND = -1
TIMEOUT_SINCE = 10


class Found(NamedTuple):
    offset: int  # NOT_FOUND when no record is that young
    timestamp: int
    leader_epoch: int


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, Found]:
    """For each partition: LATEST, EARLIEST, MAX_TIMESTAMP, or the first record at or after a time in milliseconds."""
    found: dict[TopicPartition, Found] = {}

    def attempt() -> dict[TopicPartition, Found]:
        for node_id, led in cluster.by_leader([at for at in wanted if at not in found]).items():
            _ask(cluster.node(node_id), {at: wanted[at] for at in led}, isolation, found)
        return {at: found[at] for at in wanted}

    return cluster.retry(attempt)


def _ask(
    leader: Connection, wanted: dict[TopicPartition, int], isolation: int, found: dict[TopicPartition, Found]
) -> None:
    version = leader.version_of(ListOffsetsRequest)
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation)
    if version >= TIMEOUT_SINCE:
        request.timeout_ms = int(leader.timeout_s * 1000)
    for topic, partitions in by_topic(wanted).items():
        places = [
            ListOffsetsPartition(partition_index=p, timestamp=wanted[TopicPartition(topic, p)]) for p in partitions
        ]
        request.topics.append(ListOffsetsTopic(name=topic, partitions=places))
    for answered in leader.call(request, ListOffsetsResponse, version=version).topics:
        for place in answered.partitions:
            at = TopicPartition(answered.name, place.partition_index)
            check(place.error_code, f"an offset of {at}")
            found[at] = Found(place.offset, place.timestamp, place.leader_epoch)
