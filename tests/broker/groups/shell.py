"""The shell around the pure machines, as small as it can be: a clock, a list for a topic, a dictionary for replies.

It checks what every shell relies on: no ticket is answered twice, and the fold of all records is the state.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from tidelog.broker.decision import Decision, Instant, NewRecord
from tidelog.broker.groups.classic_join import decide_join
from tidelog.broker.groups.classic_requests import decide_heartbeat, decide_leave, decide_sync
from tidelog.broker.groups.clock import awaken, next_deadline, tick, topics_changed
from tidelog.broker.groups.commits import decide_commit, decide_fetch
from tidelog.broker.groups.consumer_heartbeat import decide_consumer_heartbeat
from tidelog.broker.groups.settings import GroupSettings
from tidelog.broker.groups.state import Caller, Groups, apply, fresh, to_records
from tidelog.wire.codec import encode
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

GROUP = "readers"
START_MS = 1_700_000_000_000


class Topic(NamedTuple):
    topic_id: bytes
    partitions: int


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def subscription(*topics: str, version: int = 1) -> bytes:
    """What a consumer tells its leader: the topics it wants."""
    body = encode(ConsumerProtocolSubscription(topics=list(topics)), version)
    return version.to_bytes(2, "big") + b"".join(bytes(chunk) for chunk in body)  # type: ignore[arg-type]


class Shell:
    def __init__(self, topics: dict[str, int] | None = None, **settings: Any) -> None:
        self.settings = GroupSettings(**settings)
        self.topics = {name: Topic(topic_id(at), count) for at, (name, count) in enumerate((topics or {}).items(), 1)}
        self.now = Instant(START_MS, 0)
        self.log: list[NewRecord] = []
        self.replies: dict[Hashable, Any] = {}
        self.asked: list[str] = []
        self.made = 0
        self.state: Groups = fresh()
        self.commit(awaken(self.state, self.settings, self.topics, self.now))

    # What a shell does --------------------------------------------------------------------------------------------

    def commit(self, decision: Decision) -> None:
        for record in decision.records:
            self.log.append(record)
            apply(self.state, record.key, record.value)
        for ticket, reply in decision.replies:
            assert ticket not in self.replies, f"{ticket} was answered twice: {self.replies[ticket]}, then {reply}"
            self.replies[ticket] = reply

    def wait(self, ms: int) -> None:
        """Lets time pass, and does what falls due in it, when it falls due."""
        end = self.now.monotonic_ms + ms
        while (due := next_deadline(self.state)) is not None and due <= end:
            self._at(max(due, self.now.monotonic_ms))
            self.commit(tick(self.state, self.now))
        self._at(end)

    def _at(self, monotonic_ms: int) -> None:
        self.now = Instant(START_MS + monotonic_ms, monotonic_ms)

    def restart(self) -> None:
        """A new process: nothing is left but the records. Those who wait have lost their connections."""
        for ticket in self.unanswered():
            self.replies[ticket] = None
        self.state = self.folded()
        self.commit(awaken(self.state, self.settings, self.topics, self.now))

    def folded(self) -> Groups:
        state = fresh()
        for record in self.log:
            apply(state, record.key, record.value)
        return state

    def check_folds(self) -> None:
        assert self.folded() == self.state
        snapshot = fresh()
        for record in to_records(self.state):
            apply(snapshot, record.key, record.value)
        assert snapshot == self.state

    def unanswered(self) -> list[str]:
        return [ticket for ticket in self.asked if ticket not in self.replies]

    def ticket(self, what: str) -> str:
        self.asked.append(f"{what} {len(self.asked)}")
        return self.asked[-1]

    def set_topics(self, **topics: int) -> None:
        """Topics as they shall be from now on; one that is named again keeps its id."""
        before, self.topics = self.topics, {}
        for name, count in topics.items():
            self.made += name not in before
            self.topics[name] = Topic(before[name].topic_id if name in before else topic_id(1000 + self.made), count)
        changed = [name for name in before.keys() | self.topics.keys() if before.get(name) != self.topics.get(name)]
        self.commit(topics_changed(self.state, self.topics, changed, self.now))

    # The classic protocol -----------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 3,
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        group: str = GROUP,
        client: str = "client",
    ) -> str:
        """Sends JoinGroup and returns its ticket. Version 3 takes a new member at once."""
        ticket = self.ticket("join")
        offered = {"range": subscription("orders")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in offered.items()],
        )
        caller = Caller(version, client, "/127.0.0.1", f"{len(self.asked):03}")
        self.commit(decide_join(self.state, request, caller, ticket, self.now))
        return ticket

    def joined(self, ticket: str) -> JoinGroupResponse:
        reply = self.replies[ticket]
        assert isinstance(reply, JoinGroupResponse)
        return reply

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
        group: str = GROUP,
    ) -> str:
        ticket = self.ticket("sync")
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=one, assignment=data) for one, data in (assignments or {}).items()
            ],
        )
        self.commit(decide_sync(self.state, request, ticket, self.now))
        return ticket

    def synced(self, ticket: str) -> SyncGroupResponse:
        reply = self.replies[ticket]
        assert isinstance(reply, SyncGroupResponse)
        return reply

    def heartbeat(self, member_id: str, generation: int, *, instance: str | None = None, group: str = GROUP) -> int:
        ticket = self.ticket("heartbeat")
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        self.commit(decide_heartbeat(self.state, request, ticket, self.now))
        code: int = self.replies[ticket].error_code
        return code

    def leave(self, *members: tuple[str, str | None], version: int = 3, group: str = GROUP) -> Any:
        ticket = self.ticket("leave")
        request = LeaveGroupRequest(group_id=group)
        if version < 3:
            request.member_id = members[0][0]
        else:
            request.members = [MemberIdentity(member_id=one, group_instance_id=name) for one, name in members]
        self.commit(decide_leave(self.state, request, version, ticket, self.now))
        return self.replies[ticket]

    def stable(self, count: int, **join: Any) -> list[str]:
        """A group that is stable with this many members; the leader comes first. Each gets its own id as assignment."""
        tickets = [self.join(**join)]
        for _ in range(count - 1):
            tickets.append(self.join(**join))
            # Those before have to come again, for the group rebalances with each newcomer.
            for at, ticket in enumerate(tickets[:-1]):
                tickets[at] = self.join(self.joined(ticket).member_id, **join)
        members = [self.joined(ticket) for ticket in tickets]
        leader = next(one for one in members if one.member_id == one.leader)
        ids = [leader.member_id] + [one.member_id for one in members if one is not leader]
        group = join.get("group", GROUP)
        for one in ids[1:] + ids[:1]:
            assignments = {member: member.encode() for member in ids} if one == leader.member_id else {}
            self.sync(one, leader.generation_id, assignments, group=group)
        return ids

    # KIP-848 ------------------------------------------------------------------------------------------------------

    def beat(self, member_id: str, epoch: int, *, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Sends ConsumerGroupHeartbeat; `owned` is a set of (topic id, partition)."""
        ticket = self.ticket("beat")
        owned = fields.pop("owned", None)
        request = ConsumerGroupHeartbeatRequest(
            group_id=fields.pop("group", GROUP), member_id=member_id, member_epoch=epoch, **fields
        )
        if owned is not None:
            request.topic_partitions = [
                RequestTopicPartitions(topic_id=topic, partitions=[index]) for topic, index in sorted(owned)
            ]
        caller = Caller(version, "client", "/127.0.0.1", f"fresh-{len(self.asked):03}")
        self.commit(decide_consumer_heartbeat(self.state, request, caller, ticket, self.now))
        reply = self.replies[ticket]
        assert isinstance(reply, ConsumerGroupHeartbeatResponse)
        return reply

    def enter(self, member_id: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Joins a KIP-848 group."""
        fields.setdefault("rebalance_timeout_ms", 30_000)
        names = None if fields.get("subscribed_topic_regex") is not None and not topics else list(topics)
        return self.beat(member_id, 0, owned=set(), subscribed_topic_names=names, **fields)

    # Offsets ------------------------------------------------------------------------------------------------------

    def commit_offsets(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        version: int = 9,
        metadata: str | None = "",
        retention_ms: int = -1,
        group: str = GROUP,
    ) -> list[int]:
        """Commits, and returns the error codes of the partitions in order."""
        ticket = self.ticket("commit")
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offset,
                            committed_leader_epoch=3,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (name, index), offset in offsets.items()
            ],
        )
        self.commit(decide_commit(self.state, request, version, ticket, self.now))
        return [one.error_code for topic in self.replies[ticket].topics for one in topic.partitions]

    def committed(self, topic: str, index: int = 0, *, group: str = GROUP) -> int:
        ticket = self.ticket("fetch")
        topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[index])]
        request = OffsetFetchRequest(group_id=group, topics=topics)
        self.commit(decide_fetch(self.state, request, 7, ticket))
        offset: int = self.replies[ticket].topics[0].partitions[0].committed_offset
        return offset


def assigned(reply: ConsumerGroupHeartbeatResponse) -> set[tuple[bytes, int]]:
    assert reply.assignment is not None
    return {(one.topic_id, index) for one in reply.assignment.topic_partitions for index in one.partitions}
