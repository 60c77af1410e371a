"""What an operator asks about share groups, and changes: who is in them, where their queues are, and their end.

A group that has members is not changed: its members would go on with what is not there any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidelog.broker.decision import NewRecord
from tidelog.broker.queues.records import gone_record, group_record, whole_record
from tidelog.broker.queues.state import Place, Queues, ShareMember
from tidelog.broker.queues.window import QueueWindow
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages import share_group_describe
from tidelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest

ASSIGNOR = "simple"
KIND = "share"
# READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS, by their numbers in Kafka's AclOperation.
AUTHORIZED_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def describe_groups(
    state: Queues, request: share_group_describe.ShareGroupDescribeRequest, names: Mapping[bytes, str]
) -> share_group_describe.ShareGroupDescribeResponse:
    # Each once: else a small request could ask for a reply of any size.
    groups = [_described(state, group, names) for group in dict.fromkeys(request.group_ids)]
    if request.include_authorized_operations:
        for one in groups:
            one.authorized_operations = AUTHORIZED_OPERATIONS
    return share_group_describe.ShareGroupDescribeResponse(groups=groups)


def _described(state: Queues, group: str, names: Mapping[bytes, str]) -> share_group_describe.DescribedGroup:
    if group not in state.groups:
        return share_group_describe.DescribedGroup(
            group_id=group,
            group_state="Dead",
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"share group {group!r} does not exist",
        )
    epoch = state.live[group].epoch if group in state.live else 0
    return share_group_describe.DescribedGroup(
        group_id=group,
        group_state=state.group_state(group),
        group_epoch=epoch,
        assignment_epoch=epoch,
        assignor_name=ASSIGNOR,
        members=[_member(one, names) for one in state.members(group).values()],
    )


def _member(member: ShareMember, names: Mapping[bytes, str]) -> share_group_describe.Member:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in member.assigned:
        if topic_id in names:  # a deleted topic has no name any more
            by_topic.setdefault(topic_id, []).append(index)
    some = [
        share_group_describe.TopicPartitions(topic_id=one, topic_name=names[one], partitions=indexes)
        for one, indexes in by_topic.items()
    ]
    return share_group_describe.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.host,
        subscribed_topic_names=list(member.topics),
        assignment=share_group_describe.Assignment(topic_partitions=some),
    )


def list_groups(state: Queues, request: ListGroupsRequest) -> list[ListedGroup]:
    states = {name.lower() for name in request.states_filter}
    kinds = {name.lower() for name in request.types_filter}
    return [
        ListedGroup(group_id=one, protocol_type=KIND, group_state=state.group_state(one), group_type=KIND)
        for one in sorted(state.groups)
        if (not states or state.group_state(one).lower() in states) and (not kinds or KIND in kinds)
    ]


def lag(window: QueueWindow, high_watermark: int) -> int:
    """How many records are not done."""
    undone = window.end - window.start - window.done - sum(span.size for span in window.dying())
    return undone + max(0, high_watermark - window.end)


def refusal(state: Queues, group: str) -> tuple[int, str] | None:
    """Why a group's queues cannot be changed."""
    if group not in state.groups:
        return ErrorCode.GROUP_ID_NOT_FOUND, f"share group {group!r} does not exist"
    if state.members(group):
        return ErrorCode.NON_EMPTY_GROUP, f"share group {group!r} has members; stop them first"
    return None


def moved(group: str, place: Place, topic: str, start: int) -> NewRecord:
    """The queue begins at another offset, and nothing is known of the records there."""
    return whole_record(group, *place, topic, QueueWindow(start))


def forgotten(state: Queues, group: str, is_meant: Callable[[Place], bool]) -> list[NewRecord]:
    return [gone_record(group, *place) for place in state.queues.get(group, {}) if is_meant(place)]


def deleted(state: Queues, groups: Iterable[str]) -> list[NewRecord]:
    """The records after which groups without members are no more."""
    records = []
    for group in groups:
        records += forgotten(state, group, lambda _: True)
        records.append(group_record(group, None))
    return records
