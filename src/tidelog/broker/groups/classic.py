"""The steps of a classic rebalance: prepare, complete the join, complete the sync. See `phases` for the table.

A decision about a classic group works on its `LiveGroup` and gathers records and replies in a `Step`; `finish` makes
the decision of it. Every parked request is answered once: when its phase ends, when its member goes, or when the
member asks again (a client that reconnected; the older request is told REBALANCE_IN_PROGRESS).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog.broker.decision import Decision, Instant, NewRecord, Ticket
from tidelog.broker.groups.classic_group import (
    KeptMember,
    LiveGroup,
    LiveMember,
    group_value,
    keep,
)
from tidelog.broker.groups.deadlines import Key
from tidelog.broker.groups.phases import GroupEvent, Phase
from tidelog.broker.groups.records import group_key
from tidelog.broker.groups.state import Groups
from tidelog.broker.record_text import encode
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from tidelog.wire.messages.sync_group import SyncGroupResponse


@dataclass(slots=True)
class Step:
    """One decision about one classic group, under way."""

    state: Groups
    group: LiveGroup
    now: Instant
    records: list[NewRecord] = field(default_factory=list)
    replies: list[tuple[Ticket, Any]] = field(default_factory=list)

    def due_in(self, delay_ms: int, kind: str, member_id: str = "") -> None:
        key = Key(self.group.group_id, kind, member_id)
        self.state.live.deadlines.put(key, self.now.monotonic_ms + delay_ms)

    def not_due(self, kind: str, member_id: str = "") -> None:
        self.state.live.deadlines.drop(Key(self.group.group_id, kind, member_id))

    def renew_session(self, member: LiveMember) -> None:
        self.due_in(member.kept.session_timeout_ms, "session", member.kept.member_id)

    def write(self) -> None:
        """Keeps the group as it is now."""
        value = encode(group_value(keep(self.group, self.now.wall_ms)))
        self.records.append(NewRecord(group_key("classic", self.group.group_id), value))


def finish(step: Step) -> Decision:
    group = step.group
    if group.members or group.pending:
        step.state.live.classic[group.group_id] = group
    else:
        # What is worth keeping of an empty group is in its record.
        step.state.live.classic.pop(group.group_id, None)
        step.not_due("join")
        step.not_due("sync")
    return Decision(step.records, step.replies)


def member_error(group: LiveGroup | None, member_id: str, instance_id: str | None) -> int:
    """What is wrong with this claim to be a member; NONE if nothing is."""
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if instance_id is not None:
        static = group.static_member(instance_id)
        if static is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if static.kept.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


# Replies ---------------------------------------------------------------------------------------------------------


def joined(group: LiveGroup, member: LiveMember) -> JoinGroupResponse:
    """This generation, as a member is told of it; the leader is told of all members."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol or "",
        leader=group.leader or "",
        member_id=member.kept.member_id,
        members=members_for_leader(group) if group.leader == member.kept.member_id else [],
    )


def members_for_leader(group: LiveGroup) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=one.kept.member_id,
            group_instance_id=one.kept.instance_id,
            metadata=one.kept.metadata(group.protocol),
        )
        for one in group.members.values()
    ]


def synced(group: LiveGroup, member: LiveMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.kept.assignment
    )


def answer_join(step: Step, member: LiveMember, reply: JoinGroupResponse) -> None:
    if member.join_ticket is not None:
        step.replies.append((member.join_ticket, reply))
        member.join_ticket = None


def answer_sync(step: Step, member: LiveMember, reply: SyncGroupResponse) -> None:
    if member.sync_ticket is not None:
        step.replies.append((member.sync_ticket, reply))
        member.sync_ticket = None


def answer_both(step: Step, member: LiveMember, error_code: int, member_id: str = "") -> None:
    answer_join(step, member, JoinGroupResponse(error_code=error_code, member_id=member_id))
    answer_sync(step, member, SyncGroupResponse(error_code=error_code))


# Phases ----------------------------------------------------------------------------------------------------------


def rebalance(step: Step) -> None:
    """Something changed that concerns all: begins a rebalance, or goes on with the one that is being prepared."""
    if step.group.phase is not Phase.PREPARING:
        prepare(step)
    else:
        complete_join_if_all_joined(step)


def prepare(step: Step) -> None:
    group = step.group
    if group.phase is Phase.COMPLETING:
        for member in group.members.values():
            if member.sync_ticket is not None:
                answer_sync(step, member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
                step.renew_session(member)
    step.not_due("sync")
    group.unsynced.clear()
    group.initial = group.phase is Phase.EMPTY
    group.move(GroupEvent.REBALANCE)
    if not group.initial:
        if not complete_join_if_all_joined(step):
            step.due_in(group.rebalance_timeout_ms(), "join")
        return
    delay = step.state.live.settings.initial_rebalance_delay_ms
    if delay <= 0:
        complete_join(step)
        return
    group.initial_left_ms = max(group.rebalance_timeout_ms() - delay, 0)
    group.grew = False
    step.due_in(delay, "join")


def complete_join_if_all_joined(step: Step) -> bool:
    group = step.group
    ready = group.phase is Phase.PREPARING and group.all_joined() and not (group.initial and group.members)
    if ready:
        complete_join(step)
    return ready


def join_is_due(step: Step) -> None:
    """The time to wait for members is up, unless an initial rebalance is still growing."""
    group = step.group
    if group.phase is not Phase.PREPARING:
        return
    if group.initial and group.grew and group.initial_left_ms > 0:
        delay = min(step.state.live.settings.initial_rebalance_delay_ms, group.initial_left_ms)
        group.initial_left_ms -= delay
        group.grew = False
        step.due_in(delay, "join")
    else:
        complete_join(step)


def complete_join(step: Step) -> None:
    """Ends the join phase: who has not rejoined is out (static members may stay away), the rest goes on together."""
    group = step.group
    step.not_due("join")
    for member in list(group.members.values()):
        if member.join_ticket is None and member.kept.instance_id is None:
            forget(step, member.kept.member_id)
    if group.members and not elect_leader(group):
        # Static members only, none of them back yet: their sessions decide.
        step.due_in(group.rebalance_timeout_ms(), "join")
        return
    group.initial = False
    group.generation += 1
    if not group.members:
        group.move(GroupEvent.EMPTIED)
        group.protocol = group.leader = None
        step.write()
        return
    group.protocol = vote(one.kept for one in group.members.values())
    group.move(GroupEvent.JOINED)
    group.unsynced = set(group.members)
    step.due_in(group.rebalance_timeout_ms(), "sync")
    for member in group.members.values():
        if member.join_ticket is not None:
            answer_join(step, member, joined(group, member))
            member.is_new = False
            step.renew_session(member)


def complete_sync(step: Step, assignments: Mapping[str, bytes]) -> None:
    """Ends the sync phase with the leader's assignments; a member that it left out gets an empty one."""
    group = step.group
    for member_id, member in group.members.items():
        member.kept = member.kept._replace(assignment=assignments.get(member_id, b""))
    group.move(GroupEvent.SYNCED)
    step.write()
    for member in group.members.values():
        if member.sync_ticket is not None:
            answer_sync(step, member, synced(group, member))
            step.renew_session(member)


def sync_is_due(step: Step) -> None:
    """Members that joined this generation and never synced are out; the others rebalance."""
    group = step.group
    if group.unsynced and group.phase in (Phase.COMPLETING, Phase.STABLE):
        for member_id in sorted(group.unsynced):
            forget(step, member_id)
        rebalance(step)


def forget(step: Step, member_id: str) -> None:
    """Takes a member out; what it waits for is answered, so that a client that is alive after all joins anew."""
    group = step.group
    member = group.members.pop(member_id)
    answer_both(step, member, ErrorCode.UNKNOWN_MEMBER_ID)
    group.unsynced.discard(member_id)
    step.not_due("session", member_id)


def elect_leader(group: LiveGroup) -> bool:
    """The leader stays if it rejoined; else the first that did leads. False if nobody did."""
    if group.leader in group.members and group.members[group.leader].join_ticket is not None:
        return True
    group.leader = next((one for one, member in group.members.items() if member.join_ticket is not None), None)
    return group.leader is not None


def vote(members: Iterable[KeptMember]) -> str:
    """The protocol that all members know and most prefer; of equals, the one that was voted for first."""
    voters = list(members)
    known = set.intersection(*({protocol.name for protocol in one.protocols} for one in voters))
    votes = Counter(next(protocol.name for protocol in one.protocols if protocol.name in known) for one in voters)
    return votes.most_common(1)[0][0]
