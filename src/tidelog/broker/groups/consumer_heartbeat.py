"""ConsumerGroupHeartbeat: the request by which a member of a KIP-848 group joins, stays, gives back, takes and leaves.

A member epoch says what the member wants:

     0     to join, or to join anew owning nothing; a static member takes over from the one that is away under its name
    > 0    to stay; accepted with its epoch, or with the one before, as long as it owns no more than it was given: the
           reply was lost
    -1     to leave
    -2     as a static member, to be away and come back: it keeps its partitions until its session ends

Whatever a request leaves out is as it was.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.broker.decision import Decision, Instant, NewRecord, Ticket
from tidelog.broker.groups.classic_group import LiveGroup
from tidelog.broker.groups.consumer import advance, no_deadlines, reconcile, remove, with_member, without_members
from tidelog.broker.groups.consumer_group import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    LEAVING_EPOCH,
    NO_PARTITIONS,
    REVOKING,
    STABLE,
    Group,
    Member,
    Partitions,
    changes,
    new_group,
)
from tidelog.broker.groups.deadlines import Key
from tidelog.broker.groups.migration import let_go, upgraded
from tidelog.broker.groups.records import group_key
from tidelog.broker.groups.settings import MAX_GROUP_ID_LENGTH
from tidelog.broker.groups.state import Caller, Groups
from tidelog.broker.groups.subscriptions import matching, subscription
from tidelog.errors import UsageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)

MEMBER_ID_BY_CLIENT_SINCE = 1


class Refusal(NamedTuple):
    error_code: int
    message: str


def decide_consumer_heartbeat(
    state: Groups, request: ConsumerGroupHeartbeatRequest, caller: Caller, ticket: Ticket, now: Instant
) -> Decision:
    refusal = _request_error(state, request, caller.version)
    if refusal is not None:
        return _refuse(ticket, refusal)
    if request.member_epoch in (LEAVING_EPOCH, AWAY_EPOCH):
        return _leave(state, request, ticket, now)
    return _stay(state, request, caller, ticket, now)


def _refuse(ticket: Ticket, refusal: Refusal) -> Decision:
    reply = ConsumerGroupHeartbeatResponse(error_code=refusal.error_code, error_message=refusal.message)
    return Decision([], [(ticket, reply)])


def _request_error(state: Groups, request: ConsumerGroupHeartbeatRequest, version: int) -> Refusal | None:
    epoch = request.member_epoch
    invalid = ""
    if not 0 < len(request.group_id) <= MAX_GROUP_ID_LENGTH:
        invalid = f"the group id must have 1 to {MAX_GROUP_ID_LENGTH} characters"
    elif request.instance_id == "" or request.rack_id == "":
        invalid = "instance id and rack id cannot be empty; leave them out"
    elif request.member_id == "" and (epoch != JOINING_EPOCH or version >= MEMBER_ID_BY_CLIENT_SINCE):
        invalid = "the member id cannot be empty"
    elif epoch < AWAY_EPOCH:
        invalid = f"{epoch} is not a valid member epoch"
    elif epoch == AWAY_EPOCH and request.instance_id is None:
        invalid = "only a static member can be away; leave with member epoch -1"
    elif epoch == JOINING_EPOCH and request.rebalance_timeout_ms < 0:
        invalid = "the rebalance time-out must be given when joining"
    elif epoch == JOINING_EPOCH and request.topic_partitions != []:
        invalid = "a member that joins owns no partitions"
    elif epoch == JOINING_EPOCH and request.subscribed_topic_names is None and not request.subscribed_topic_regex:
        invalid = "topic names or a pattern must be given when joining"
    if invalid:
        return Refusal(ErrorCode.INVALID_REQUEST, invalid)
    known = state.live.settings.consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in known:
        message = f"assignor {request.server_assignor!r} does not exist; choose one of {', '.join(known)}"
        return Refusal(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    return _pattern_error(state, request.subscribed_topic_regex)


def _pattern_error(state: Groups, pattern: str | None) -> Refusal | None:
    try:
        matching(state, pattern)
    except UsageError as error:
        return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error))
    return None


# Joining and staying ---------------------------------------------------------------------------------------------


def _stay(
    state: Groups, request: ConsumerGroupHeartbeatRequest, caller: Caller, ticket: Ticket, now: Instant
) -> Decision:
    before = state.consumer.get(request.group_id)
    classic = state.live_group(request.group_id)
    group = before if before is not None else _new_group(state, request, classic)
    if isinstance(group, Refusal):
        return _refuse(ticket, group)
    found = _find_member(group, request, request.member_id or caller.fresh_id)
    if isinstance(found, Refusal):
        return _refuse(ticket, found)
    old_id, member = found
    if old_id is None and len(group.members) >= state.live.settings.consumer_max_members:
        most = state.live.settings.consumer_max_members
        return _refuse(ticket, Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {most} members, its maximum"))
    if old_id is not None and old_id != member.member_id:
        group = without_members(group, {old_id})
        no_deadlines(state, group.group_id, old_id)
    updated = _updated(member, request, caller)
    group = with_member(group, updated)
    if before is None or old_id is None or subscription(updated) != subscription(member):
        group = advance(state, group, now.wall_ms)
    settled = reconcile(group, group.members[updated.member_id], _owned(request))
    group = with_member(group, settled)
    _deadlines(state, group.group_id, member, settled, now)
    records = list(changes(before, group))
    replies = let_go(state, classic, group, now) if classic is not None else []
    if request.group_id in state.classic:
        records.insert(0, NewRecord(group_key("classic", request.group_id), None))
    return Decision(records, [*replies, (ticket, _reply(state, request, member, settled))])


def _new_group(state: Groups, request: ConsumerGroupHeartbeatRequest, classic: LiveGroup | None) -> Group | Refusal:
    """A group for the first member; a classic group becomes it, with its members (see `migration`)."""
    group_id = request.group_id
    if request.member_epoch != JOINING_EPOCH and classic is not None:
        # It was away for too long, and the group went back to the classic protocol. Clients join anew on this error.
        return Refusal(
            ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} is not a member of group {group_id!r} any more"
        )
    if request.member_epoch != JOINING_EPOCH:
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"consumer group {group_id!r} does not exist")
    if not state.has_room_for(group_id):
        return Refusal(ErrorCode.POLICY_VIOLATION, f"there are {state.live.settings.max_groups} groups, the maximum")
    group = upgraded(state, classic) if classic is not None else new_group(group_id)
    if isinstance(group, str):
        message = f"the group {group_id!r} cannot take a member of the consumer protocol: {group}; stop them first"
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, message)
    return group


def _find_member(
    group: Group, request: ConsumerGroupHeartbeatRequest, member_id: str
) -> tuple[str | None, Member] | Refusal:
    """The member as it stands before this heartbeat, and the id under which the group knows it, if it does."""
    joins = request.member_epoch == JOINING_EPOCH
    known = group.members.get(member_id)
    if request.instance_id is not None:
        static = group.static_member(request.instance_id)
        if static is None and not joins:
            return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {request.instance_id!r}")
        if static is not None and static.member_id != member_id:
            if not joins:
                return Refusal(ErrorCode.FENCED_INSTANCE_ID, f"{request.instance_id!r} is now {static.member_id}")
            if static.epoch != AWAY_EPOCH and static.classic is None:
                return Refusal(
                    ErrorCode.UNRELEASED_INSTANCE_ID, f"{request.instance_id!r} is in use by {static.member_id}"
                )
        known = static if static is not None else known
    if known is not None and known.classic is not None and not joins:
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is a member by the classic protocol")
    if known is None:
        if joins:
            return None, Member(member_id)
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of {group.group_id!r}")
    if joins:
        # It owns nothing, so all it had is free; its own part it gets back below.
        return known.member_id, known._replace(
            member_id=member_id,
            epoch=JOINING_EPOCH,
            previous_epoch=JOINING_EPOCH,
            phase=STABLE,
            assigned=NO_PARTITIONS,
            revoking=NO_PARTITIONS,
        )
    refusal = _epoch_error(known, request)
    return refusal if refusal is not None else (known.member_id, known)


def _epoch_error(member: Member, request: ConsumerGroupHeartbeatRequest) -> Refusal | None:
    if request.member_epoch == member.epoch:
        return None
    owned = _owned(request)
    if request.member_epoch == member.previous_epoch and owned is not None and owned <= member.assigned:
        return None
    return Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member epoch {request.member_epoch} is not the present one, {member.epoch};"
        " give up all partitions and join again",
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    return frozenset((one.topic_id, index) for one in request.topic_partitions for index in one.partitions)


def _updated(member: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Member:
    """What the request says about the member; what it leaves out stays as it was."""
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout = request.rebalance_timeout_ms
    updated = member._replace(
        instance_id=request.instance_id if request.instance_id is not None else member.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else member.rack_id,
        client_id=caller.client_id,
        client_host=caller.host,
        rebalance_timeout_ms=timeout if timeout >= 0 else member.rebalance_timeout_ms,
        topics=frozenset(names) if names is not None else member.topics,
        # The empty pattern ends a subscription by pattern.
        pattern=(pattern or None) if pattern is not None else member.pattern,
        assignor=request.server_assignor if request.server_assignor is not None else member.assignor,
        classic=None,
    )
    updated = updated._replace(user=caller.user if updated.pattern is not None else None)
    return member if updated == member else updated


def _reply(
    state: Groups, request: ConsumerGroupHeartbeatRequest, before: Member, after: Member
) -> ConsumerGroupHeartbeatResponse:
    """The assignment goes along when it changed, and when the member tells all or lags: it may have missed it."""
    reply = ConsumerGroupHeartbeatResponse(
        member_id=after.member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=state.live.heartbeat_interval_ms(request.group_id),
    )
    tells_all = request.rebalance_timeout_ms >= 0 and request.topic_partitions is not None
    if tells_all or request.member_epoch != after.epoch or before.assigned != after.assigned:
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, index in sorted(after.assigned):
            by_topic.setdefault(topic_id, []).append(index)
        some = [
            ResponseTopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic.items()
        ]
        reply.assignment = Assignment(topic_partitions=some)
    return reply


def _deadlines(state: Groups, group_id: str, before: Member, after: Member, now: Instant) -> None:
    deadlines = state.live.deadlines
    session = Key(group_id, "session", after.member_id)
    deadlines.put(session, now.monotonic_ms + state.live.session_timeout_ms(group_id, after))
    giving_back = Key(group_id, "rebalance", after.member_id)
    if after.phase != REVOKING:
        deadlines.drop(giving_back)
    elif before.revoking != after.revoking:
        deadlines.put(giving_back, now.monotonic_ms + after.rebalance_timeout_ms)


# Leaving ---------------------------------------------------------------------------------------------------------


def _leave(state: Groups, request: ConsumerGroupHeartbeatRequest, ticket: Ticket, now: Instant) -> Decision:
    group = state.consumer.get(request.group_id)
    if group is None:
        return _refuse(
            ticket, Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"consumer group {request.group_id!r} does not exist")
        )
    member = group.members.get(request.member_id)
    if request.instance_id is not None:
        static = group.static_member(request.instance_id)
        if static is not None and static.member_id != request.member_id:
            message = f"{request.instance_id!r} is now {static.member_id}"
            return _refuse(ticket, Refusal(ErrorCode.FENCED_INSTANCE_ID, message))
        member = static
    if member is None or member.classic is not None:
        message = f"{request.member_id} is not a member of {request.group_id!r}"
        return _refuse(ticket, Refusal(ErrorCode.UNKNOWN_MEMBER_ID, message))
    reply = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
    if request.member_epoch == LEAVING_EPOCH:
        return Decision(remove(state, group, {member.member_id}, now), [(ticket, reply)])
    # Whatever it had to give back it no longer owns; the rest waits for its return or for the end of its session.
    away = member._replace(epoch=AWAY_EPOCH, phase=STABLE, revoking=NO_PARTITIONS)
    state.live.deadlines.drop(Key(group.group_id, "rebalance", member.member_id))
    return Decision(list(changes(group, with_member(group, away))), [(ticket, reply)])
