"""The state of all groups: a fold over the records of `__tidelog.groups`, and beside it what lives in memory only.

    classic     classic groups as they were after their last completed rebalance     records "classic"
    consumer    KIP-848 groups                                                       records "consumer" and "member"
    offsets     committed offsets by group, topic and partition                      records "offset"
    pending     offsets that open transactions commit, by group and producer         records "pending"
    live        running rebalances, parked requests, deadlines                       none: a restart begins it anew

Rules: all but `live` change in `apply` alone. `live` changes in decisions, at once; it holds nothing that a record
would not bring back or a client would not repeat. A group id is in `classic` or in `consumer`, never in both; one that
is only in `offsets` or `pending` is a *simple* group: consumers that commit without being members. The records of one
decision must reach the topic together.

The shell's order of calls: `fresh`, `apply` for every record, `clock.awaken`, then decisions, each followed by
`apply` for its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tidelog.broker.decision import NewRecord
from tidelog.broker.groups.classic_group import KeptGroup, LiveGroup, group_value, parse_group, revive
from tidelog.broker.groups.consumer_group import Group, Member, changes, new_group, parse_member
from tidelog.broker.groups.deadlines import Deadlines
from tidelog.broker.groups.records import (
    CommittedOffset,
    group_key,
    offset_key,
    offset_value,
    parse_key,
    parse_offset,
    pending_key,
)
from tidelog.broker.groups.settings import GroupSettings
from tidelog.broker.record_text import decode, encode


class KnownTopic(Protocol):
    """What groups need to know of a topic."""

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> int: ...


class Caller(NamedTuple):
    """Who sent a request, in which version, and a string that was never used: a new member's id is made of it."""

    version: int
    client_id: str
    host: str
    fresh_id: str
    user: str | None = None  # None where nobody is asked who he is


# May this user, from this host, know of the topic?
MayDescribe = Callable[[str | None, str, str], bool]


def _no_overrides(_: str) -> Mapping[str, str]:
    return {}


def _nothing(_: str) -> bool:
    return False


@dataclass(slots=True)
class Live:
    settings: GroupSettings = field(default_factory=GroupSettings)
    topics: Mapping[str, KnownTopic] = field(default_factory=dict)
    classic: dict[str, LiveGroup] = field(default_factory=dict)
    matches: dict[str, set[str]] = field(default_factory=dict)  # pattern -> the names of existing topics that match
    deadlines: Deadlines = field(default_factory=Deadlines)
    overrides: Callable[[str], Mapping[str, str]] = _no_overrides  # the settings that a group has of its own
    may_describe: MayDescribe | None = None  # None where everybody may describe everything
    is_set_aside: Callable[[str], bool] = _nothing  # topics whose records are there although they are not

    def session_timeout_ms(self, group_id: str, member: Member) -> int:
        if member.classic is not None:
            return member.classic.session_timeout_ms
        own = self.overrides(group_id).get("consumer.session.timeout.ms")
        return int(own) if own is not None else self.settings.consumer_session_timeout_ms

    def heartbeat_interval_ms(self, group_id: str) -> int:
        own = self.overrides(group_id).get("consumer.heartbeat.interval.ms")
        return int(own) if own is not None else self.settings.consumer_heartbeat_interval_ms


@dataclass(slots=True)
class Groups:
    classic: dict[str, KeptGroup] = field(default_factory=dict)
    consumer: dict[str, Group] = field(default_factory=dict)
    offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = field(default_factory=dict)
    pending: dict[str, dict[int, dict[tuple[str, int], CommittedOffset]]] = field(default_factory=dict)
    live: Live = field(default_factory=Live, compare=False)

    def live_group(self, group_id: str) -> LiveGroup | None:
        """A classic group as it is now, or None where there is none."""
        group = self.live.classic.get(group_id)
        if group is None and group_id in self.classic:
            group = revive(self.classic[group_id])
        return group

    def ids(self) -> set[str]:
        kept = self.classic.keys() | self.consumer.keys() | self.offsets.keys() | self.pending.keys()
        return kept | self.live.classic.keys()

    def is_known(self, group_id: str) -> bool:
        return (
            group_id in self.offsets
            or group_id in self.live.classic
            or group_id in self.classic
            or group_id in self.consumer
            or group_id in self.pending
        )

    def has_room_for(self, group_id: str) -> bool:
        if self.is_known(group_id):
            return True
        most = self.live.settings.max_groups
        kept = len(self.classic) + len(self.consumer) + len(self.offsets) + len(self.pending)
        # The sum counts most groups more than once; the exact count is made only near the limit.
        return kept + len(self.live.classic) < most or len(self.ids()) < most

    def is_pending(self, group_id: str, place: tuple[str, int]) -> bool:
        """Whether an open transaction may change this offset when it ends."""
        return group_id in self.pending and any(place in one for one in self.pending[group_id].values())


def fresh() -> Groups:
    return Groups()


def apply(state: Groups, key: bytes, value: bytes | None) -> None:
    """Folds one record into the state; None is a tombstone."""
    parsed = parse_key(key)
    group: str = parsed["group"]
    content = decode(value) if value is not None else None
    if parsed["kind"] == "offset":
        _apply_offset(state, group, (parsed["topic"], parsed["partition"]), content)
    elif parsed["kind"] == "pending":
        _apply_pending(state, group, parsed["producer"], (parsed["topic"], parsed["partition"]), content)
    elif parsed["kind"] == "member":
        _apply_member(state, group, parsed["member"], content)
    elif parsed["kind"] == "classic":
        if content is None:
            state.classic.pop(group, None)
        else:
            state.classic[group] = parse_group(group, content)
    elif content is None:
        state.consumer.pop(group, None)
    else:
        members = state.consumer[group].members if group in state.consumer else {}
        state.consumer[group] = Group(group, content["epoch"], content["since"], content["topics"], members)


def _apply_offset(state: Groups, group: str, place: tuple[str, int], content: dict[str, Any] | None) -> None:
    if content is not None:
        state.offsets.setdefault(group, {})[place] = parse_offset(content)
    elif group in state.offsets:
        state.offsets[group].pop(place, None)
        if not state.offsets[group]:
            del state.offsets[group]


def _apply_pending(
    state: Groups, group: str, producer_id: int, place: tuple[str, int], content: dict[str, Any] | None
) -> None:
    by_producer = state.pending.setdefault(group, {})
    offsets = by_producer.setdefault(producer_id, {})
    if content is not None:
        offsets[place] = parse_offset(content)
    else:
        offsets.pop(place, None)
    if not offsets:
        del by_producer[producer_id]
    if not by_producer:
        del state.pending[group]


def _apply_member(state: Groups, group_id: str, member_id: str, content: dict[str, Any] | None) -> None:
    if content is not None:
        # In place: this dictionary is the state's own, decisions make new ones.
        state.consumer.setdefault(group_id, new_group(group_id)).members[member_id] = parse_member(member_id, content)
    elif group_id in state.consumer:
        state.consumer[group_id].members.pop(member_id, None)


def to_records(state: Groups) -> Iterable[NewRecord]:
    """The records whose fold is this state: its snapshot."""
    for group_id, kept in state.classic.items():
        yield NewRecord(group_key("classic", group_id), encode(group_value(kept)))
    for group in state.consumer.values():
        yield from changes(None, group)
    for group_id, offsets in state.offsets.items():
        for (topic, partition), committed in offsets.items():
            yield NewRecord(offset_key(group_id, topic, partition), encode(offset_value(committed)))
    for group_id, by_producer in state.pending.items():
        for producer_id, pending in by_producer.items():
            for (topic, partition), one in pending.items():
                yield NewRecord(pending_key(group_id, producer_id, topic, partition), encode(offset_value(one)))
