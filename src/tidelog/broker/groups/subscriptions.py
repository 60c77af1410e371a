"""Which existing topics the members of KIP-848 groups subscribe to: by name, or by a pattern that is kept resolved.

A pattern is matched against all topics when it is first used, and from then on against a topic when that is created;
heartbeats match nothing. Of what matches, a member has what its user may describe (`Live.may_describe`): a pattern
finds nothing out that a name would not.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.broker.groups.consumer_group import Group, Member
from tidelog.broker.groups.state import Groups
from tidelog.errors import UsageError

Subscription = tuple[frozenset[str], str | None, str | None, str]

RESOLVE_WORK_MAX = 5_000_000
"""Steps, about a second of them, that one pattern may cost when it is first matched against all topics."""

PATTERNS_RESOLVED = 1024
"""From this number on, patterns that no member uses any more are looked for before another is resolved."""


def matching(state: Groups, pattern: str | None) -> set[str]:
    """The names of existing topics that match. UsageError if the pattern is not valid."""
    if not pattern:
        return set()
    if pattern not in state.live.matches:
        if len(state.live.matches) >= PATTERNS_RESOLVED:
            _forget_unused(state)
        state.live.matches[pattern] = _resolve(pattern, state.live.topics)
    return state.live.matches[pattern]


def _resolve(pattern: str, topics: Iterable[str]) -> set[str]:
    from tidelog.broker.groups.patterns import compile_pattern

    compiled = compile_pattern(pattern)
    before, found = compiled.work, set()
    for name in topics:
        if compiled.matches(name):
            found.add(name)
        if compiled.work - before > RESOLVE_WORK_MAX:
            raise UsageError(f"the pattern {pattern!r} costs too much to match against all topics; make it simpler")
    return found


def names_of(state: Groups, member: Member) -> set[str]:
    """The existing topics that a member subscribes to."""
    try:
        matched = matching(state, member.pattern)
    except UsageError:
        # It was fine when the member joined, and there are many more topics now. The member has what it names.
        matched = set()
    may = state.live.may_describe
    if may is not None:
        matched = {name for name in matched if may(member.user, member.client_host, name)}
    return {name for name in member.topics if name in state.live.topics} | matched


def subscription(member: Member) -> Subscription:
    """What `names_of` goes by: members of whom it is equal have the same topics."""
    if member.pattern is None:
        return member.topics, None, None, ""
    return member.topics, member.pattern, member.user, member.client_host


def names_of_all(state: Groups, group: Group) -> set[str]:
    """The existing topics that any member subscribes to."""
    different = {subscription(one): one for one in group.members.values()}
    return {name for one in different.values() for name in names_of(state, one)}


def is_subscribed(state: Groups, group: Group, topic: str) -> bool:
    return any(topic in one.topics for one in group.members.values()) or topic in names_of_all(state, group)


def topics_hash(state: Groups, names: Iterable[str]) -> str:
    """Changes when a subscribed topic comes, goes, is made anew or grows."""
    from hashlib import blake2b

    digest = blake2b(digest_size=16)
    for name in sorted(names):
        topic = state.live.topics[name]
        digest.update(f"{name}\0{topic.topic_id.hex()}\0{topic.partitions}\n".encode())
    return digest.hexdigest()


def note_topics(state: Groups, changed: Iterable[str]) -> None:
    """Brings the resolved patterns up to date with topics that came or went, and forgets patterns that nobody uses."""
    _forget_unused(state)
    if not state.live.matches:
        return
    from tidelog.broker.groups.patterns import compile_pattern

    for pattern, names in state.live.matches.items():
        compiled = compile_pattern(pattern)
        for name in changed:
            if name in state.live.topics and compiled.matches(name):
                names.add(name)
            else:
                names.discard(name)


def _forget_unused(state: Groups) -> None:
    used = {one.pattern for group in state.consumer.values() for one in group.members.values() if one.pattern}
    for pattern in state.live.matches.keys() - used:
        del state.live.matches[pattern]
