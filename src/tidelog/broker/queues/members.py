"""ShareGroupHeartbeat: who is in a share group, and which partitions each may ask for.

Every member gets every partition of the topics that it subscribes to: records are shared one by one, so there may be
more members than partitions, and a partition needs no owner. A member that is not heard of for its session time-out is
lost, and what it had acquired is available again.

    epoch 0      joins, or joins again: what it had is forgotten
    epoch n      goes on; n is its present epoch or the one before (its last reply may have been lost)
    epoch -1     leaves
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from tidelog.broker.decision import Decision, Instant, NewRecord, Ticket
from tidelog.broker.queues.records import group_record
from tidelog.broker.queues.settings import MAX_GROUP_ID_LENGTH, ShareSettings
from tidelog.broker.queues.state import LiveShareGroup, Place, Queues, ShareMember
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

JOINING, LEAVING = 0, -1


class SubscribedTopic(Protocol):
    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> int: ...


class AskedHeartbeat(NamedTuple):
    """What a heartbeat is decided by, beside the state."""

    request: ShareGroupHeartbeatRequest
    client_id: str
    host: str
    topics: Mapping[str, SubscribedTopic]
    settings: ShareSettings
    max_members: int
    taken: bool  # the id is a consumer group's
    room: bool  # there may be one more group


def decide_heartbeat(state: Queues, asked: AskedHeartbeat, ticket: Ticket, now: Instant) -> Decision:
    """Members change at once, for they are memory only; the one record is that of a new group."""
    request = asked.request
    refusal = _malformed(request) or _refused(state, asked)
    if refusal is not None:
        return Decision([], [(ticket, _response(refusal))])
    if request.member_epoch == LEAVING:
        remove(state, request.group_id, request.member_id)
        left = ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVING)
        return Decision([], [(ticket, left)])
    records: list[NewRecord] = []
    if request.group_id not in state.groups:
        records.append(group_record(request.group_id, now.wall_ms))
    member, told = _hear(state, asked, now)
    return Decision(records, [(ticket, _reply(member, asked.settings, told))])


def _hear(state: Queues, asked: AskedHeartbeat, now: Instant) -> tuple[ShareMember, bool]:
    """The member as it is now, and whether its assignment is to be told."""
    request = asked.request
    group = state.live.setdefault(request.group_id, LiveShareGroup())
    joins = request.member_epoch == JOINING
    member = group.members.get(request.member_id)
    told = joins or member is None or request.member_epoch != member.epoch
    if member is None:
        member = group.members[request.member_id] = ShareMember(request.member_id, asked.client_id, asked.host)
        group.epoch += 1
    if request.subscribed_topic_names is not None:
        topics = tuple(sorted(set(request.subscribed_topic_names)))
        group.epoch += topics != member.topics and not joins
        member.topics = topics
    member.rack_id = request.rack_id if request.rack_id is not None else member.rack_id
    assigned = assignment(member.topics, asked.topics)
    if assigned != member.assigned or member.epoch == 0:
        told, member.assigned = True, assigned
        member.previous_epoch, member.epoch = member.epoch, group.epoch
    member.deadline_ms = now.monotonic_ms + asked.settings.session_timeout_ms
    return member, told


def assignment(names: tuple[str, ...], topics: Mapping[str, SubscribedTopic]) -> tuple[Place, ...]:
    found = [topics[name] for name in names if name in topics]
    return tuple((topic.topic_id, index) for topic in found for index in range(topic.partitions))


def remove(state: Queues, group_id: str, member_id: str) -> None:
    group = state.live[group_id]
    del group.members[member_id]
    group.epoch += 1


def topics_changed(state: Queues, topics: Mapping[str, SubscribedTopic]) -> None:
    """Members are told at their next heartbeat; the group's epoch says that something changed."""
    for group in state.live.values():
        for member in group.members.values():
            if assignment(member.topics, topics) != member.assigned:
                group.epoch += 1
                break


def lost_members(state: Queues, now: Instant) -> list[tuple[str, str]]:
    return [
        (group_id, member.member_id)
        for group_id, group in state.live.items()
        for member in group.members.values()
        if member.deadline_ms <= now.monotonic_ms
    ]


def next_deadline(state: Queues) -> int | None:
    deadlines = [one.deadline_ms for group in state.live.values() for one in group.members.values()]
    return min(deadlines, default=None)


def _malformed(request: ShareGroupHeartbeatRequest) -> tuple[int, str] | None:
    wrong = None
    if not request.group_id.strip():
        wrong = "the group id is empty"
    elif len(request.group_id) > MAX_GROUP_ID_LENGTH:
        wrong = f"the group id has more than {MAX_GROUP_ID_LENGTH} characters"
    elif not request.member_id.strip():
        wrong = "the member id is empty; the client makes one"
    elif request.member_epoch < LEAVING:
        wrong = f"member epoch {request.member_epoch} is not one of -1, 0 and above"
    elif request.rack_id is not None and not request.rack_id.strip():
        wrong = "the rack id is empty"
    elif request.member_epoch == JOINING and not request.subscribed_topic_names:
        wrong = "who joins must subscribe to a topic"
    return None if wrong is None else (ErrorCode.INVALID_REQUEST, wrong)


def _refused(state: Queues, asked: AskedHeartbeat) -> tuple[int, str] | None:
    request = asked.request
    group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
    if asked.taken:
        return ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} is not a share group"
    if asked.settings.dead_letters and asked.settings.dead_letters in (request.subscribed_topic_names or ()):
        own = f"topic {asked.settings.dead_letters!r} is for the group's own dead letters"
        return ErrorCode.INVALID_REQUEST, f"{own}; read it in another group"
    members = state.members(group_id)
    if epoch != JOINING:
        if group_id not in state.groups:
            return ErrorCode.GROUP_ID_NOT_FOUND, f"share group {group_id!r} does not exist"
        member = members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of share group {group_id!r}; join again"
        if epoch not in (LEAVING, member.epoch, member.previous_epoch):
            present = f"member epoch {epoch} is not the present one, {member.epoch}"
            return ErrorCode.FENCED_MEMBER_EPOCH, f"{present}; join again"
        return None
    if group_id not in state.groups and not asked.room:
        return ErrorCode.POLICY_VIOLATION, "there are as many groups as tidelog.max.groups allows"
    if member_id not in members and len(members) >= asked.max_members:
        full = f"share group {group_id!r} has {asked.max_members} members, the maximum"
        return ErrorCode.GROUP_MAX_SIZE_REACHED, full
    return None


def _response(refusal: tuple[int, str]) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=refusal[0], error_message=refusal[1])


def _reply(member: ShareMember, settings: ShareSettings, told: bool) -> ShareGroupHeartbeatResponse:
    reply = ShareGroupHeartbeatResponse(
        member_id=member.member_id, member_epoch=member.epoch, heartbeat_interval_ms=settings.heartbeat_interval_ms
    )
    if told:
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, index in member.assigned:
            by_topic.setdefault(topic_id, []).append(index)
        reply.assignment = Assignment(
            topic_partitions=[TopicPartitions(topic_id=one, partitions=indexes) for one, indexes in by_topic.items()]
        )
    return reply
