"""KIP-848 groups with members that come, go, crash and miss replies, while topics change and the broker restarts.

Each client here owns what a real one would: it drops what it is told to drop, says so in its next heartbeat, and takes
only what it is given. No partition ever has two owners among those whom the broker knows, and when everything is quiet
each has one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import hypothesis
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from broker.groups.shell import GROUP, Shell, assigned
from proving import proves
from tidelog.broker.groups.consumer_group import Member
from tidelog.wire.error_code import ErrorCode as E

SESSION_MS = 45_000
REBALANCE_MS = 20_000
TOPICS = ["orders", "order-lines", "payments", "stock"]
SUBSCRIPTIONS = [(("orders",), None), (("orders", "payments"), None), ((), "order.*"), (("stock",), "order.*|none")]
ROUNDS_TO_SETTLE = 12

Place = tuple[bytes, int]


@dataclass
class Client:
    member_id: str
    instance: str | None
    names: tuple[str, ...]
    pattern: str | None
    assignor: str | None
    epoch: int = 0
    owned: set[Place] = field(default_factory=set)
    tell: bool = True  # what it owns has changed since it last said, or it is not sure that it was heard


class ConsumerGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shell = Shell({"orders": 3, "payments": 2})
        self.clients: list[Client] = []
        self.number = 0
        self.epoch = 0

    def _pick(self, number: int) -> Client | None:
        return self.clients[number % len(self.clients)] if self.clients else None

    @rule(
        subscription=st.sampled_from(SUBSCRIPTIONS),
        instance=st.sampled_from([None, None, "one", "two"]),
        assignor=st.sampled_from([None, None, "range"]),
    )
    def start_client(
        self, subscription: tuple[tuple[str, ...], str | None], instance: str | None, assignor: str | None
    ) -> None:
        if len(self.clients) < 5:
            self.number += 1
            self.clients.append(Client(f"member-{self.number}", instance, *subscription, assignor))
            self._beat(self.clients[-1])

    @rule(number=st.integers(0, 9))
    def heartbeat(self, number: int) -> None:
        if (client := self._pick(number)) is not None:
            self._beat(client)

    @rule(number=st.integers(0, 9))
    def heartbeat_with_a_lost_reply(self, number: int) -> None:
        if (client := self._pick(number)) is not None:
            self._beat(client, heard=False)

    @rule(number=st.integers(0, 9), subscription=st.sampled_from(SUBSCRIPTIONS))
    def subscribe_anew(self, number: int, subscription: tuple[tuple[str, ...], str | None]) -> None:
        if (client := self._pick(number)) is not None:
            client.names, client.pattern = subscription
            client.tell = True
            self._beat(client)

    def _beat(self, client: Client, heard: bool = True) -> None:
        joins = client.epoch == 0
        whole = joins or client.tell
        reply = self.shell.beat(
            client.member_id,
            client.epoch,
            instance_id=client.instance,
            server_assignor=client.assignor if whole else None,
            rebalance_timeout_ms=REBALANCE_MS if whole else -1,
            subscribed_topic_names=list(client.names) if whole else None,
            subscribed_topic_regex=(client.pattern or "") if whole and (client.pattern or client.names) else None,
            owned=client.owned if whole else None,
        )
        client.tell = not heard
        if not heard:
            return
        if reply.error_code == E.UNRELEASED_INSTANCE_ID:
            self.clients.remove(client)
        elif reply.error_code in (E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH, E.FENCED_INSTANCE_ID):
            client.epoch, client.owned, client.tell = 0, set(), True
            if reply.error_code == E.FENCED_INSTANCE_ID:
                self.clients.remove(client)
        else:
            assert reply.error_code == 0, reply
            assert reply.member_epoch >= client.epoch
            client.epoch = reply.member_epoch
            if reply.assignment is not None and assigned(reply) != client.owned:
                client.owned, client.tell = assigned(reply), True

    @rule(number=st.integers(0, 9))
    def leave(self, number: int) -> None:
        if (client := self._pick(number)) is not None:
            self.clients.remove(client)
            if client.epoch > 0:
                self.shell.beat(client.member_id, -1, instance_id=client.instance)

    @rule(number=st.integers(0, 9))
    def restart_client(self, number: int) -> None:
        """A static member says that it will be back, and is, as another process."""
        client = self._pick(number)
        if client is not None and client.instance is not None and client.epoch > 0:
            self.clients.remove(client)
            self.shell.beat(client.member_id, -2, instance_id=client.instance)
            self.number += 1
            back = Client(f"member-{self.number}", client.instance, client.names, client.pattern, client.assignor)
            self.clients.append(back)

    @rule(number=st.integers(0, 9))
    def crash(self, number: int) -> None:
        if (client := self._pick(number)) is not None:
            self.clients.remove(client)

    @rule(number=st.integers(0, 9))
    def commit(self, number: int) -> None:
        client = self._pick(number)
        if client is not None and "orders" in self.shell.topics:
            [code] = self.shell.commit_offsets({("orders", 0): 1}, member_id=client.member_id, generation=client.epoch)
            known = self._members().get(client.member_id)
            if code == 0:
                assert known is not None
                assert known.epoch == client.epoch

    @rule(topics=st.fixed_dictionaries({name: st.integers(0, 4) for name in TOPICS}))
    def change_topics(self, topics: dict[str, int]) -> None:
        # Partitions are only ever added.
        now = {
            name: max(count, self.shell.topics[name].partitions if name in self.shell.topics else 0)
            for name, count in topics.items()
            if count
        }
        self.shell.set_topics(**now)

    @rule(ms=st.sampled_from([1, 5_000, REBALANCE_MS, SESSION_MS]))
    def wait(self, ms: int) -> None:
        self.shell.wait(ms)

    @rule()
    def restart_broker(self) -> None:
        self.shell.restart()

    def _members(self) -> dict[str, Member]:
        group = self.shell.state.consumer.get(GROUP)
        return group.members if group is not None else {}

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        members = self._members()
        for left, right in combinations(members.values(), 2):
            assert not (left.assigned | left.revoking) & (right.assigned | right.revoking)
        for client in self.clients:
            known = members.get(client.member_id)
            # One whose epoch is neither the present one nor the one before will be fenced when it next speaks.
            if known is not None and client.epoch in (known.epoch, known.previous_epoch) and client.epoch > 0:
                assert client.owned <= known.assigned | known.revoking

    @invariant()
    def epochs_go_up(self) -> None:
        group = self.shell.state.consumer.get(GROUP)
        epoch = group.epoch if group is not None else self.epoch
        assert epoch >= self.epoch
        self.epoch = epoch
        assert all(one.epoch <= epoch for one in self._members().values())

    @invariant()
    def targets_cover_every_subscribed_partition_once(self) -> None:
        wanted: set[Place] = set()
        for one in self._members().values():
            for name, topic in self.shell.topics.items():
                if name in one.topics or (one.pattern and name.startswith("order")):
                    wanted |= {(topic.topic_id, index) for index in range(topic.partitions)}
        targets = [place for one in self._members().values() for place in one.target]
        assert len(targets) == len(set(targets))
        assert set(targets) == wanted

    @invariant()
    def records_fold_to_the_state(self) -> None:
        self.shell.check_folds()

    def teardown(self) -> None:
        self._lose_the_crashed()
        for _ in range(ROUNDS_TO_SETTLE):
            for client in list(self.clients):
                self._beat(client)
        members = self._members()
        assert set(members) == {client.member_id for client in self.clients}
        for client in self.clients:
            assert client.owned == members[client.member_id].target
            assert client.epoch == self.shell.state.consumer[GROUP].epoch
        self.shell.wait(SESSION_MS)
        assert self._members() == {}
        assert len(self.shell.state.live.deadlines) == 1, "only retention is left"
        assert self.shell.unanswered() == []

    def _lose_the_crashed(self) -> None:
        """Time passes with everybody alive sending heartbeats, so that only those who crashed are out."""
        for _ in range(SESSION_MS // 5_000):
            for client in list(self.clients):
                self._beat(client)
            self.shell.wait(5_000)


TestConsumerGroups = proves("T3")(ConsumerGroups.TestCase)
TestConsumerGroups.settings = settings(stateful_step_count=40, suppress_health_check=list(HealthCheck))


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@proves("T3")
def test_consumer_groups_for_long(seed: int) -> None:
    class Seeded(ConsumerGroups):
        pass

    long = settings(max_examples=3_000, stateful_step_count=80, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(hypothesis.seed(seed)(Seeded), settings=long)  # type: ignore[no-untyped-call]
