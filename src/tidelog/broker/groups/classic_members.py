"""Members of a KIP-848 group that speak the classic protocol: their JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

The broker assigns to them as to the others; nobody leads, and nothing is parked:

    Heartbeat    REBALANCE_IN_PROGRESS when the member has to come again: there is a new epoch, it has to give something
                 back, or all that it waits for is free. It then has its rebalance time-out for it ("rejoin")
    JoinGroup    brings the member one step nearer to its target (`consumer.reconcile`), with what its metadata say that
                 it owns; its epoch is the generation. It has its rebalance time-out to fetch the outcome ("resync")
    SyncGroup    what it has, as the leader of a classic group would have told it

Who gives back cooperatively is answered in its old epoch without those partitions, drops them, and joins again. Who
gives back eagerly comes owning nothing.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.decision import Decision, Instant, Ticket
from tidelog.broker.groups.classic_group import CONSUMER_PROTOCOL_TYPE, Protocol
from tidelog.broker.groups.consumer import (
    advance,
    no_deadlines,
    reconcile,
    remove,
    waits_for_others,
    with_member,
    without_members,
)
from tidelog.broker.groups.consumer_group import (
    JOINING_EPOCH,
    NO_PARTITIONS,
    REVOKING,
    STABLE,
    WAITING,
    ClassicSide,
    Group,
    Member,
    changes,
)
from tidelog.broker.groups.deadlines import Key
from tidelog.broker.groups.migration import (
    assignment_bytes,
    downgrade,
    goes_back,
    parse_subscription,
    partitions_of,
    session_of_classic,
)
from tidelog.broker.groups.state import Caller, Groups
from tidelog.errors import MalformedMessage
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

MEMBER_ID_REQUIRED_SINCE = 4


# JoinGroup -------------------------------------------------------------------------------------------------------


def decide_join(
    state: Groups, group: Group, request: JoinGroupRequest, caller: Caller, ticket: Ticket, now: Instant
) -> Decision:
    name = request.group_instance_id if request.group_instance_id is not None else caller.client_id
    member_id = request.member_id or f"{name}-{caller.fresh_id}"
    old = _claimed(group, request)
    error_code = old if isinstance(old, int) else _join_error(state, group, request, old)
    if isinstance(old, int) or error_code != ErrorCode.NONE:
        return _join_reply(ticket, JoinGroupResponse(error_code=error_code, member_id=request.member_id))
    if request.member_id == "" and request.group_instance_id is None and caller.version >= MEMBER_ID_REQUIRED_SINCE:
        # Nothing is kept of it: whoever comes with an id and owns nothing is taken.
        return _join_reply(ticket, JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
    subscription = parse_subscription(request.protocols[0].metadata)
    joining = _joining(old, request, member_id, caller, subscription)
    others = without_members(group, {old.member_id}) if old is not None and old.member_id != member_id else group
    after = with_member(others, joining)
    if goes_back(state, group, after):
        return downgrade(state, group, after, now, (member_id, ticket))
    if old is None or (old.topics, old.pattern) != (joining.topics, joining.pattern):
        after = advance(state, after, now.wall_ms)
    settled = reconcile(after, after.members[member_id], partitions_of(state, subscription.owned_partitions))
    after = with_member(after, settled)
    if old is not None:
        no_deadlines(state, group.group_id, old.member_id)
    session_of_classic(state, group.group_id, settled, now)
    fetching = Key(group.group_id, "resync", member_id)
    state.live.deadlines.put(fetching, now.monotonic_ms + settled.rebalance_timeout_ms)
    reply = JoinGroupResponse(
        generation_id=settled.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        member_id=member_id,
    )
    return Decision(list(changes(group, after)), [(ticket, reply)])


def _join_reply(ticket: Ticket, reply: JoinGroupResponse) -> Decision:
    return Decision([], [(ticket, reply)])


def _claimed(group: Group, request: JoinGroupRequest) -> Member | int | None:
    """The member that the request speaks for, None for a new one, or what is wrong with the claim."""
    known = group.members.get(request.member_id)
    if request.group_instance_id is not None:
        static = group.static_member(request.group_instance_id)
        if request.member_id != "" and static is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if request.member_id != "" and static is not None and static.member_id != request.member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        known = static
    if known is not None and known.classic is None and request.member_id != "":
        # This id speaks KIP-848. Only a static member that starts anew may change its protocol.
        return ErrorCode.UNKNOWN_MEMBER_ID
    return known


def _join_error(state: Groups, group: Group, request: JoinGroupRequest, old: Member | None) -> int:
    if old is None and len(group.members) >= state.live.settings.consumer_max_members:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    names = {protocol.name for protocol in request.protocols}
    for one in group.members.values():
        if one.classic is not None and one is not old:
            names &= {protocol.name for protocol in one.classic.protocols}
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    try:
        owned = parse_subscription(request.protocols[0].metadata).owned_partitions
    except MalformedMessage:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    # Who is new owns nothing. Who says so was a member and does not know that its part has been given to others.
    was_member = old is None and any(one.partitions for one in owned)
    return ErrorCode.UNKNOWN_MEMBER_ID if was_member else ErrorCode.NONE


def _joining(
    old: Member | None,
    request: JoinGroupRequest,
    member_id: str,
    caller: Caller,
    subscription: ConsumerProtocolSubscription,
) -> Member:
    member = old if old is not None else Member(member_id)
    if member.member_id != member_id:
        # A static member that starts anew owns nothing; its own part it gets back.
        member = member._replace(
            epoch=JOINING_EPOCH,
            previous_epoch=JOINING_EPOCH,
            phase=STABLE,
            assigned=NO_PARTITIONS,
            revoking=NO_PARTITIONS,
        )
    timeout = request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
    protocols = tuple(Protocol(one.name, one.metadata) for one in request.protocols)
    return member._replace(
        member_id=member_id,
        instance_id=request.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=caller.client_id,
        client_host=caller.host,
        rebalance_timeout_ms=timeout,
        topics=frozenset(subscription.topics),
        pattern=None,
        assignor=None,
        classic=ClassicSide(request.session_timeout_ms, protocols),
    )


# SyncGroup and Heartbeat -----------------------------------------------------------------------------------------


def decide_sync(state: Groups, group: Group, request: SyncGroupRequest, ticket: Ticket, now: Instant) -> Decision:
    member = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    if isinstance(member, int):
        return Decision([], [(ticket, SyncGroupResponse(error_code=member))])
    assert member.classic is not None
    protocol = member.classic.protocols[0].name
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (None, protocol):
        return Decision([], [(ticket, SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))])
    session_of_classic(state, group.group_id, member, now)
    # Who has to give back fetches first what it keeps.
    if member.epoch < group.epoch and member.phase != REVOKING:
        _shall_rejoin(state, group, member, now)
        return Decision([], [(ticket, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))])
    state.live.deadlines.drop(Key(group.group_id, "resync", member.member_id))
    reply = SyncGroupResponse(
        protocol_type=CONSUMER_PROTOCOL_TYPE, protocol_name=protocol, assignment=assignment_bytes(state, member)
    )
    return Decision([], [(ticket, reply)])


def decide_heartbeat(state: Groups, group: Group, request: HeartbeatRequest, ticket: Ticket, now: Instant) -> Decision:
    member = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    if isinstance(member, int):
        return Decision([], [(ticket, HeartbeatResponse(error_code=member))])
    session_of_classic(state, group.group_id, member, now)
    error_code = ErrorCode.NONE
    can_take = member.phase == WAITING and not waits_for_others(group, member)
    if member.epoch < group.epoch or member.phase == REVOKING or can_take:
        error_code = ErrorCode.REBALANCE_IN_PROGRESS
        _shall_rejoin(state, group, member, now)
    return Decision([], [(ticket, HeartbeatResponse(error_code=error_code))])


def _member(group: Group, member_id: str, instance_id: str | None, generation: int) -> Member | int:
    """The classic member that this is, or what is wrong with the claim."""
    member = group.members.get(member_id)
    if instance_id is not None:
        static = group.static_member(instance_id)
        if static is not None and static.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        member = static
    if member is None or member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return member if generation == member.epoch else ErrorCode.ILLEGAL_GENERATION


def _shall_rejoin(state: Groups, group: Group, member: Member, now: Instant) -> None:
    key = Key(group.group_id, "rejoin", member.member_id)
    if state.live.deadlines.get(key) is None:
        state.live.deadlines.put(key, now.monotonic_ms + member.rebalance_timeout_ms)


# LeaveGroup ------------------------------------------------------------------------------------------------------


def decide_leave(
    state: Groups, group: Group, identities: list[MemberIdentity], batched: bool, ticket: Ticket, now: Instant
) -> Decision:
    leaving: set[str] = set()
    answers = [
        MemberResponse(
            member_id=one.member_id,
            group_instance_id=one.group_instance_id,
            error_code=_leave(group, one.member_id, one.group_instance_id, leaving),
        )
        for one in identities
    ]
    records = remove(state, group, leaving, now) if leaving else []
    reply: Any = LeaveGroupResponse(members=answers)
    if not batched:
        reply = LeaveGroupResponse(error_code=answers[0].error_code)
    return Decision(records, [(ticket, reply)])


def _leave(group: Group, member_id: str, instance_id: str | None, leaving: set[str]) -> int:
    member = group.members.get(member_id)
    if instance_id is not None:
        member = group.static_member(instance_id)
        # An administrator removes a static member by the only name it knows.
        if member is not None and member_id not in ("", member.member_id):
            return ErrorCode.FENCED_INSTANCE_ID
    if member is None or member.classic is None or member.member_id in leaving:
        return ErrorCode.UNKNOWN_MEMBER_ID
    leaving.add(member.member_id)
    return ErrorCode.NONE
