"""Membership in a group by the consumer protocol (KIP-848): the broker assigns, a member is a loop of heartbeats.

    joining    epoch 0, owning nothing: at first, and when the broker has forgotten us or given our epoch to others
    member     epoch > 0: what the last answer had is owned
    left       epoch -1, told once

Rules:
- Every heartbeat tells all: the topics, and what is owned. So every answer has all that is ours by now, and an answer
  that was lost leaves nothing to guess.
- What an answer no longer has is to be given up before the next heartbeat, for that one tells the broker so, and
  others get it. An answer that changed something is followed by a heartbeat at once.
- Nothing fences a member but itself: one that was stopped for longer than its session believes that it owns what others
  have, until its next heartbeat. What it does meanwhile must be refused by whom it does it to.
- `decide` functions are pure; `GroupMembership` has the cluster and the clock, and belongs to one thread.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from uuid import uuid4

from tidelog.client.admin import groups
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.refusal import check
from tidelog.errors import BrokerError, UsageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)

JOINING, LEAVING = 0, -1
REBALANCE_MS = 300_000  # how long the broker waits for what is to be given up: as long as Kafka's own clients ask for
FORGOTTEN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
NOT_OURS_NOW = (*FORGOTTEN, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION)

Owned = frozenset[tuple[bytes, int]]  # by the topic's id


class State(NamedTuple):
    epoch: int = JOINING
    owned: Owned = frozenset()
    interval_ms: int = 0
    is_news: bool = True  # the broker is to hear of it at once


# Decisions ------------------------------------------------------------------------------------------------------------


def request_of(
    group: str, member_id: str, topics: Collection[str], state: State, *, rebalance_ms: int = REBALANCE_MS
) -> ConsumerGroupHeartbeatRequest:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(state.owned):
        by_topic.setdefault(topic_id, []).append(partition)
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=state.epoch,
        rebalance_timeout_ms=rebalance_ms,
        subscribed_topic_names=sorted(topics),
        topic_partitions=[RequestTopicPartitions(topic_id=one, partitions=some) for one, some in by_topic.items()],
    )


def after(state: State, answer: ConsumerGroupHeartbeatResponse, group: str) -> State:
    """What an answer makes of it. One that does not pass raises: a group of another kind, no right to read it."""
    if answer.error_code in FORGOTTEN and state.epoch != JOINING:
        return State()
    check(answer.error_code, f"a heartbeat in group {group!r}", answer.error_message)
    owned = state.owned
    if answer.assignment is not None:
        given = answer.assignment.topic_partitions
        owned = frozenset((bytes(one.topic_id), partition) for one in given for partition in one.partitions)
    return State(answer.member_epoch, owned, answer.heartbeat_interval_ms, owned != state.owned)


def is_due(state: State, silent_s: float, *, subscribed: bool) -> bool:
    """`subscribed`: whether the broker has heard of the topics as they are now."""
    return state.is_news or not subscribed or silent_s * 1000 >= state.interval_ms


# The shell ------------------------------------------------------------------------------------------------------------


class GroupMembership:
    def __init__(self, cluster: Cluster, group: str) -> None:
        self.group = group
        self.member_id = str(uuid4())
        self._cluster = cluster
        self._state = State()
        self._topics: frozenset[str] = frozenset()  # as the broker has heard of them
        self._beaten_at = 0.0
        self._names: dict[bytes, str] = {}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """What is ours, as far as we know."""
        known = [(self._names.get(topic_id), partition) for topic_id, partition in self._state.owned]
        return frozenset(TopicPartition(name, partition) for name, partition in known if name is not None)

    def beat(self, topics: Iterable[str], *, at_once: bool = False) -> bool:
        """A heartbeat, if one is due or wanted at once; whether what is ours has changed by it."""
        wanted = frozenset(topics)
        silent_s = time.monotonic() - self._beaten_at
        if not wanted and self._state.epoch == JOINING:
            return False
        if not at_once and not is_due(self._state, silent_s, subscribed=wanted == self._topics):
            return False
        before = self.partitions
        self._state = self._cluster.retry(lambda: self._ask(wanted))
        self._topics, self._beaten_at = wanted, time.monotonic()
        self._learn_names(wanted)
        return self.partitions != before

    def commit(self, offsets: Mapping[TopicPartition, int], *, metadata: str = "") -> bool:
        """Whether it was taken; it is not when the broker thinks otherwise of us, which the next heartbeat tells."""
        try:
            groups.commit(
                self._cluster,
                self.group,
                offsets,
                metadata=metadata,
                member_id=self.member_id,
                epoch=self._state.epoch,
            )
        except BrokerError as error:
            if error.code not in NOT_OURS_NOW:
                raise
            self._state = self._state._replace(is_news=True)
            return False
        return True

    def leave(self) -> None:
        """What was ours is for others at once, instead of at the end of a session."""
        if self._state.epoch == JOINING:
            return
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=LEAVING, topic_partitions=[]
        )
        self._state = State()
        answer = self._cluster.coordinator(self.group).call(request, ConsumerGroupHeartbeatResponse)
        if answer.error_code not in FORGOTTEN:
            check(answer.error_code, f"leaving group {self.group!r}", answer.error_message)

    def _ask(self, topics: Collection[str]) -> State:
        coordinator = self._cluster.coordinator(self.group)
        if not coordinator.offers(ConsumerGroupHeartbeatRequest):
            raise UsageError(
                f"{coordinator.address} does not know the consumer protocol (KIP-848), by which partitions are shared;"
                " Apache Kafka has it since 4.0"
            )
        request = request_of(self.group, self.member_id, topics, self._state)
        return after(self._state, coordinator.call(request, ConsumerGroupHeartbeatResponse), self.group)

    def _learn_names(self, topics: Collection[str]) -> None:
        """Of a topic that was made anew, the id may be older here than the broker's."""
        if {topic_id for topic_id, _ in self._state.owned} <= self._names.keys():
            return
        found = self._cluster.ask_metadata(topics).topics
        self._names = {one.topic_id: name for name, one in found.items()}
