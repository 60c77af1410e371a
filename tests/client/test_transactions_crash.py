"""Transactions when somebody dies: the client at each of its requests, the broker between two steps or in one of them.

Every instance goes on where the offset of its group says. Whatever happened before it, what counts in the end is every
number once, in order, in both partitions.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest

from against.apache_kafka import ApacheKafka, Missing
from client.committed import values_of
from client.dying import DyingNetwork, InterruptedNetwork
from client.faults import BreakingNetwork
from contract import TIMEOUT_S, Broker
from proving import proves
from tidelog.client.admin import groups, topics
from tidelog.client.admin.transactions import describe
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.transactions import State, Transactions
from tidelog.errors import Disconnected, OutcomeUnknown, ProducerFenced
from tidelog.record.columns import encode
from tidelog.testing.broker import TestBroker
from tidelog.wire.api import ApiKey

NUMBERS = 3  # in a transaction
STEPS_MAX = 80
VERSIONS = pytest.mark.parametrize("version", [2, 1], ids=["v2", "v1"])


def owner_of(cluster: Cluster, topic: str, version: int) -> Transactions:
    return Transactions(cluster, f"id-{topic}", version=version)


def source_of(topic: str) -> TopicPartition:
    """Only its offsets are of interest."""
    return TopicPartition(topic, 2)


def next_number(cluster: Cluster, topic: str) -> int:
    found = groups.committed(cluster, topic).get(source_of(topic))
    return 0 if found is None else found.offset


def write(owner: Transactions, topic: str, first: int) -> None:
    for number in range(first, first + NUMBERS):
        for partition in range(2):
            owner.producer.send(topic, b"%d" % number, partition=partition)
    owner.producer.flush()
    owner.send_offsets(topic, {source_of(topic): first + NUMBERS})


def work(cluster: Cluster, topic: str, version: int) -> None:
    """One instance, one transaction."""
    owner = owner_of(cluster, topic, version)
    owner.start()
    first = next_number(cluster, topic)
    with owner.transaction():
        write(owner, topic, first)


def judge(cluster: Cluster, topic: str, version: int) -> int:
    """Returns how many numbers count, when what the last instance left is ended."""
    owner_of(cluster, topic, version).start()
    count = next_number(cluster, topic)
    for partition in range(2):
        values = values_of(cluster, TopicPartition(topic, partition))
        assert values == [b"%d" % number for number in range(count)]
    return count


def die_working(bootstrap: str, topic: str, version: int, step: int) -> bool:
    """Whether it died; there are not so many steps where it did not."""

    def instance() -> None:
        with Cluster(bootstrap, timeout_s=TIMEOUT_S, dial=DyingNetwork(step)) as cluster:
            work(cluster, topic, version)

    process = multiprocessing.get_context("fork").Process(target=instance)
    process.start()
    process.join(TIMEOUT_S)
    assert process.exitcode in (0, -9)
    return process.exitcode != 0


@proves("F2", "F3", "T6")
@VERSIONS
@pytest.mark.timeout(600)
def test_a_client_dies_at_each_of_its_requests_and_its_successor_goes_on(
    broker: Broker, cluster: Cluster, topic: str, version: int
) -> None:
    topics.create(cluster, topic, partitions=3)
    steps = next(step for step in range(1, STEPS_MAX) if not die_working(broker.bootstrap, topic, version, step))
    assert steps > 10, "each request is two steps"
    # Those that died after the coordinator had their end count, and the one that lived.
    assert judge(cluster, topic, version) >= 2 * NUMBERS


@proves("F2", "T6")
@VERSIONS
@pytest.mark.timeout(600)
def test_the_broker_dies_between_any_two_steps_and_the_client_goes_on(
    tidelog_broker: TestBroker, topic: str, version: int
) -> None:
    def nothing() -> None:
        pass

    def crash() -> None:
        tidelog_broker.kill()
        tidelog_broker.start()

    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        topics.create(cluster, topic, partitions=3)
        owner = owner_of(cluster, topic, version)
        owner.start()
        for place in range(4):
            acts: list[Callable[[], None]] = [nothing] * 4
            acts[place] = crash
            first = next_number(cluster, topic)
            acts[0]()
            owner.begin()
            owner.producer.send(topic, b"%d" % first, partition=0)
            owner.producer.send(topic, b"%d" % first, partition=1)
            owner.producer.flush()
            acts[1]()
            owner.send_offsets(topic, {source_of(topic): first + 1})
            acts[2]()
            owner.commit()
            acts[3]()
            assert judge_without_taking(owner, cluster, topic) == first + 1


def judge_without_taking(owner: Transactions, cluster: Cluster, topic: str) -> int:
    """As `judge`, by the owner that lives on: an empty start of its own has markers and offsets waited for."""
    owner.start()
    count = next_number(cluster, topic)
    for partition in range(2):
        assert values_of(cluster, TopicPartition(topic, partition)) == [b"%d" % number for number in range(count)]
    return count


@proves("F2", "F3", "T6")
@VERSIONS
@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN])
@pytest.mark.parametrize("answered", [False, True], ids=["unsent", "answered"])
def test_the_broker_dies_with_a_request_on_its_way(
    tidelog_broker: TestBroker, topic: str, version: int, api_key: int, answered: bool
) -> None:
    def crash() -> None:
        tidelog_broker.kill()
        tidelog_broker.start()

    network = InterruptedNetwork(api_key, crash, answered=answered)
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S, dial=network) as cluster:
        topics.create(cluster, topic, partitions=3)
        for _ in range(2):
            work(cluster, topic, version)
        assert judge(cluster, topic, version) == 2 * NUMBERS


@proves("F2", "F3", "T10")
@pytest.mark.external
@pytest.mark.timeout(600)
def test_apache_kafka_dies_with_a_commit_on_its_way(tmp_path: Path, topic: str) -> None:
    """What its coordinator says is looked at, not what is seen: Kafka 4.3 was seen to come back without the markers of
    a transaction that it calls CompleteCommit.
    """
    try:
        kafka = ApacheKafka(tmp_path / "kafka").start()
    except Missing as missing:
        pytest.skip(str(missing))

    def crash() -> None:
        kafka.kill()
        kafka.start()

    rounds = ((2, True), (1, True), (2, False))
    try:
        with Cluster(kafka.bootstrap, timeout_s=TIMEOUT_S) as calm:
            topics.create(calm, topic, partitions=1)
            for number, (version, answered) in enumerate(rounds):
                network = InterruptedNetwork(ApiKey.END_TXN, crash, answered=answered)
                with Cluster(kafka.bootstrap, timeout_s=TIMEOUT_S, dial=network) as cluster:
                    owner = owner_of(cluster, topic, version)
                    owner.start()
                    with owner.transaction() as producer:
                        producer.send(topic, b"%d" % number, partition=0)
                    assert describe(cluster, owner.transactional_id).state in ("PrepareCommit", "CompleteCommit")
            written = values_of(calm, TopicPartition(topic, 0), read_committed=False)
            assert written == [b"%d" % number for number in range(len(rounds))]
    finally:
        kafka.kill()


@proves("F2", "F3", "T10")
@VERSIONS
@pytest.mark.timeout(600)
def test_lost_requests_and_answers_change_nothing(broker: Broker, topic: str, version: int) -> None:
    network = BreakingNetwork(seed=5, rate=0.15)
    with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S, dial=network) as cluster:
        topics.create(cluster, topic, partitions=3)
        owner = owner_of(cluster, topic, version)
        owner.start()
        network.armed = True
        for number in range(20):
            with owner.transaction() as producer:
                for partition in range(2):
                    producer.send(topic, b"%d" % number, partition=partition)
                owner.send_offsets(topic, {source_of(topic): number + 1})
        network.armed = False
        assert {"send", "answer"} <= set(network.broken)
        assert judge(cluster, topic, version) == 20


@proves("F2", "T10")
@VERSIONS
@pytest.mark.parametrize("answered", [False, True], ids=["unsent", "answered"])
def test_a_batch_of_unknown_outcome_is_not_sent_again_after_an_abort(
    broker: Broker, topic: str, version: int, answered: bool
) -> None:
    """It would count with the next transaction."""
    network = InterruptedNetwork(ApiKey.PRODUCE, lambda: None, answered=answered)
    with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S, dial=network) as cluster:
        topics.create(cluster, topic, partitions=1)
        at = TopicPartition(topic, 0)
        owner = owner_of(cluster, topic, version)
        owner.start()
        owner.begin()
        owner.produce(at, encode([(None, b"not this", (), 0)]))
        owner.abort()
        with owner.transaction():
            owner.produce(at, encode([(None, b"next", (), 0)]))
        assert values_of(cluster, at) == [b"next"]


@proves("F2", "T10")
@VERSIONS
@pytest.mark.parametrize("committed", [True, False], ids=["committed", "aborted"])
def test_when_another_owner_began_before_the_answer_to_a_commit_nobody_knows(
    broker: Broker, topic: str, version: int, committed: bool
) -> None:
    """Whether the coordinator had the commit before, the owner cannot tell; what is there can be looked at."""
    with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S) as other:
        topics.create(other, topic, partitions=3)

        def take() -> None:
            owner_of(other, topic, version).start()

        network = InterruptedNetwork(ApiKey.END_TXN, take, answered=committed)
        with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S, dial=network) as cluster:
            owner = owner_of(cluster, topic, version)
            owner.start()
            owner.begin()
            write(owner, topic, 0)
            with pytest.raises(OutcomeUnknown, match="another owner began since; look whether") as said:
                owner.commit()
            assert isinstance(said.value.__cause__, ProducerFenced)
            assert owner.state is State.FENCED
        assert judge(other, topic, version) == (NUMBERS if committed else 0)


@proves("F2", "T6")
@VERSIONS
@pytest.mark.parametrize("answered", [False, True], ids=["unsent", "answered"])
def test_a_commit_that_nobody_answers_in_time_is_asked_for_again(
    tidelog_broker: TestBroker, topic: str, version: int, answered: bool
) -> None:
    network = InterruptedNetwork(ApiKey.END_TXN, tidelog_broker.kill, answered=answered)
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S, dial=network) as cluster:
        topics.create(cluster, topic, partitions=3)
        owner = owner_of(cluster, topic, version)
        owner.start()
        owner.begin()
        write(owner, topic, 0)
        cluster.timeout_s = 0.5
        with pytest.raises(OutcomeUnknown, match=r"commit\(\) again"):
            owner.commit()
        assert owner.state is State.ENDING
        tidelog_broker.start()
        cluster.timeout_s = TIMEOUT_S
        owner.commit()
        with owner.transaction():
            write(owner, topic, NUMBERS)
        assert judge(cluster, topic, version) == 2 * NUMBERS


@proves("F2", "T6")
@VERSIONS
def test_an_abort_that_nobody_answers_in_time_is_asked_for_again(
    tidelog_broker: TestBroker, topic: str, version: int
) -> None:
    network = InterruptedNetwork(ApiKey.END_TXN, tidelog_broker.kill, answered=True)
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S, dial=network) as cluster:
        topics.create(cluster, topic, partitions=3)
        owner = owner_of(cluster, topic, version)
        owner.start()
        owner.begin()
        write(owner, topic, 0)
        cluster.timeout_s = 0.5
        with pytest.raises(Disconnected):
            owner.abort()
        tidelog_broker.start()
        cluster.timeout_s = TIMEOUT_S
        owner.abort()
        with owner.transaction():
            write(owner, topic, 0)
        assert judge(cluster, topic, version) == NUMBERS
