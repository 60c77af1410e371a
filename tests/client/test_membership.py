"""Membership by heartbeats: the decisions against the broker's own, with lost answers and silence; and for real."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from against.patience import eventually
from broker.groups.shell import GROUP, Shell
from contract import Broker
from proving import proves
from tidelog.broker.groups.consumer_heartbeat import decide_consumer_heartbeat
from tidelog.broker.groups.state import Caller
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.membership import JOINING, GroupMembership, State, after, is_due, request_of
from tidelog.client.metadata import TopicPartition
from tidelog.errors import BrokerError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

SESSION_MS = 45_000
ROUNDS_TO_SETTLE = 12
SOON = {"group.consumer.heartbeat.interval.ms": 100, "group.consumer.min.heartbeat.interval.ms": 100}
PARTITIONS = {"orders": 3, "payments": 2}


class Members:
    def __init__(self, count: int) -> None:
        self.shell = Shell(dict(PARTITIONS))
        self.states = [State() for _ in range(count)]
        self.topics = [frozenset(["orders"]) for _ in range(count)]

    def beat(self, index: int, *, lost: bool = False) -> None:
        ticket = self.shell.ticket("beat")
        request = request_of(GROUP, f"m{index}", self.topics[index], self.states[index])
        caller = Caller(1, "client", "/127.0.0.1", "fresh")
        self.shell.commit(decide_consumer_heartbeat(self.shell.state, request, caller, ticket, self.shell.now))
        answer = self.shell.replies[ticket]
        if not lost:
            self.states[index] = after(self.states[index], answer, GROUP)

    def check(self) -> None:
        """Of those whom the broker knows, and by the epoch that they have: all others learn it with their next beat."""
        group = self.shell.state.consumer.get(GROUP)
        known = {} if group is None else group.members
        alive = [
            state
            for index, state in enumerate(self.states)
            if (member := known.get(f"m{index}")) and state.epoch in (member.epoch, member.previous_epoch)
        ]
        for one, other in combinations(alive, 2):
            assert not one.owned & other.owned


steps = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["beat", "beat", "beat", "lost", "subscribe", "silence", "restart"])),
    max_size=40,
)


@proves("eo.20", "T4")
@given(steps)
def test_no_partition_has_two_owners_and_in_the_end_each_has_one(done: list[tuple[int, str]]) -> None:
    members = Members(3)
    for index, what in done:
        if what in ("beat", "lost"):
            members.beat(index, lost=what == "lost")
        elif what == "subscribe":
            members.topics[index] ^= {"payments"}
        elif what == "silence":
            members.shell.wait(SESSION_MS // 2 + 1)
        else:
            members.shell.restart()
        members.check()
    for _ in range(ROUNDS_TO_SETTLE):
        for index in range(3):
            members.beat(index)
            members.check()
    wanted = {name for some in members.topics for name in some}
    owned = [one for state in members.states for one in state.owned]
    assert len(owned) == len(set(owned)) == sum(PARTITIONS[name] for name in wanted)


@proves("eo.20", "T4")
def test_a_heartbeat_is_due_for_news_and_after_its_interval() -> None:
    quiet = State(3, frozenset(), 5_000, is_news=False)
    assert is_due(State(), 0.0, subscribed=True), "to join"
    assert is_due(quiet._replace(is_news=True), 0.0, subscribed=True), "to tell what is given up"
    assert is_due(quiet, 0.0, subscribed=False)
    assert [is_due(quiet, silent, subscribed=True) for silent in (0.0, 4.9, 5.0)] == [False, False, True]


@proves("eo.20", "T4")
@pytest.mark.parametrize("code", ["UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND"])
def test_who_was_forgotten_owns_nothing_and_joins_anew(code: str) -> None:
    answer = ConsumerGroupHeartbeatResponse(error_code=getattr(ErrorCode, code))
    found = after(State(7, frozenset([(bytes(16), 1)]), 5_000, is_news=False), answer, GROUP)
    assert (found.epoch, found.owned, found.is_news) == (JOINING, frozenset(), True)
    with pytest.raises(BrokerError, match=code):
        after(State(), answer, GROUP)


# Against brokers ------------------------------------------------------------------------------------------------------


@proves("eo.20", "T4")
@pytest.mark.tidelog(settings=SOON)
def test_members_split_a_topic_commit_as_such_and_leave(
    broker: Broker, cluster: Cluster, topic: str, group: str
) -> None:
    topics.create(cluster, topic, partitions=4)
    every = {TopicPartition(topic, index) for index in range(4)}
    with Cluster(broker.bootstrap) as other:
        first, second = GroupMembership(cluster, group), GroupMembership(other, group)

        def beaten() -> list[int]:
            for one in (first, second):
                one.beat([topic])
            assert not first.partitions & second.partitions
            return sorted([len(first.partitions), len(second.partitions)])

        eventually(lambda: first.beat([topic]) or first.partitions, lambda _: first.partitions == every)
        eventually(beaten, lambda found: found == [2, 2])
        assert first.partitions | second.partitions == every
        assert eventually(lambda: beaten() and second.commit({TopicPartition(topic, 0): 5}, metadata="m"))
        assert groups.committed(cluster, group)[TopicPartition(topic, 0)][::2] == (5, "m")
        with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
            groups.commit(cluster, group, {TopicPartition(topic, 0): 9})
        first.leave()
        assert first.partitions == frozenset()
        assert not first.commit({TopicPartition(topic, 0): 9}), "it is no member any more"
        eventually(lambda: second.beat([topic]) or second.partitions, lambda _: second.partitions == every)
        second.leave()
        second.leave()
