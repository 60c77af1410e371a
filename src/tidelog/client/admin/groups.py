"""Consumer groups: who is in them and what they have committed; and moving or deleting that. Their lag: `control.lag`.

Both kinds of groups are meant, those of the classic protocol and those of KIP-848; a broker tells them apart,
`describe` hides it. A commit from outside is taken only while a group has no members. Topics go by name: a group may
remember one that is gone, and a name says more than an id (so OffsetFetch and OffsetCommit stay at version 9, the
last with names).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.connection import Connection
from tidelog.client.metadata import TopicPartition, by_topic
from tidelog.client.refusal import check, refused
from tidelog.errors import MalformedMessage
from tidelog.wire.codec import decode
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidelog.wire.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.wire.messages.describe_groups import DescribedGroup as DescribedClassicGroup
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

BY_NAME = 9  # the last version of OffsetFetch and OffsetCommit that has topics by name
SEVERAL_GROUPS_SINCE = 8  # OffsetFetch
NO_COMMIT = -1
NO_MEMBER = -1
CLASSIC, CONSUMER = "classic", "consumer"
ASSIGNMENT_VERSIONS = ConsumerProtocolAssignment.SCHEMA.versions


class Listed(NamedTuple):
    group: str
    kind: str  # classic, consumer, share
    state: str
    protocol_type: str


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    group: str
    kind: str
    state: str
    assignor: str
    coordinator: str
    members: tuple[DescribedMember, ...]


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


def list_all(cluster: Cluster) -> list[Listed]:
    """Each broker knows the groups that it coordinates."""

    def attempt() -> list[Listed]:
        cluster.ask_metadata(())
        found = []
        for node_id in cluster.nodes:
            answer = cluster.node(node_id).call(ListGroupsRequest(), ListGroupsResponse)
            check(answer.error_code, f"groups of node {node_id}")
            for given in answer.groups:
                kind = given.group_type.lower() or CLASSIC
                found.append(Listed(given.group_id, kind, given.group_state, given.protocol_type))
        return sorted(found)

    return cluster.retry(attempt)


def describe(cluster: Cluster, group: str) -> GroupDescription:
    return cluster.retry(lambda: _describe(cluster.coordinator(group), group))


def delete(cluster: Cluster, group: str) -> None:
    def attempt() -> None:
        request = DeleteGroupsRequest(groups_names=[group])
        (result,) = cluster.coordinator(group).call(request, DeleteGroupsResponse).results
        check(result.error_code, f"deleting group {group!r}")

    cluster.retry(attempt)


def committed(cluster: Cluster, group: str) -> dict[TopicPartition, Committed]:
    """All that the group has committed; empty for a group that does not exist."""
    return cluster.retry(lambda: _committed(cluster.coordinator(group), group))


def commit(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, int],
    *,
    metadata: str = "",
    member_id: str = "",
    epoch: int = NO_MEMBER,
) -> None:
    """On behalf of a group without members, which comes to be if it did not exist; or as a member of it."""
    request = OffsetCommitRequest(group_id=group, member_id=member_id, generation_id_or_member_epoch=epoch)
    for topic, partitions in by_topic(offsets).items():
        places = [
            OffsetCommitRequestPartition(
                partition_index=p, committed_offset=offsets[TopicPartition(topic, p)], committed_metadata=metadata
            )
            for p in partitions
        ]
        request.topics.append(OffsetCommitRequestTopic(name=topic, partitions=places))

    def attempt() -> None:
        coordinator = cluster.coordinator(group)
        version = coordinator.version_of(OffsetCommitRequest, highest=BY_NAME)
        for topic in coordinator.call(request, OffsetCommitResponse, version=version).topics:
            for place in topic.partitions:
                at = TopicPartition(topic.name, place.partition_index)
                check(place.error_code, f"a commit of group {group!r} for {at}")

    cluster.retry(attempt)


def delete_offsets(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> None:
    request = OffsetDeleteRequest(group_id=group)
    for topic, indexes in by_topic(partitions).items():
        places = [OffsetDeleteRequestPartition(partition_index=p) for p in indexes]
        request.topics.append(OffsetDeleteRequestTopic(name=topic, partitions=places))

    def attempt() -> None:
        answer = cluster.coordinator(group).call(request, OffsetDeleteResponse)
        check(answer.error_code, f"deleting offsets of group {group!r}")
        for topic in answer.topics:
            for place in topic.partitions:
                at = TopicPartition(topic.name, place.partition_index)
                check(place.error_code, f"deleting the offset of group {group!r} for {at}")

    cluster.retry(attempt)


def _describe(coordinator: Connection, group: str) -> GroupDescription:
    if coordinator.offers(ConsumerGroupDescribeRequest):
        request = ConsumerGroupDescribeRequest(group_ids=[group])
        (given,) = coordinator.call(request, ConsumerGroupDescribeResponse).groups
        if given.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check(given.error_code, f"group {group!r}", given.error_message)
            return _consumer_group(given, coordinator)
    (described,) = coordinator.call(DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse).groups
    if described.group_state == "Dead" and not described.error_code:
        raise refused(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r}")
    check(described.error_code, f"group {group!r}", described.error_message)
    return _classic_group(described, coordinator)


def _consumer_group(given: DescribedConsumerGroup, coordinator: Connection) -> GroupDescription:
    members = tuple(
        DescribedMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host.removeprefix("/"),
            tuple(TopicPartition(t.topic_name, p) for t in member.assignment.topic_partitions for p in t.partitions),
        )
        for member in given.members
    )
    return GroupDescription(
        given.group_id, CONSUMER, given.group_state, given.assignor_name, str(coordinator.address), members
    )


def _classic_group(given: DescribedClassicGroup, coordinator: Connection) -> GroupDescription:
    is_consumers = given.protocol_type in ("", "consumer")
    members = tuple(
        DescribedMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host.removeprefix("/"),
            _assigned(bytes(member.member_assignment)) if is_consumers else (),
        )
        for member in given.members
    )
    return GroupDescription(
        given.group_id, CLASSIC, given.group_state, given.protocol_data, str(coordinator.address), members
    )


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """What a classic group's leader wrote for a member; empty while the group rebalances, or if unreadable."""
    if len(assignment) < 2:
        return ()
    version = min(int.from_bytes(assignment[:2], "big", signed=True), ASSIGNMENT_VERSIONS[-1])
    try:
        read, _ = decode(ConsumerProtocolAssignment, max(0, version), assignment, 2)
    except MalformedMessage:
        return ()
    return tuple(TopicPartition(topic.topic, p) for topic in read.assigned_partitions for p in topic.partitions)


def _committed(coordinator: Connection, group: str) -> dict[TopicPartition, Committed]:
    version = coordinator.version_of(OffsetFetchRequest, highest=BY_NAME)
    if version >= SEVERAL_GROUPS_SINCE:
        wanted = OffsetFetchRequestGroup(group_id=group, topics=None)
        request = OffsetFetchRequest(groups=[wanted])
        (answer,) = coordinator.call(request, OffsetFetchResponse, version=version).groups
        error_code, topics = answer.error_code, answer.topics
    else:
        single = coordinator.call(OffsetFetchRequest(group_id=group, topics=None), OffsetFetchResponse, version=version)
        error_code, topics = single.error_code, single.topics  # type: ignore[assignment]
    if error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    check(error_code, f"offsets of group {group!r}")
    found = {}
    for topic in topics:
        for place in topic.partitions:
            at = TopicPartition(topic.name, place.partition_index)
            check(place.error_code, f"the offset of group {group!r} for {at}")
            if place.committed_offset != NO_COMMIT:
                found[at] = Committed(place.committed_offset, place.committed_leader_epoch, place.metadata or "")
    return found
