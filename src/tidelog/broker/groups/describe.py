"""What the broker tells about groups: ListGroups, DescribeGroups (classic) and ConsumerGroupDescribe (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.broker.groups.classic_group import LiveGroup
from tidelog.broker.groups.consumer import assignor_of
from tidelog.broker.groups.consumer_group import Group, Member, Partitions
from tidelog.broker.groups.phases import Phase
from tidelog.broker.groups.state import Groups
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages import consumer_group_describe, describe_groups
from tidelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

NOT_FOUND_SINCE = 6
CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1

# READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS, by their numbers in Kafka's AclOperation.
AUTHORIZED_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


class Summary(NamedTuple):
    group_id: str
    kind: str  # "classic" or "consumer"
    protocol_type: str
    state: str


def summaries(state: Groups) -> list[Summary]:
    """Every group there is, simple ones among the classic, by id."""
    found = []
    for group_id in sorted(state.ids()):
        if group_id in state.consumer:
            found.append(Summary(group_id, "consumer", "consumer", state.consumer[group_id].state()))
        else:
            group = state.live_group(group_id) or LiveGroup(group_id)
            found.append(Summary(group_id, "classic", group.protocol_type, group.phase.value))
    return found


def list_groups(state: Groups, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {name.lower() for name in request.states_filter}
    kinds = {name.lower() for name in request.types_filter}
    groups = [
        ListedGroup(group_id=one.group_id, protocol_type=one.protocol_type, group_state=one.state, group_type=one.kind)
        for one in summaries(state)
        if (not states or one.state.lower() in states) and (not kinds or one.kind in kinds)
    ]
    return ListGroupsResponse(groups=groups)


def describe_classic(
    state: Groups, request: describe_groups.DescribeGroupsRequest, version: int
) -> describe_groups.DescribeGroupsResponse:
    # Each once: else a small request could ask for a reply of any size.
    groups = [_classic(state, group_id, version) for group_id in dict.fromkeys(request.groups)]
    if request.include_authorized_operations:
        for one in groups:
            one.authorized_operations = AUTHORIZED_OPERATIONS
    return describe_groups.DescribeGroupsResponse(groups=groups)


def _classic(state: Groups, group_id: str, version: int) -> describe_groups.DescribedGroup:
    reply = describe_groups.DescribedGroup(group_id=group_id)
    group = state.live_group(group_id)
    if group is None and group_id in state.offsets and group_id not in state.consumer:
        group = LiveGroup(group_id)
    if group is None:
        reply.group_state = Phase.DEAD.value
        if version >= NOT_FOUND_SINCE:
            reply.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            reply.error_message = f"classic group {group_id!r} does not exist"
        return reply
    reply.group_state = group.phase.value
    reply.protocol_type = group.protocol_type
    stable = group.phase is Phase.STABLE
    reply.protocol_data = group.protocol or "" if stable else ""
    reply.members = [
        describe_groups.DescribedGroupMember(
            member_id=one.kept.member_id,
            group_instance_id=one.kept.instance_id,
            client_id=one.kept.client_id,
            client_host=one.kept.client_host,
            member_metadata=one.kept.metadata(group.protocol) if stable else b"",
            member_assignment=one.kept.assignment if stable else b"",
        )
        for one in group.members.values()
    ]
    return reply


def describe_consumer(
    state: Groups, request: consumer_group_describe.ConsumerGroupDescribeRequest
) -> consumer_group_describe.ConsumerGroupDescribeResponse:
    names = {topic.topic_id: name for name, topic in state.live.topics.items()}
    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        group = state.consumer.get(group_id)
        if group_id == "":
            reply = consumer_group_describe.DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
        elif group is None:
            message = f"consumer group {group_id!r} does not exist"
            reply = consumer_group_describe.DescribedGroup(
                group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message
            )
        else:
            reply = _consumer(state, group, names)
        if request.include_authorized_operations:
            reply.authorized_operations = AUTHORIZED_OPERATIONS
        groups.append(reply)
    return consumer_group_describe.ConsumerGroupDescribeResponse(groups=groups)


def _consumer(state: Groups, group: Group, names: Mapping[bytes, str]) -> consumer_group_describe.DescribedGroup:
    return consumer_group_describe.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state(),
        group_epoch=group.epoch,
        assignment_epoch=group.epoch,
        assignor_name=assignor_of(state, group),
        members=[_member(one, names) for one in group.members.values()],
    )


def _member(member: Member, names: Mapping[bytes, str]) -> consumer_group_describe.Member:
    return consumer_group_describe.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern,
        assignment=_assignment(member.assigned, names),
        target_assignment=_assignment(member.target, names),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Partitions, names: Mapping[bytes, str]) -> consumer_group_describe.Assignment:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        # A deleted topic has no name any more; its partitions are about to be given back.
        if topic_id in names:
            by_topic.setdefault(topic_id, []).append(index)
    some = [
        consumer_group_describe.TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=indexes)
        for topic_id, indexes in by_topic.items()
    ]
    return consumer_group_describe.Assignment(topic_partitions=some)
