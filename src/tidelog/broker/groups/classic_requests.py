"""SyncGroup, Heartbeat and LeaveGroup of the classic protocol, and what happens when a member is not heard of."""

from __future__ import annotations

from tidelog.broker.decision import Decision, Instant, Ticket
from tidelog.broker.groups.classic import (
    Step,
    answer_sync,
    complete_join_if_all_joined,
    complete_sync,
    finish,
    forget,
    join_is_due,
    member_error,
    rebalance,
    sync_is_due,
    synced,
)
from tidelog.broker.groups.classic_group import LiveGroup
from tidelog.broker.groups.deadlines import Key
from tidelog.broker.groups.phases import HEARTBEAT, Phase
from tidelog.broker.groups.settings import MAX_GROUP_ID_LENGTH
from tidelog.broker.groups.state import Groups
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

LEAVE_IN_BATCHES_SINCE = 3


def decide_sync(state: Groups, request: SyncGroupRequest, ticket: Ticket, now: Instant) -> Decision:
    if (consumer := state.consumer.get(request.group_id)) is not None:
        from tidelog.broker.groups import classic_members

        return classic_members.decide_sync(state, consumer, request, ticket, now)
    group = state.live_group(request.group_id)
    error_code = _sync_error(group, request)
    if group is None or error_code != ErrorCode.NONE:
        return Decision([], [(ticket, SyncGroupResponse(error_code=error_code))])
    member = group.members[request.member_id]
    step = Step(state, group, now)
    group.unsynced.discard(request.member_id)
    if not group.unsynced:
        step.not_due("sync")
    if group.phase is Phase.STABLE:
        step.replies.append((ticket, synced(group, member)))
        step.renew_session(member)
        return finish(step)
    # A client that reconnected asks again: the older request gets its answer, too.
    answer_sync(step, member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_ticket = ticket
    if group.leader == request.member_id:
        complete_sync(step, {one.member_id: one.assignment for one in request.assignments})
    return finish(step)


def _sync_error(group: LiveGroup | None, request: SyncGroupRequest) -> int:
    if request.group_id == "":
        return ErrorCode.INVALID_GROUP_ID
    error_code = member_error(group, request.member_id, request.group_instance_id)
    if group is None or error_code != ErrorCode.NONE:
        return error_code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and request.protocol_name != group.protocol:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.phase is Phase.PREPARING else ErrorCode.NONE


def decide_heartbeat(state: Groups, request: HeartbeatRequest, ticket: Ticket, now: Instant) -> Decision:
    if (consumer := state.consumer.get(request.group_id)) is not None:
        from tidelog.broker.groups import classic_members

        return classic_members.decide_heartbeat(state, consumer, request, ticket, now)
    group = state.live_group(request.group_id)
    error_code = member_error(group, request.member_id, request.group_instance_id)
    if request.group_id == "":
        error_code = ErrorCode.INVALID_GROUP_ID
    elif group is not None and error_code == ErrorCode.NONE:
        if request.generation_id != group.generation:
            error_code = ErrorCode.ILLEGAL_GENERATION
        else:
            Step(state, group, now).renew_session(group.members[request.member_id])
            error_code = HEARTBEAT[group.phase]
    return Decision([], [(ticket, HeartbeatResponse(error_code=error_code))])


def decide_leave(state: Groups, request: LeaveGroupRequest, version: int, ticket: Ticket, now: Instant) -> Decision:
    if not 0 < len(request.group_id) <= MAX_GROUP_ID_LENGTH:
        return Decision([], [(ticket, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))])
    identities = request.members
    if version < LEAVE_IN_BATCHES_SINCE:
        identities = [MemberIdentity(member_id=request.member_id)]
    if (consumer := state.consumer.get(request.group_id)) is not None:
        from tidelog.broker.groups import classic_members

        return classic_members.decide_leave(state, consumer, identities, version >= LEAVE_IN_BATCHES_SINCE, ticket, now)
    step = Step(state, state.live_group(request.group_id) or LiveGroup(request.group_id), now)
    before = len(step.group.members)
    answers = [
        MemberResponse(
            member_id=one.member_id,
            group_instance_id=one.group_instance_id,
            error_code=_leave(step, one.member_id, one.group_instance_id),
        )
        for one in identities
    ]
    if len(step.group.members) < before:
        rebalance(step)
    else:
        # A pending member may have been the last that the others waited for.
        complete_join_if_all_joined(step)
    if version < LEAVE_IN_BATCHES_SINCE:
        step.replies.append((ticket, LeaveGroupResponse(error_code=answers[0].error_code)))
    else:
        step.replies.append((ticket, LeaveGroupResponse(members=answers)))
    return finish(step)


def _leave(step: Step, member_id: str, instance_id: str | None) -> int:
    group = step.group
    if member_id == "" and instance_id is not None:
        # An administrator removes a static member by the only name it knows.
        static = group.static_member(instance_id)
        member_id = static.kept.member_id if static is not None else ""
    elif member_id in group.pending:
        group.pending.remove(member_id)
        step.not_due("pending", member_id)
        return ErrorCode.NONE
    error_code = member_error(group, member_id, instance_id)
    if error_code == ErrorCode.NONE:
        forget(step, member_id)
    return error_code


def expire(state: Groups, key: Key, now: Instant) -> Decision:
    """A deadline of a classic group has come."""
    group = state.live_group(key.group)
    if group is None:
        return Decision([], [])
    step = Step(state, group, now)
    if key.kind == "join":
        join_is_due(step)
    elif key.kind == "sync":
        sync_is_due(step)
    elif key.kind == "pending":
        group.pending.discard(key.member)
        complete_join_if_all_joined(step)
    elif (member := group.members.get(key.member)) is not None:
        # Whoever waits for a reply of ours cannot send heartbeats; its session begins anew with the reply.
        parked = member.join_ticket is not None or member.sync_ticket is not None
        if member.is_new or not parked:
            forget(step, key.member)
            rebalance(step)
    return finish(step)
