"""A classic group, twice: as it is kept (after its last completed rebalance) and as it lives (between requests, in
memory only).

`KeptGroup` is what records hold and what a restart brings back: members go on in the same generation, and have a full
session time-out to be heard of. `LiveGroup` adds what a restart forgets: the phase, parked requests, members that
have joined but were not yet part of a completed rebalance. An assignment leaves the broker only after the record that
holds it is synced, so no generation that a restart forgets has ever owned a partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidelog.broker.decision import Ticket
from tidelog.broker.groups.phases import MOVES, GroupEvent, Phase
from tidelog.broker.groups.records import pack_bytes, unpack_bytes

CONSUMER_PROTOCOL_TYPE = "consumer"


class Protocol(NamedTuple):
    """A way of assigning that a member offers, with what it tells the leader; the bytes are the clients' affair."""

    name: str
    metadata: bytes


class KeptMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""

    def metadata(self, protocol: str | None) -> bytes:
        return next((one.metadata for one in self.protocols if one.name == protocol), b"")


class KeptGroup(NamedTuple):
    group_id: str
    generation: int
    protocol_type: str
    protocol: str | None
    leader: str | None
    since_ms: int  # wall clock: the rebalance's end; for an empty group, when it became empty
    members: tuple[KeptMember, ...]


@dataclass(slots=True)
class LiveMember:
    kept: KeptMember
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None
    is_new: bool = False  # has never had an answer to JoinGroup, so it cannot send heartbeats


@dataclass(slots=True)
class LiveGroup:
    group_id: str
    phase: Phase = Phase.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, LiveMember] = field(default_factory=dict)  # in the order of joining
    pending: set[str] = field(default_factory=set)  # member ids given out with MEMBER_ID_REQUIRED, not yet used
    unsynced: set[str] = field(default_factory=set)  # members of this generation that have not sent SyncGroup
    initial: bool = False  # preparing the first generation after Empty: the delay alone ends it
    initial_left_ms: int = 0  # by how much the delay may still be prolonged
    grew: bool = False  # a member joined since the delay was last set

    def move(self, event: GroupEvent) -> None:
        self.phase = MOVES[self.phase, event]

    def static_member(self, instance_id: str) -> LiveMember | None:
        return next((one for one in self.members.values() if one.kept.instance_id == instance_id), None)

    def all_joined(self) -> bool:
        return not self.pending and all(one.join_ticket is not None for one in self.members.values())

    def rebalance_timeout_ms(self) -> int:
        return max((one.kept.rebalance_timeout_ms for one in self.members.values()), default=0)


def revive(kept: KeptGroup) -> LiveGroup:
    group = LiveGroup(kept.group_id, Phase.EMPTY, kept.generation, kept.protocol_type, kept.protocol, kept.leader)
    group.members = {one.member_id: LiveMember(one) for one in kept.members}
    group.phase = Phase.STABLE if group.members else Phase.EMPTY
    return group


def keep(group: LiveGroup, wall_ms: int) -> KeptGroup:
    members = tuple(one.kept for one in group.members.values())
    return KeptGroup(
        group.group_id, group.generation, group.protocol_type, group.protocol, group.leader, wall_ms, members
    )


def group_value(group: KeptGroup) -> dict[str, Any]:
    return {
        "generation": group.generation,
        "type": group.protocol_type,
        "protocol": group.protocol,
        "leader": group.leader,
        "since": group.since_ms,
        "members": [
            {
                "id": one.member_id,
                "instance": one.instance_id,
                "client": one.client_id,
                "host": one.client_host,
                "session_ms": one.session_timeout_ms,
                "rebalance_ms": one.rebalance_timeout_ms,
                "protocols": [[name, pack_bytes(metadata)] for name, metadata in one.protocols],
                "assignment": pack_bytes(one.assignment),
            }
            for one in group.members
        ],
    }


def parse_group(group_id: str, value: Mapping[str, Any]) -> KeptGroup:
    members = tuple(
        KeptMember(
            one["id"],
            one["instance"],
            one["client"],
            one["host"],
            one["session_ms"],
            one["rebalance_ms"],
            tuple(Protocol(name, unpack_bytes(metadata)) for name, metadata in one["protocols"]),
            unpack_bytes(one["assignment"]),
        )
        for one in value["members"]
    )
    return KeptGroup(
        group_id,
        value["generation"],
        value["type"],
        value["protocol"],
        value["leader"],
        value["since"],
        members,
    )


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics in a consumer's subscription, or None where the bytes are not one.

    Every version of the subscription begins as version 0 does, so versions to come are read as well.
    """
    from tidelog.errors import MalformedMessage
    from tidelog.wire.codec import decode
    from tidelog.wire.messages.consumer_protocol import ConsumerProtocolSubscription

    if len(metadata) < 2:
        return None
    try:
        subscription, _ = decode(ConsumerProtocolSubscription, 0, metadata, 2)
    except MalformedMessage:
        return None
    return frozenset(subscription.topics)
