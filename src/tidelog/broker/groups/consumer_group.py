"""A KIP-848 group as a value: its members, what each has, and what each shall have.

All of it is kept: `changes(old, new)` gives the records that lead from one value to the other, so a decision is made
by computing the next value. The hash of the subscribed topics is kept instead of the topics, to notice after a
restart that they changed.

A member's phases, towards its target:

    stable     it has its target and the group's epoch
    revoking   it must give partitions back (`revoking`) before it may move on; others wait for them
    waiting    it has the group's epoch, but some of its target is still with others

A member with a `classic` side speaks the classic protocol (see `mixed`).

A partition is in `assigned` or `revoking` of one member at most. It leaves `revoking` only when the member says that
it no longer owns it, or is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from tidelog.broker.decision import NewRecord
from tidelog.broker.groups.classic_group import Protocol
from tidelog.broker.groups.records import (
    group_key,
    member_key,
    pack_bytes,
    pack_partitions,
    unpack_bytes,
    unpack_partitions,
)
from tidelog.broker.record_text import encode

TopicPartition: TypeAlias = tuple[bytes, int]
Partitions: TypeAlias = frozenset[TopicPartition]

NO_PARTITIONS: Partitions = frozenset()

STABLE = "stable"
REVOKING = "revoking"
WAITING = "waiting"

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
AWAY_EPOCH = -2  # a static member that will come back


class ClassicSide(NamedTuple):
    """What a member said in JoinGroup that a member which speaks KIP-848 does not say."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


class Member(NamedTuple):
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    assignor: str | None = None
    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    phase: str = STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    target: Partitions = NO_PARTITIONS
    classic: ClassicSide | None = None
    user: str | None = None  # with a pattern: of what matches, the member gets what this user may describe


class Group(NamedTuple):
    group_id: str
    epoch: int
    since_ms: int  # wall clock: when it became empty
    topics_hash: str
    members: dict[str, Member]

    def static_member(self, instance_id: str) -> Member | None:
        return next((one for one in self.members.values() if one.instance_id == instance_id), None)

    def state(self) -> str:
        """Kafka's name of the group's state. Targets are computed with the epoch, so `Assigning` never shows."""
        if not self.members:
            return "Empty"
        settled = all(one.phase == STABLE and one.epoch == self.epoch for one in self.members.values())
        return "Stable" if settled else "Reconciling"


def new_group(group_id: str, epoch: int = 0) -> Group:
    return Group(group_id, epoch, 0, "", {})


def changes(old: Group | None, new: Group | None) -> Iterator[NewRecord]:
    """The records that make `new` of `old`; None is a group that is not there."""
    if old is new:
        return
    group_id = new.group_id if new is not None else old.group_id if old is not None else ""
    before = old.members if old is not None else {}
    after = new.members if new is not None else {}
    for member_id in before.keys() - after.keys():
        yield NewRecord(member_key(group_id, member_id), None)
    if new is None:
        yield NewRecord(group_key("consumer", group_id), None)
        return
    if old is None or header(old) != header(new):
        yield NewRecord(group_key("consumer", group_id), encode(header(new)))
    for member_id, member in after.items():
        if before.get(member_id) != member:
            yield NewRecord(member_key(group_id, member_id), encode(member_value(member)))


def header(group: Group) -> dict[str, Any]:
    return {"epoch": group.epoch, "since": group.since_ms, "topics": group.topics_hash}


def member_value(member: Member) -> dict[str, Any]:
    value: dict[str, Any] = {
        "instance": member.instance_id,
        "rack": member.rack_id,
        "client": member.client_id,
        "host": member.client_host,
        "rebalance_ms": member.rebalance_timeout_ms,
        "topics": sorted(member.topics),
        "pattern": member.pattern,
        "assignor": member.assignor,
        "epoch": member.epoch,
        "previous": member.previous_epoch,
        "phase": member.phase,
        "assigned": pack_partitions(member.assigned),
        "revoking": pack_partitions(member.revoking),
        "target": pack_partitions(member.target),
    }
    if member.classic is not None:
        protocols = [[name, pack_bytes(metadata)] for name, metadata in member.classic.protocols]
        value["classic"] = {"session_ms": member.classic.session_timeout_ms, "protocols": protocols}
    if member.user is not None:
        value["user"] = member.user
    return value


def parse_member(member_id: str, value: Mapping[str, Any]) -> Member:
    return Member(
        member_id,
        value["instance"],
        value["rack"],
        value["client"],
        value["host"],
        value["rebalance_ms"],
        frozenset(value["topics"]),
        value["pattern"],
        value["assignor"],
        value["epoch"],
        value["previous"],
        value["phase"],
        unpack_partitions(value["assigned"]),
        unpack_partitions(value["revoking"]),
        unpack_partitions(value["target"]),
        _parse_classic(value.get("classic")),
        value.get("user"),
    )


def _parse_classic(value: Mapping[str, Any] | None) -> ClassicSide | None:
    if value is None:
        return None
    protocols = tuple(Protocol(name, unpack_bytes(metadata)) for name, metadata in value["protocols"])
    return ClassicSide(value["session_ms"], protocols)
