"""Groups whose members speak both protocols, come, go, crash and change from one to the other, while the broker
restarts.

Clients of the classic protocol are as real ones: eager (they drop all before they join) or cooperative (they keep what
they have, drop what they were not given, and join again); whoever leads assigns. Of members that the broker knows, no
two ever own the same partition; when everything is quiet, each partition has an owner, and the group is a KIP-848
group exactly if a member speaks that protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.groups.shell import GROUP, Shell, assigned
from proving import proves
from tidelog.broker.groups.classic_group import Protocol
from tidelog.broker.groups.consumer_group import ClassicSide, Member
from tidelog.broker.groups.migration import assignment_bytes, parse_assignment, parse_subscription, partitions_of
from tidelog.wire.codec import encode
from tidelog.wire.error_code import ErrorCode as E
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolSubscription, SubscriptionTopicPartition
from tidelog.wire.messages.join_group import JoinGroupResponse

TOPICS = {"orders": 3, "payments": 2}
SESSION_MS = 10_000
CONSUMER_SESSION_MS = 45_000
REBALANCE_MS = 20_000
VERSION = 1
ROUNDS_TO_SETTLE = 40

Place = tuple[bytes, int]


@dataclass
class Client:
    number: int
    classic: bool
    instance: str | None
    member_id: str = ""
    epoch: int = 0  # the generation of a classic client
    owned: set[Place] = field(default_factory=set)
    tell: bool = True
    waits_for: str | None = None  # the ticket of JoinGroup or SyncGroup
    must_join: bool = True


class MixedGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shell = Shell(TOPICS)
        self.clients: list[Client] = []
        self.number = 0
        self.cooperative = False

    @initialize(cooperative=st.booleans())
    def choose(self, cooperative: bool) -> None:
        self.cooperative = cooperative

    # Clients ------------------------------------------------------------------------------------------------------

    @rule(classic=st.booleans(), instance=st.sampled_from([None, None, None, "one"]))
    def start_client(self, classic: bool, instance: str | None) -> None:
        if len(self.clients) < 4 and (instance is None or all(one.instance != instance for one in self.clients)):
            self.number += 1
            name = "" if classic else f"consumer-{self.number}"
            self.clients.append(Client(self.number, classic, instance, name))
            self._step(self.clients[-1])

    @rule(number=st.integers(0, 9))
    def step(self, number: int) -> None:
        if self.clients:
            self._step(self.clients[number % len(self.clients)])

    @rule()
    def all_step(self) -> None:
        for client in list(self.clients):
            self._step(client)

    @rule(number=st.integers(0, 9))
    def leave(self, number: int) -> None:
        if not self.clients:
            return
        client = self.clients.pop(number % len(self.clients))
        if not client.classic and client.epoch > 0:
            self.shell.beat(client.member_id, -1, instance_id=client.instance)
        elif client.classic and client.member_id:
            self.shell.leave((client.member_id, client.instance))

    @rule(number=st.integers(0, 9))
    def crash(self, number: int) -> None:
        if self.clients:
            self.clients.pop(number % len(self.clients))

    @rule(number=st.integers(0, 9))
    def restart_with_the_other_protocol(self, number: int) -> None:
        """A static client that stops for a moment; the new process has another protocol."""
        client = self.clients[number % len(self.clients)] if self.clients else None
        if client is not None and client.instance is not None:
            self.clients.remove(client)
            if not client.classic and client.epoch > 0:
                self.shell.beat(client.member_id, -2, instance_id=client.instance)
            self.start_client(not client.classic, client.instance)

    @rule(ms=st.sampled_from([1, 3_000, SESSION_MS, REBALANCE_MS]))
    def wait(self, ms: int) -> None:
        self.shell.wait(ms)

    @rule()
    def restart_broker(self) -> None:
        self.shell.restart()

    def _step(self, client: Client) -> None:
        if not client.classic:
            self._beat(client)
        elif client.waits_for is not None:
            if client.waits_for in self.shell.replies:
                self._hear(client, client.waits_for)
        elif client.must_join:
            self._join(client)
        else:
            self._after(client, self.shell.heartbeat(client.member_id, client.epoch, instance=client.instance))

    def _beat(self, client: Client) -> None:
        whole = client.epoch == 0 or client.tell
        reply = self.shell.beat(
            client.member_id,
            client.epoch,
            instance_id=client.instance,
            rebalance_timeout_ms=REBALANCE_MS if whole else -1,
            subscribed_topic_names=list(TOPICS) if whole else None,
            owned=client.owned if whole else None,
        )
        client.tell = False
        if reply.error_code == E.UNRELEASED_INSTANCE_ID:
            return
        if reply.error_code != 0:
            gone = GROUP not in self.shell.state.classic and GROUP not in self.shell.state.consumer
            expected = (E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH, *([E.GROUP_ID_NOT_FOUND] if gone else []))
            assert reply.error_code in expected, reply
            client.epoch, client.owned, client.tell = 0, set(), True
            return
        client.epoch = reply.member_epoch
        if reply.assignment is not None and assigned(reply) != client.owned:
            client.owned, client.tell = assigned(reply), True

    def _join(self, client: Client) -> None:
        if not self.cooperative:
            client.owned = set()
        names = {topic.topic_id: name for name, topic in self.shell.topics.items()}
        owned = [SubscriptionTopicPartition(topic=names[one], partitions=[index]) for one, index in client.owned]
        said = encode(ConsumerProtocolSubscription(topics=list(TOPICS), owned_partitions=owned), VERSION)
        metadata = VERSION.to_bytes(2, "big") + b"".join(bytes(chunk) for chunk in said)  # type: ignore[arg-type]
        client.waits_for = self.shell.join(
            client.member_id,
            version=5,
            instance=client.instance,
            protocols={"shared": metadata},
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        client.must_join = False
        if client.waits_for in self.shell.replies:
            self._hear(client, client.waits_for)

    def _hear(self, client: Client, ticket: str) -> None:
        client.waits_for = None
        reply = self.shell.replies[ticket]
        if reply is None:  # the connection was lost
            client.must_join = True
        elif not isinstance(reply, JoinGroupResponse):
            self._after(client, reply.error_code)
            if reply.error_code == 0:
                now = set(parse_assignment(self.shell.state, reply.assignment))
                client.must_join = self.cooperative and bool(client.owned - now)
                client.owned = now
        elif reply.error_code == E.MEMBER_ID_REQUIRED:
            client.member_id, client.must_join = reply.member_id, True
        elif reply.error_code != 0:
            self._after(client, reply.error_code)
        else:
            client.member_id, client.epoch = reply.member_id, reply.generation_id
            given = self._assign(reply) if reply.leader == reply.member_id else {}
            client.waits_for = self.shell.sync(client.member_id, client.epoch, given, instance=client.instance)

    def _after(self, client: Client, error_code: int) -> None:
        if error_code == 0:
            return
        client.must_join = True
        if error_code != E.REBALANCE_IN_PROGRESS:
            assert error_code in (E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION), error_code
            client.owned = set()
        if error_code == E.UNKNOWN_MEMBER_ID:
            client.member_id = ""

    def _assign(self, reply: JoinGroupResponse) -> dict[str, bytes]:
        """In turn; what another member has now must wait until it has dropped it."""
        state = self.shell.state
        has = {
            one.member_id: partitions_of(state, parse_subscription(one.metadata).owned_partitions)
            for one in reply.members
        }
        given: dict[str, set[Place]] = {one: set() for one in has}
        for at, place in enumerate(sorted(self._everything())):
            member_id = sorted(has)[at % len(has)]
            if not any(place in owned for other, owned in has.items() if other != member_id):
                given[member_id].add(place)
        side = ClassicSide(0, (Protocol("shared", reply.members[0].metadata),))
        return {
            member_id: assignment_bytes(
                state, Member(member_id, topics=frozenset(TOPICS), assigned=frozenset(places), classic=side)
            )
            for member_id, places in given.items()
        }

    # What must hold -----------------------------------------------------------------------------------------------

    def _everything(self) -> set[Place]:
        return {(topic.topic_id, index) for topic in self.shell.topics.values() for index in range(topic.partitions)}

    def _known(self) -> set[str]:
        consumer = self.shell.state.consumer.get(GROUP)
        classic = self.shell.state.live_group(GROUP)
        return set(consumer.members if consumer is not None else classic.members if classic is not None else ())

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        known = self._known()
        for left, right in combinations((one for one in self.clients if one.member_id in known), 2):
            assert not left.owned & right.owned, (left, right)
        group = self.shell.state.consumer.get(GROUP)
        for one, other in combinations(group.members.values() if group is not None else (), 2):
            assert not (one.assigned | one.revoking) & (other.assigned | other.revoking)

    @invariant()
    def records_fold_to_the_state(self) -> None:
        self.shell.check_folds()
        assert not (self.shell.state.consumer.keys() & self.shell.state.classic.keys())
        assert not (self.shell.state.consumer.keys() & self.shell.state.live.classic.keys())

    def teardown(self) -> None:
        # All that live speak often enough; those who crashed are out after that.
        for _ in range(CONSUMER_SESSION_MS // 3_000 + 1):
            for client in list(self.clients):
                self._step(client)
                self._step(client)
            self.shell.wait(3_000)
        for _ in range(ROUNDS_TO_SETTLE):
            for client in list(self.clients):
                self._step(client)
        assert self._known() == {one.member_id for one in self.clients}
        if self.clients:
            assert set.union(*(one.owned for one in self.clients)) == self._everything()
            assert (GROUP in self.shell.state.consumer) == any(not one.classic for one in self.clients)
        self.shell.wait(CONSUMER_SESSION_MS + REBALANCE_MS)
        assert self._known() == set()
        assert len(self.shell.state.live.deadlines) == 1, "only retention is left"
        waiting = {one.waits_for for one in self.clients}
        assert set(self.shell.unanswered()) <= waiting


TestMixedGroups = proves("T3")(MixedGroups.TestCase)
TestMixedGroups.settings = settings(stateful_step_count=40, suppress_health_check=list(HealthCheck))
