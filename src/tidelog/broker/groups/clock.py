"""Time, for groups: what begins at a start, what is due, and when something will be.

Liveness begins anew at every start: each member that the records know has a full session time-out to be heard of. The
shell calls `awaken` once, `tick` at `next_deadline` or later, and `topics_changed` whenever topics came, grew or
went. This module is loaded at every start, so it loads the rest of the room only when there is something to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.broker.decision import Decision, Instant, NewRecord
from tidelog.broker.groups.classic_group import revive
from tidelog.broker.groups.consumer_group import REVOKING, Group
from tidelog.broker.groups.deadlines import Key
from tidelog.broker.groups.settings import GroupSettings
from tidelog.broker.groups.state import Groups, KnownTopic

RETENTION = Key("", "retention")


def awaken(state: Groups, settings: GroupSettings, topics: Mapping[str, KnownTopic], now: Instant) -> Decision:
    """After the fold, before the first decision: sets sessions going, and notices what happened to topics meanwhile."""
    state.live.settings = settings
    state.live.topics = topics
    deadlines = state.live.deadlines
    deadlines.put(RETENTION, now.monotonic_ms + settings.offsets_retention_check_interval_ms)
    for group_id, kept in state.classic.items():
        if kept.members:
            state.live.classic[group_id] = revive(kept)
        for one in kept.members:
            deadlines.put(Key(group_id, "session", one.member_id), now.monotonic_ms + one.session_timeout_ms)
    for group in state.consumer.values():
        for member in group.members.values():
            session = Key(group.group_id, "session", member.member_id)
            deadlines.put(session, now.monotonic_ms + state.live.session_timeout_ms(group.group_id, member))
            if member.phase == REVOKING and member.classic is None:
                giving_back = Key(group.group_id, "rebalance", member.member_id)
                deadlines.put(giving_back, now.monotonic_ms + member.rebalance_timeout_ms)
    named = {topic for offsets in state.offsets.values() for topic, _ in offsets}
    named |= {topic for some in state.pending.values() for offsets in some.values() for topic, _ in offsets}
    decision = _offsets_gone(state, {topic for topic in named if not state.live.is_set_aside(topic)})
    if state.consumer:
        from tidelog.broker.groups.consumer import move_on

        decision.records.extend(move_on(state, state.consumer.values(), now.wall_ms))
    return decision


def next_deadline(state: Groups) -> int | None:
    """The monotonic millisecond at which `tick` has something to do."""
    return state.live.deadlines.first()


def tick(state: Groups, now: Instant) -> Decision:
    """Does what is due. A new deadline may be in the past already: the shell applies, then asks for the next."""
    decision = Decision([], [])
    lost: dict[str, set[str]] = {}
    for key in state.live.deadlines.take_due(now.monotonic_ms):
        if key == RETENTION:
            _add(decision, _retention(state, now))
        elif key.group in state.live.classic:
            _add(decision, _expire(state, key, now))
        elif key.group in state.consumer and _is_lost(state.consumer[key.group], key):
            lost.setdefault(key.group, set()).add(key.member)
    for group_id, member_ids in lost.items():
        decision.records.extend(_remove(state, state.consumer[group_id], member_ids, now))
    return decision


def _add(decision: Decision, more: Decision) -> None:
    decision.records.extend(more.records)
    decision.replies.extend(more.replies)


def _expire(state: Groups, key: Key, now: Instant) -> Decision:
    from tidelog.broker.groups.classic_requests import expire

    return expire(state, key, now)


def _remove(state: Groups, group: Group, member_ids: set[str], now: Instant) -> list[NewRecord]:
    from tidelog.broker.groups.consumer import remove

    return remove(state, group, member_ids, now)


def _is_lost(group: Group, key: Key) -> bool:
    member = group.members.get(key.member)
    return member is not None and (key.kind != "rebalance" or member.phase == REVOKING)


def _retention(state: Groups, now: Instant) -> Decision:
    from tidelog.broker.groups.removal import decide_retention

    state.live.deadlines.put(RETENTION, now.monotonic_ms + state.live.settings.offsets_retention_check_interval_ms)
    return decide_retention(state, now)


def topics_changed(state: Groups, topics: Mapping[str, KnownTopic], changed: Iterable[str], now: Instant) -> Decision:
    """Topics were created, deleted or given partitions: KIP-848 groups move on, offsets of deleted topics go."""
    state.live.topics = topics
    names = set(changed)
    decision = Decision([], [])
    if state.consumer:
        from tidelog.broker.groups.consumer import notice_topics

        decision.records.extend(notice_topics(state, names, now.wall_ms))
    _add(decision, _offsets_gone(state, names))
    return decision


def rights_changed(state: Groups, now: Instant) -> Decision:
    """Users, rules or settings of access changed: KIP-848 groups with patterns move on."""
    if not state.consumer or state.live.may_describe is None:
        return Decision([], [])
    from tidelog.broker.groups.consumer import follow_rights

    return Decision(follow_rights(state, now.wall_ms), [])


def _offsets_gone(state: Groups, names: set[str]) -> Decision:
    """Offsets of those of the topics that are no more. A crash may have come between a topic's end and theirs."""
    gone = names - state.live.topics.keys()
    if not gone or not (state.offsets or state.pending):
        return Decision([], [])
    from tidelog.broker.groups.removal import decide_topics_deleted

    return decide_topics_deleted(state, gone)
