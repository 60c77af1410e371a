"""Share groups (KIP-932): who is in them, and how far each of their partitions is."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.refusal import check
from tidelog.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from tidelog.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

NOT_STARTED = -1


class ShareGroupMember(NamedTuple):
    member_id: str
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...]


class ShareGroup(NamedTuple):
    group: str
    state: str
    members: tuple[ShareGroupMember, ...]


class ShareOffset(NamedTuple):
    """Everything before `start` is done; `lag` is how many records are not, and None where the broker does not say."""

    at: TopicPartition
    start: int
    lag: int | None


def describe(cluster: Cluster, group: str) -> ShareGroup:
    def attempt() -> ShareGroup:
        request = ShareGroupDescribeRequest(group_ids=[group])
        (given,) = cluster.coordinator(group).call(request, ShareGroupDescribeResponse).groups
        check(given.error_code, f"share group {group!r}", given.error_message)
        members = [
            ShareGroupMember(
                one.member_id,
                one.client_id,
                one.client_host.removeprefix("/"),
                tuple(
                    TopicPartition(topic.topic_name, partition)
                    for topic in one.assignment.topic_partitions
                    for partition in topic.partitions
                ),
            )
            for one in given.members
        ]
        return ShareGroup(group, given.group_state, tuple(members))

    return cluster.retry(attempt)


def offsets(cluster: Cluster, group: str) -> list[ShareOffset]:
    """Of every partition that the group has begun with."""

    def attempt() -> list[ShareOffset]:
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
        request = DescribeShareGroupOffsetsRequest(groups=[asked])
        (given,) = cluster.coordinator(group).call(request, DescribeShareGroupOffsetsResponse).groups
        check(given.error_code, f"offsets of share group {group!r}", given.error_message)
        found = []
        for topic in given.topics:
            for one in topic.partitions:
                at = TopicPartition(topic.topic_name, one.partition_index)
                check(one.error_code, f"offsets of share group {group!r} in {at}", one.error_message)
                if one.start_offset != NOT_STARTED:
                    found.append(ShareOffset(at, one.start_offset, None if one.lag < 0 else one.lag))
        return sorted(found)

    return cluster.retry(attempt)
