"""A client that creates, alters and deletes while its broker dies and comes back, and knows what it was told.

Everything it asks for goes one way only (values rise, partitions are added, a deleted name is never used again), so
that what must be true does not depend on the moment when somebody looks: `Decided` keeps for each thing the least that
was acked and the most that was asked for, and `check` can run at any time, beside the administrator and its broker.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from crash.clients import PATIENCE_S, Load
from crash.ledger import Told, value_of
from tidelog.client.admin import configs, groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.client.producer import Producer
from tidelog.client.refusal import check as check_code
from tidelog.errors import BrokerError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

OUTSIDE = "outside"  # a group without members, for which the administrator commits
PARTITIONS_MAX = 6
TOPICS_MAX = 8

# Settings that are raised step by step, each from above its default on: for a topic that is the broker's.
BROKER_MS, TOPIC_MS, SESSION_MS = 2_000_000_000, 4_000_000_000, 45_001
SETTINGS = [
    (configs.BROKER, "", "log.retention.ms", BROKER_MS),
    (configs.GROUP, OUTSIDE, "consumer.session.timeout.ms", SESSION_MS),
]


@dataclass
class Rising:
    """A number: `acked` was told to be so, `asked` is what it may have become since."""

    acked: int = 0
    asked: int = 0


@dataclass
class Decided:
    created: set[str] = field(default_factory=set)
    deletion_asked: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    partitions: dict[str, Rising] = field(default_factory=dict)
    settings: dict[tuple[int, str, str], Rising] = field(default_factory=dict)
    offsets: dict[TopicPartition, Rising] = field(default_factory=dict)
    starts: dict[TopicPartition, Rising] = field(default_factory=dict)
    producer_ids: list[int] = field(default_factory=list)

    def check(self, cluster: Cluster) -> None:
        """Compares with what the broker says. What is being decided meanwhile may go either way."""
        self._check_topics(cluster)
        self._check_settings(cluster)
        before = _acked(self.offsets)
        committed = groups.committed(cluster, OUTSIDE)
        for at, acked in before.items():
            found = committed[at].offset if at in committed else 0
            _between(acked, found, self.offsets[at], f"the offset of {OUTSIDE} for {at}")
        before = _acked(self.starts)
        starts = list_offsets(cluster, dict.fromkeys(before, EARLIEST))
        for at, acked in before.items():
            _between(acked, starts[at].offset, self.starts[at], f"the beginning of {at}")
        ids = list(self.producer_ids)
        assert len(set(ids)) == len(ids), "a producer id was given twice"

    def _check_topics(self, cluster: Cluster) -> None:
        created, deleted, partitions = set(self.created), set(self.deleted), _acked(self.partitions)
        there = {topic.name: topic for topic in topics.describe(cluster)}
        lost = created - self.deletion_asked - set(there)
        assert not lost, f"topics are gone: {lost}"
        assert not deleted & set(there), f"deleted topics are back: {deleted & set(there)}"
        for name, acked in partitions.items():
            if name in there:
                _between(acked, len(there[name].partitions), self.partitions[name], f"the partitions of {name}")

    def _check_settings(self, cluster: Cluster) -> None:
        for (kind, name, key), acked in _acked(self.settings).items():
            try:
                found = configs.describe(cluster, kind, name, keys=[key])
            except BrokerError:
                assert name in self.deletion_asked, f"no settings of {name!r}"
                continue
            value = int(found[0].value or 0) if found else 0  # of all brokers' settings, altered ones alone are listed
            _between(acked, value, self.settings[kind, name, key], f"{key} of {name!r}")


def _acked(numbers: dict[Any, Rising]) -> dict[Any, int]:
    return {key: number.acked for key, number in list(numbers.items())}


def _between(acked: int, found: int, number: Rising, what: str) -> None:
    assert acked <= found <= number.asked, f"{what}: {found} found, {acked} acked, {number.asked} asked for"


class Administrator:
    """`cut` are partitions whose beginning it may move."""

    def __init__(self, load: Load, rng: random.Random, decided: Decided, cut: list[TopicPartition]) -> None:
        self.load = load
        self.rng = rng
        self.decided = decided
        self.cut = cut
        self.cluster = Cluster(load.bootstrap, timeout_s=PATIENCE_S)
        self.names = 0
        self.values = 0

    def step(self) -> None:
        there = sorted(set(self.decided.partitions) & self.decided.created - self.decided.deletion_asked)
        if not there:
            self.create()
            return
        name = self.rng.choice(there)
        todo: list[Callable[[], None]] = [
            self.create if len(there) < TOPICS_MAX else lambda: self.delete(name),
            lambda: self.delete(name),
            lambda: self.grow(name),
            lambda: self.write(name),
            lambda: self.set(configs.TOPIC, name, "retention.ms", TOPIC_MS),
            lambda: self.set(*self.rng.choice(SETTINGS)),
            self.commit,
            self.commit,
            self.delete_records,
            self.take_producer_id,
        ]
        self.rng.choice(todo)()

    # Each notes what it asks for before it asks, and what it was told after.

    def create(self) -> None:
        name, partitions = f"made-{self.names}", self.rng.randint(1, 3)
        self.names += 1
        self.decided.partitions[name] = number = Rising(0, partitions)
        # After an outage the client asks again, and is told that the first try did it.
        self._ask(lambda: topics.create(self.cluster, name, partitions=partitions), ErrorCode.TOPIC_ALREADY_EXISTS)
        number.acked = partitions
        self.decided.created.add(name)

    def delete(self, name: str) -> None:
        self.decided.deletion_asked.add(name)
        self._ask(lambda: topics.delete(self.cluster, name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.decided.deleted.add(name)

    def grow(self, name: str) -> None:
        number = self.decided.partitions[name]
        if number.acked < PARTITIONS_MAX:
            number.asked = number.acked + 1
            total = number.asked
            self._ask(lambda: topics.add_partitions(self.cluster, name, total), ErrorCode.INVALID_PARTITIONS)
            number.acked = number.asked

    def set(self, kind: int, name: str, key: str, first: int) -> None:
        number = self.decided.settings.setdefault((kind, name, key), Rising(0, first))
        number.asked += 1
        configs.alter(self.cluster, kind, name, set={key: str(number.asked)})
        number.acked = number.asked

    def commit(self) -> None:
        at = self.rng.choice(self.cut)
        number = self.decided.offsets.setdefault(at, Rising())
        number.asked += self.rng.randint(1, 10)
        groups.commit(self.cluster, OUTSIDE, {at: number.asked})
        number.acked = number.asked

    def delete_records(self) -> None:
        at = self.rng.choice(self.cut)
        ends = list_offsets(self.cluster, {at: LATEST})
        number = self.decided.starts.setdefault(at, Rising())
        number.asked = self.rng.randint(number.acked, ends[at].offset)
        topics.delete_records(self.cluster, {at: number.asked})
        number.acked = number.asked

    def take_producer_id(self) -> None:
        def attempt() -> int:
            request = InitProducerIdRequest(transactional_id=None)
            answer = self.cluster.any_node().call(request, InitProducerIdResponse)
            check_code(answer.error_code, "a producer id")
            return answer.producer_id

        self.decided.producer_ids.append(self.cluster.retry(attempt))

    def write(self, name: str) -> None:
        """A few records by a producer of their own."""
        writer = f"administrator-{self.values}"
        self.values += 1
        at = TopicPartition(name, self.rng.randrange(self.decided.partitions[name].acked))
        producer = Producer(self.cluster)
        sent = []
        for number in range(self.rng.randint(1, 5)):
            value = value_of(writer, number)
            self.load.ledger.sent[value] = at
            sent.append((value, producer.send(name, value, partition=at.partition)))
        producer.flush()
        self.load.ledger.acked += [Told(at, one.offset, value) for value, one in sent]

    def _ask(self, request: Callable[[], object], done_already: int) -> None:
        try:
            request()
        except BrokerError as error:
            if error.code != done_already:
                raise


def administer(load: Load, rng: random.Random, decided: Decided, cut: list[TopicPartition]) -> None:
    administrator = Administrator(load, rng, decided, cut)
    with administrator.cluster:
        while not load.stopped.is_set():
            administrator.step()
            load.stopped.wait(load.pause_s * rng.random())
