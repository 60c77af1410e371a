"""A group changes its protocol while it has members: from classic to KIP-848 and back.

    upgrade      the first member that speaks KIP-848 comes: the classic group becomes a KIP-848 one. Its members stay
                 in it with what they have, and go on speaking the classic protocol (`mixed`)
    downgrade    the last member that speaks KIP-848 goes, and classic ones stay: the group becomes a classic one and
                 rebalances

The generation goes on as the epoch, and the epoch as the generation. Both ways need the members' metadata, so the
group must be one of consumers: `ConsumerProtocolSubscription` and `ConsumerProtocolAssignment` are read and written
here, in the version that a member speaks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidelog.broker.decision import Decision, Instant, Ticket
from tidelog.broker.groups.classic import Step, answer_both, finish, prepare, vote
from tidelog.broker.groups.classic_group import CONSUMER_PROTOCOL_TYPE, KeptMember, LiveGroup, LiveMember
from tidelog.broker.groups.consumer import no_deadlines
from tidelog.broker.groups.consumer_group import (
    NO_PARTITIONS,
    ClassicSide,
    Group,
    Member,
    Partitions,
    changes,
    new_group,
)
from tidelog.broker.groups.deadlines import Key
from tidelog.broker.groups.phases import Phase
from tidelog.broker.groups.state import Groups
from tidelog.errors import MalformedMessage
from tidelog.wire.codec import decode, encode
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

NEWEST_VERSION = 3
VERSION_SIZE = 2


# What classic members say to each other --------------------------------------------------------------------------


def embedded_version(data: bytes) -> int:
    """Of a version that is not known yet, what the newest known one had is read and written."""
    return min(int.from_bytes(data[:VERSION_SIZE], "big"), NEWEST_VERSION)


def parse_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """MalformedMessage if the bytes are not one."""
    return decode(ConsumerProtocolSubscription, embedded_version(metadata), metadata, VERSION_SIZE)[0]


def parse_assignment(state: Groups, data: bytes) -> Partitions:
    """MalformedMessage if the bytes are not an assignment. No bytes: no partitions."""
    if not data:
        return frozenset()
    assignment, _ = decode(ConsumerProtocolAssignment, embedded_version(data), data, VERSION_SIZE)
    return partitions_of(state, assignment.assigned_partitions)


def partitions_of(state: Groups, named: Iterable[Any]) -> Partitions:
    """By topic ids, those partitions that exist of what `topic` and `partitions` name."""
    found: set[tuple[bytes, int]] = set()
    for one in named:
        if (topic := state.live.topics.get(one.topic)) is not None:
            found |= {(topic.topic_id, index) for index in one.partitions if 0 <= index < topic.partitions}
    return frozenset(found)


def assignment_bytes(state: Groups, member: Member) -> bytes:
    """What the member has, in the version of its own subscription."""
    assert member.classic is not None
    version = embedded_version(member.classic.protocols[0].metadata)
    names = {topic.topic_id: name for name, topic in state.live.topics.items() if name in member.topics}
    by_name: dict[str, list[int]] = {}
    for topic_id, index in sorted(member.assigned):
        if topic_id in names:
            by_name.setdefault(names[topic_id], []).append(index)
    some = [AssignmentTopicPartition(topic=name, partitions=indexes) for name, indexes in by_name.items()]
    body = encode(ConsumerProtocolAssignment(assigned_partitions=some), version)
    return version.to_bytes(VERSION_SIZE, "big") + b"".join(bytes(chunk) for chunk in body)  # type: ignore[arg-type]


# From classic to KIP-848 -----------------------------------------------------------------------------------------


def upgraded(state: Groups, classic: LiveGroup) -> Group | str:
    """The classic group as a KIP-848 one, or why it cannot be one. Nothing is changed yet.

    Members that have never had an answer stay behind: they own nothing, and come again.
    """
    if classic.members and not state.live.settings.may_upgrade:
        return "it has members of the classic protocol, and group.consumer.migration.policy forbids the change"
    if classic.members and classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return f"its members are not consumers; their protocol is {classic.protocol_type!r}"
    if len(classic.members) >= state.live.settings.consumer_max_members:
        return f"it has {len(classic.members)} members, and group.consumer.max.size leaves no room for another"
    old = [one.kept for one in classic.members.values() if not one.is_new]
    held: dict[str, Partitions] = {one.member_id: NO_PARTITIONS for one in old}
    try:
        said = {one.member_id: parse_subscription(one.protocols[0].metadata) for one in old}
        # What a member was given, and then what it owned when it joined: it may be about to drop that, and says so when
        # it joins again. Nothing keeps the leader of a classic group from giving a partition to two.
        for one in old:
            held[one.member_id] = parse_assignment(state, one.assignment).difference(*held.values())
        for member_id, subscription in said.items():
            owned = partitions_of(state, subscription.owned_partitions)
            held[member_id] |= owned.difference(*held.values())
    except MalformedMessage as error:
        return f"what its members say is not understood: {error}"
    members = {
        one.member_id: _as_consumer(one, classic.generation, said[one.member_id], held[one.member_id]) for one in old
    }
    return new_group(classic.group_id, classic.generation)._replace(members=members)


def _as_consumer(
    kept: KeptMember, generation: int, subscription: ConsumerProtocolSubscription, held: Partitions
) -> Member:
    return Member(
        kept.member_id,
        kept.instance_id,
        subscription.rack_id,
        kept.client_id,
        kept.client_host,
        kept.rebalance_timeout_ms,
        frozenset(subscription.topics),
        epoch=generation,
        previous_epoch=generation,
        assigned=held,
        target=held,
        classic=ClassicSide(kept.session_timeout_ms, kept.protocols),
    )


def let_go(state: Groups, classic: LiveGroup, group: Group, now: Instant) -> list[tuple[Ticket, Any]]:
    """Ends what lives of the classic group: who waits is told to join again, sessions begin anew in the new group."""
    step = Step(state, classic, now)
    for member_id, member in classic.members.items():
        answer_both(step, member, ErrorCode.REBALANCE_IN_PROGRESS, member_id)
        if member_id in group.members and group.members[member_id].classic is not None:
            step.renew_session(member)
        elif member_id not in group.members:
            step.not_due("session", member_id)
    for member_id in classic.pending:
        step.not_due("pending", member_id)
    step.not_due("join")
    step.not_due("sync")
    state.live.classic.pop(classic.group_id, None)
    return step.replies


# From KIP-848 to classic -----------------------------------------------------------------------------------------


def goes_back(state: Groups, before: Group, after: Group) -> bool:
    """Whether the last member that spoke KIP-848 is gone and others stay."""
    return (
        state.live.settings.may_downgrade
        and 0 < len(after.members) <= state.live.settings.max_members
        and all(one.classic is not None for one in after.members.values())
        and any(one.classic is None for one in before.members.values())
    )


def downgrade(
    state: Groups, before: Group, after: Group, now: Instant, joining: tuple[str, Ticket] | None = None
) -> Decision:
    """`after`, whose members all speak the classic protocol, as a classic group that rebalances.

    `joining` has sent JoinGroup already.
    """
    for member_id in before.members:
        no_deadlines(state, before.group_id, member_id)
    kept = {one.member_id: _as_classic(state, one) for one in after.members.values()}
    group = LiveGroup(
        before.group_id,
        Phase.STABLE,
        before.epoch,
        CONSUMER_PROTOCOL_TYPE,
        vote(kept.values()),
        members={member_id: LiveMember(one) for member_id, one in kept.items()},
    )
    step = Step(state, group, now, records=list(changes(before, None)))
    step.write()
    for member in group.members.values():
        step.renew_session(member)
    if joining is not None:
        group.members[joining[0]].join_ticket = joining[1]
    prepare(step)
    return finish(step)


def _as_classic(state: Groups, member: Member) -> KeptMember:
    assert member.classic is not None
    return KeptMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.classic.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.classic.protocols,
        assignment_bytes(state, member),
    )


def session_of_classic(state: Groups, group_id: str, member: Member, now: Instant) -> None:
    """A classic member has been heard of."""
    assert member.classic is not None
    session = Key(group_id, "session", member.member_id)
    state.live.deadlines.put(session, now.monotonic_ms + member.classic.session_timeout_ms)
