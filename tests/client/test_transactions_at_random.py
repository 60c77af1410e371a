"""Random transactions against a dictionary: whoever reads committed records sees what was committed, and no more.

Owners of one or two ids take turns, write to the same partitions, commit, abort, fail half way, hand over, are fenced
and die with a transaction open. The dictionary knows what each partition must show, in which order.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from client.committed import values_of
from contract import TIMEOUT_S, Broker
from proving import proves
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.transactions import Transactions, join
from tidelog.errors import BrokerError, ProducerFenced
from tidelog.record.columns import encode
from tries import tries

PARTITIONS = 3
NOWHERE = 99


class Step(NamedTuple):
    owner: int
    writes: list[tuple[int, int]]  # partition, how many
    how: str  # to write: send, batches, or by another that joins
    offsets: bool
    end: str


steps = st.builds(
    Step,
    owner=st.integers(0, 1),
    writes=st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.integers(1, 4)), max_size=4),
    how=st.sampled_from(["send", "batches", "join"]),
    offsets=st.booleans(),
    end=st.sampled_from(["commit", "commit", "commit", "abort", "fail", "die", "fenced"]),
)


class Run:
    """One topic, two transactional ids, and what must be seen."""

    def __init__(self, bootstrap: str, version: int) -> None:
        self.name = f"r-{uuid.uuid4().hex[:10]}"
        self.version = version
        self.cluster = Cluster(bootstrap, timeout_s=TIMEOUT_S)
        topics.create(self.cluster, self.name, partitions=PARTITIONS)
        self.owners = [self.successor(number) for number in range(2)]
        self.seen: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        self.offsets: dict[TopicPartition, int] = {}
        self.count = 0

    def successor(self, number: int) -> Transactions:
        owner = Transactions(self.cluster, f"{self.name}-{number}", version=self.version, batch_bytes=64)
        owner.start()
        return owner

    def take(self, step: Step) -> None:
        owner = self.owners[step.owner]
        owner.begin()
        written = self.write(owner, step)
        at = TopicPartition(self.name, step.owner)
        if step.offsets:
            owner.send_offsets(self.name, {at: self.count})
        if step.end == "commit":
            owner.commit()
            for index, values in written.items():
                self.seen[index] += values
            self.offsets.update({at: self.count} if step.offsets else {})
        elif step.end == "abort":
            owner.abort()
        elif step.end == "fail":
            owner.producer.send(self.name, b"nowhere", partition=NOWHERE)
            with pytest.raises(BrokerError):
                owner.producer.flush()
            owner.abort()
        else:
            self.owners[step.owner] = self.successor(step.owner)
            if step.end == "fenced" and any(written.values()):
                with pytest.raises(ProducerFenced):
                    owner.commit()

    def write(self, owner: Transactions, step: Step) -> dict[int, list[bytes]]:
        written: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        producer = join(self.cluster, owner.hand_over()) if step.how == "join" and step.writes else owner.producer
        for index, count in step.writes:
            values = [b"%d" % (self.count + number) for number in range(count)]
            self.count += count
            written[index] += values
            if step.how == "batches":
                owner.produce(TopicPartition(self.name, index), encode([(None, value, (), 0) for value in values]))
            else:
                for value in values:
                    producer.send(self.name, value, partition=index)
        producer.flush()
        return written

    def judge(self) -> None:
        for number in range(2):
            self.successor(number)  # so that nothing is open, or on its way to be seen
        for index, expected in self.seen.items():
            assert values_of(self.cluster, TopicPartition(self.name, index)) == expected
        committed = groups.committed(self.cluster, self.name)
        assert {at: one.offset for at, one in committed.items()} == self.offsets


@pytest.fixture(params=[2, 1], ids=["v2", "v1"])
def version(request: pytest.FixtureRequest) -> Iterator[int]:
    yield request.param


@proves("F2", "F3", "T10")
@pytest.mark.timeout(600)
def test_what_is_seen_is_what_was_committed(broker: Broker, version: int) -> None:
    @tries(5, suppress_health_check=list(HealthCheck))  # each writes a topic of its own
    @given(st.lists(steps, min_size=1, max_size=8))
    def at_random(taken: list[Step]) -> None:
        run = Run(broker.bootstrap, version)
        with run.cluster:
            for step in taken:
                run.take(step)
            run.judge()

    at_random()
