"""When a decision could not be written (the disk is full, say): nobody is told that it happened.

Its records were not applied, but the live part of its groups has moved on already. So those groups begin anew from
what is kept, as after a restart, and everybody who waits in them is told COORDINATOR_NOT_AVAILABLE, which every
client answers by trying again.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.decision import Decision, Instant
from tidelog.broker.groups.classic import Step, answer_both
from tidelog.broker.groups.classic_group import LiveGroup
from tidelog.broker.groups.records import parse_key
from tidelog.broker.groups.state import Groups
from tidelog.wire.error_code import ErrorCode

UNWRITTEN = ErrorCode.COORDINATOR_NOT_AVAILABLE


def decide_refusal(state: Groups, unwritten: Decision, now: Instant) -> Decision:
    """The replies to send instead; there are no records."""
    replies = [(ticket, _refused(reply)) for ticket, reply in unwritten.replies]
    for group_id in {parse_key(record.key)["group"] for record in unwritten.records}:
        group = state.live.classic.pop(group_id, LiveGroup(group_id))
        step = Step(state, group, now, replies=replies)
        for member in group.members.values():
            answer_both(step, member, UNWRITTEN)
            step.not_due("session", member.kept.member_id)
        for member_id in group.pending:
            step.not_due("pending", member_id)
        step.not_due("join")
        step.not_due("sync")
        for one in state.consumer[group_id].members.values() if group_id in state.consumer else ():
            step.due_in(state.live.session_timeout_ms(group_id, one), "session", one.member_id)
        step.group = state.live_group(group_id) or group
        if step.group is not group and step.group.members:
            state.live.classic[group_id] = step.group
            for member in step.group.members.values():
                step.renew_session(member)
    return Decision([], replies)


def decide_abandonment(state: Groups) -> Decision:
    """Everybody who waits is told to try again; for a shell that is about to fold its records anew."""
    step = Step(state, LiveGroup(""), Instant(0, 0))
    for group in state.live.classic.values():
        for member in group.members.values():
            answer_both(step, member, UNWRITTEN)
    return Decision([], step.replies)


def _refused(reply: Any) -> Any:
    """The same kind of reply, saying that it was not done: as a whole, or for each part that was thought to be."""
    answer = type(reply)()
    if hasattr(answer, "error_code"):
        answer.error_code = UNWRITTEN
        return answer
    for topic in getattr(reply, "topics", ()):
        for partition in topic.partitions:
            partition.error_code = partition.error_code or UNWRITTEN
    for result in getattr(reply, "results", ()):
        result.error_code = result.error_code or UNWRITTEN
    return reply
