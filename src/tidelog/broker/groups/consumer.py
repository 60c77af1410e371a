"""How a KIP-848 group moves on: a new target when something changes, and each member brought to its target step by
step.

`advance` raises the group's epoch and computes the target of all members at once. `reconcile` moves one member, at
its heartbeat: first it gives back what is not in its target, and only when it has said so do others get it; then it
takes what is free. Both are functions from value to value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tidelog.broker.decision import Instant, NewRecord
from tidelog.broker.groups.assignors import ASSIGNORS, Subscriber
from tidelog.broker.groups.consumer_group import (
    NO_PARTITIONS,
    REVOKING,
    STABLE,
    WAITING,
    Group,
    Member,
    Partitions,
    changes,
)
from tidelog.broker.groups.deadlines import Key
from tidelog.broker.groups.state import Groups
from tidelog.broker.groups.subscriptions import (
    Subscription,
    names_of,
    names_of_all,
    note_topics,
    subscription,
    topics_hash,
)

MEMBER_DEADLINES = ("session", "rebalance", "rejoin", "resync")


def assignor_of(state: Groups, group: Group) -> str:
    """The assignor that most members ask for; where nobody asks, the first of `group.consumer.assignors`."""
    votes = Counter(one.assignor for one in group.members.values() if one.assignor is not None)
    default = state.live.settings.consumer_assignors[0]
    return min(votes, key=lambda name: (-votes[name], name)) if votes else default


def advance(state: Groups, group: Group, wall_ms: int) -> Group:
    """The group after a change of members, subscriptions or topics: the next epoch, with a target for everybody."""
    topics = {name: state.live.topics[name] for name in names_of_all(state, group)}
    # Members mostly subscribe to the same, so that each different subscription is looked up once.
    ids: dict[Subscription, frozenset[bytes]] = {}
    for one in group.members.values():
        if subscription(one) not in ids:
            ids[subscription(one)] = frozenset(topics[name].topic_id for name in names_of(state, one))
    subscribers = [
        Subscriber(one.member_id, one.instance_id, ids[subscription(one)], one.target) for one in group.members.values()
    ]
    counts = {topic.topic_id: topic.partitions for topic in topics.values()}
    targets = ASSIGNORS[assignor_of(state, group)](subscribers, counts)
    members = {
        member_id: one if one.target == targets[member_id] else one._replace(target=targets[member_id])
        for member_id, one in group.members.items()
    }
    since_ms = group.since_ms if members else wall_ms
    return Group(group.group_id, group.epoch + 1, since_ms, topics_hash(state, topics), members)


def with_member(group: Group, member: Member) -> Group:
    if group.members.get(member.member_id) is member:
        return group
    return group._replace(members={**group.members, member.member_id: member})


def without_members(group: Group, member_ids: set[str]) -> Group:
    return group._replace(members={one: member for one, member in group.members.items() if one not in member_ids})


def no_deadlines(state: Groups, group_id: str, member_id: str) -> None:
    for kind in MEMBER_DEADLINES:
        state.live.deadlines.drop(Key(group_id, kind, member_id))


def remove(state: Groups, group: Group, member_ids: set[str], now: Instant) -> list[NewRecord]:
    """The records by which members are gone and the others get their part."""
    from tidelog.broker.groups.migration import downgrade, goes_back

    for member_id in member_ids:
        no_deadlines(state, group.group_id, member_id)
    rest = without_members(group, member_ids)
    if goes_back(state, group, rest):
        return downgrade(state, group, rest, now).records
    return list(changes(group, advance(state, rest, now.wall_ms)))


def notice_topics(state: Groups, changed: set[str], wall_ms: int) -> list[NewRecord]:
    """The records by which groups that read a topic that came, went or grew move on."""
    note_topics(state, changed)
    affected = [
        group
        for group in state.consumer.values()
        if any(one.pattern is not None or not changed.isdisjoint(one.topics) for one in group.members.values())
    ]
    return move_on(state, affected, wall_ms)


def follow_rights(state: Groups, wall_ms: int) -> list[NewRecord]:
    """The records by which groups move on of whose patterns other topics may be known than before."""
    records: list[NewRecord] = []
    for group in state.consumer.values():
        by_pattern = [one for one in group.members.values() if one.pattern is not None]
        if by_pattern and (
            topics_hash(state, names_of_all(state, group)) != group.topics_hash
            or any(_has_too_much(state, one) for one in by_pattern)
        ):
            records.extend(changes(group, advance(state, group, wall_ms)))
    return records


def _has_too_much(state: Groups, member: Member) -> bool:
    may_have = {state.live.topics[name].topic_id for name in names_of(state, member)}
    return any(topic_id not in may_have for topic_id, _ in member.target)


def move_on(state: Groups, groups: Iterable[Group], wall_ms: int) -> list[NewRecord]:
    """The records by which those of the groups move on whose topics are not what they were."""
    records: list[NewRecord] = []
    for group in groups:
        if group.members and topics_hash(state, names_of_all(state, group)) != group.topics_hash:
            records.extend(changes(group, advance(state, group, wall_ms)))
    return records


def reconcile(group: Group, member: Member, owned: Partitions | None) -> Member:
    """The member one step nearer to its target. `owned` is what it says it has; None: the same as when it last said."""
    if member.phase == STABLE and member.epoch == group.epoch:
        return member
    if member.phase == REVOKING and (owned is None or owned & member.revoking):
        return member
    kept = member.assigned & member.target
    surplus = member.assigned - kept
    if surplus and (owned is None or owned & surplus):
        return member._replace(phase=REVOKING, assigned=kept, revoking=surplus)
    wanted = member.target - kept
    free = wanted - _held_by_others(group, member)
    moved = member._replace(
        phase=STABLE if free == wanted else WAITING,
        epoch=group.epoch,
        previous_epoch=member.epoch if member.epoch != group.epoch else member.previous_epoch,
        assigned=kept | free,
        revoking=NO_PARTITIONS,
    )
    return member if moved == member else moved


def waits_for_others(group: Group, member: Member) -> bool:
    """Whether something that the member shall have and has not is still with others."""
    return not _held_by_others(group, member) <= member.assigned


def _held_by_others(group: Group, member: Member) -> set[tuple[bytes, int]]:
    held: set[tuple[bytes, int]] = set()
    for other in group.members.values():
        if other.member_id != member.member_id:
            held |= other.assigned & member.target
            held |= other.revoking & member.target
    return held
