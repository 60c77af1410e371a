"""JoinGroup: how one becomes a member of a classic group, and how a member takes part in a rebalance.

Who comes without a member id:

    dynamic   from version 4 on it is told its id with MEMBER_ID_REQUIRED and asked to come again; before, taken at once
    static    (with an instance id) taken at once; if the instance is known, it replaces the member of that name,
              without a rebalance when the group is stable and nothing changes for the others

Who comes with one: a pending member is taken; a member is answered by the table in `phases`; anybody else is told
UNKNOWN_MEMBER_ID.
"""

from __future__ import annotations

from tidelog.broker.decision import Decision, Instant, Ticket
from tidelog.broker.groups.classic import (
    Step,
    answer_both,
    answer_join,
    complete_join_if_all_joined,
    finish,
    forget,
    joined,
    member_error,
    members_for_leader,
    prepare,
    rebalance,
    vote,
)
from tidelog.broker.groups.classic_group import (
    CONSUMER_PROTOCOL_TYPE,
    KeptMember,
    LiveGroup,
    LiveMember,
    Protocol,
    subscribed_topics,
)
from tidelog.broker.groups.consumer_group import changes
from tidelog.broker.groups.phases import Phase
from tidelog.broker.groups.settings import MAX_GROUP_ID_LENGTH, NEW_MEMBER_JOIN_TIMEOUT_MS
from tidelog.broker.groups.state import Caller, Groups
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9


def decide_join(state: Groups, request: JoinGroupRequest, caller: Caller, ticket: Ticket, now: Instant) -> Decision:
    error_code = _request_error(state, request)
    if error_code != ErrorCode.NONE:
        return Decision([], [(ticket, JoinGroupResponse(error_code=error_code, member_id=request.member_id))])
    consumer = state.consumer.get(request.group_id)
    if consumer is not None and consumer.members:
        from tidelog.broker.groups import classic_members

        return classic_members.decide_join(state, consumer, request, caller, ticket, now)
    step = Step(state, _open_group(state, request), now)
    if consumer is not None:
        step.records += changes(consumer, None)
    error_code = _group_error(step, request)
    if error_code != ErrorCode.NONE:
        step.replies.append((ticket, JoinGroupResponse(error_code=error_code, member_id=request.member_id)))
    elif request.member_id == "":
        _join_new(step, request, caller, ticket)
    elif request.member_id in step.group.pending:
        _add(step, request, caller, request.member_id, ticket)
    else:
        _rejoin(step, request, ticket)
    return finish(step)


def _request_error(state: Groups, request: JoinGroupRequest) -> int:
    settings = state.live.settings
    if not 0 < len(request.group_id) <= MAX_GROUP_ID_LENGTH:
        return ErrorCode.INVALID_GROUP_ID
    if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    consumer = state.consumer.get(request.group_id)
    if consumer is not None and consumer.members:
        return ErrorCode.NONE
    if request.member_id != "":
        return ErrorCode.NONE if state.live_group(request.group_id) is not None else ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if state.has_room_for(request.group_id) else ErrorCode.POLICY_VIOLATION


def _open_group(state: Groups, request: JoinGroupRequest) -> LiveGroup:
    group = state.live_group(request.group_id)
    if group is None:
        group = LiveGroup(request.group_id)
        # An emptied KIP-848 group becomes a classic one. Its epoch goes on as generation: old commits stay fenced.
        consumer = state.consumer.get(request.group_id)
        group.generation = consumer.epoch if consumer is not None else 0
    return group


def _group_error(step: Step, request: JoinGroupRequest) -> int:
    """Why the group cannot take this member: it is full, or has another protocol."""
    group = step.group
    if not _has_room(step, request):
        if request.member_id in group.members:
            # The group's maximum was lowered: who rejoins last is out.
            forget(step, request.member_id)
            rebalance(step)
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    names = {protocol.name for protocol in request.protocols}
    if group.phase is Phase.EMPTY:
        fits = bool(request.protocol_type and names)
    else:
        others = [
            one.kept
            for one in group.members.values()
            if one.kept.member_id != request.member_id
            and (one.kept.instance_id is None or one.kept.instance_id != request.group_instance_id)
        ]
        for one in others:
            names &= {protocol.name for protocol in one.protocols}
        fits = request.protocol_type == group.protocol_type and bool(names)
    return ErrorCode.NONE if fits else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def _has_room(step: Step, request: JoinGroupRequest) -> bool:
    group = step.group
    most = step.state.live.settings.max_members
    member = group.members.get(request.member_id)
    if request.group_instance_id is not None and request.member_id == "":
        member = group.static_member(request.group_instance_id)
    if request.member_id == "" and request.group_instance_id is None and len(group.pending) >= most:
        return False
    if group.phase is Phase.PREPARING:
        if member is not None and member.join_ticket is not None:
            return True
        return sum(one.join_ticket is not None for one in group.members.values()) < most
    return member is not None or len(group.members) < most


def _join_new(step: Step, request: JoinGroupRequest, caller: Caller, ticket: Ticket) -> None:
    instance_id = request.group_instance_id
    member_id = f"{instance_id if instance_id is not None else caller.client_id}-{caller.fresh_id}"
    if instance_id is not None and (static := step.group.static_member(instance_id)) is not None:
        _replace_static(step, request, caller, static, member_id, ticket)
    elif instance_id is None and caller.version >= MEMBER_ID_REQUIRED_SINCE:
        step.group.pending.add(member_id)
        step.due_in(request.session_timeout_ms, "pending", member_id)
        reply = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        step.replies.append((ticket, reply))
    else:
        _add(step, request, caller, member_id, ticket)


def _member_of(request: JoinGroupRequest, member_id: str, client_id: str, host: str) -> KeptMember:
    # Version 0 has no rebalance time-out of its own.
    timeout = request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
    protocols = tuple(Protocol(one.name, one.metadata) for one in request.protocols)
    return KeptMember(
        member_id, request.group_instance_id, client_id, host, request.session_timeout_ms, timeout, protocols
    )


def _add(step: Step, request: JoinGroupRequest, caller: Caller, member_id: str, ticket: Ticket) -> None:
    group = step.group
    group.pending.discard(member_id)
    step.not_due("pending", member_id)
    if not group.members:
        group.protocol_type = request.protocol_type
    if group.leader is None:
        group.leader = member_id
    kept = _member_of(request, member_id, caller.client_id, caller.host)
    group.members[member_id] = LiveMember(kept, join_ticket=ticket, is_new=True)
    group.grew = True
    step.due_in(NEW_MEMBER_JOIN_TIMEOUT_MS, "session", member_id)
    rebalance(step)


def _rejoin(step: Step, request: JoinGroupRequest, ticket: Ticket) -> None:
    group = step.group
    error_code = member_error(group, request.member_id, request.group_instance_id)
    if error_code != ErrorCode.NONE:
        reply = JoinGroupResponse(error_code=error_code, member_id=request.member_id)
        step.replies.append((ticket, reply))
        return
    member = group.members[request.member_id]
    updated = _member_of(request, request.member_id, member.kept.client_id, member.kept.client_host)
    changed = updated.protocols != member.kept.protocols
    # A leader that asks again wants a rebalance: it has seen something, such as a new partition, that no metadata show.
    leads = group.leader == request.member_id and group.phase is Phase.STABLE
    if group.phase is not Phase.PREPARING and not changed and not leads:
        step.replies.append((ticket, joined(group, member)))
        return
    _update(step, member, updated, ticket)
    rebalance(step)


def _update(step: Step, member: LiveMember, updated: KeptMember, ticket: Ticket) -> None:
    if member.join_ticket is not None:
        again = JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.kept.member_id)
        answer_join(step, member, again)
    member.kept = updated._replace(assignment=member.kept.assignment)
    member.join_ticket = ticket


def _replace_static(
    step: Step, request: JoinGroupRequest, caller: Caller, old: LiveMember, member_id: str, ticket: Ticket
) -> None:
    """A static member is back under a new id: the process that had the old one is fenced."""
    group = step.group
    old_id, old_leader, before = old.kept.member_id, group.leader, old.kept
    answer_both(step, old, ErrorCode.FENCED_INSTANCE_ID, old_id)
    step.not_due("session", old_id)
    updated = _member_of(request, member_id, caller.client_id, caller.host)
    member = LiveMember(updated._replace(assignment=before.assignment), join_ticket=ticket)
    group.members = {
        (member_id if one == old_id else one): (member if one == old_id else other)
        for one, other in group.members.items()
    }
    if group.leader == old_id:
        group.leader = member_id
    if old_id in group.unsynced:
        group.unsynced = group.unsynced - {old_id} | {member_id}
    step.renew_session(member)
    if group.phase is Phase.STABLE:
        if _changes_nothing(group, before, member.kept):
            _welcome_back(step, member, old_leader, caller.version)
        else:
            rebalance(step)
    elif group.phase is Phase.COMPLETING:
        # The leader may be assigning to the old id at this moment.
        prepare(step)
    else:
        complete_join_if_all_joined(step)


def _changes_nothing(group: LiveGroup, before: KeptMember, after: KeptMember) -> bool:
    """Whether the others may go on as they are: the same protocol would win, and the member wants the same topics.

    The metadata themselves differ after every restart of a client, because they also say what the member owns.
    """
    if vote(one.kept for one in group.members.values()) != group.protocol:
        return False
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return True
    return subscribed_topics(before.metadata(group.protocol)) == subscribed_topics(after.metadata(group.protocol))


def _welcome_back(step: Step, member: LiveMember, old_leader: str | None, version: int) -> None:
    group = step.group
    step.write()
    reply = joined(group, member)
    if group.leader == member.kept.member_id:
        if version >= SKIP_ASSIGNMENT_SINCE:
            reply.skip_assignment = True
            reply.members = members_for_leader(group)
        else:
            # An older client would assign anew if it took itself for the leader, so it is told its former id.
            reply.leader = old_leader or ""
            reply.members = []
    answer_join(step, member, reply)
