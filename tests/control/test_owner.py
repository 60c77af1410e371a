"""An owner of topics: what it knows is a position in a topic of its own, and each number counts once, whoever dies."""

from __future__ import annotations

import multiprocessing
import tracemalloc
from collections.abc import Iterable

import pytest

import tidelog
from client.committed import rows_of, values_of
from client.dying import DyingNetwork, InterruptedNetwork
from contract import TIMEOUT_S
from proving import proves
from tidelog.client.admin import topics, transactions
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import GATHERED_BYTES_MAX, Producer, Record
from tidelog.client.transactions import Transactions
from tidelog.control.owner import Outgoing, Owner
from tidelog.errors import (
    BrokerError,
    OpenTransaction,
    OutcomeUnknown,
    ProducerFenced,
    TransactionTimedOut,
    UsageError,
)
from tidelog.record.codec import scan
from tidelog.testing.broker import TestBroker
from tidelog.wire.api import ApiKey
from tidelog.wire.error_code import ErrorCode

POSITION = b"shop"
STEPS_MAX = 60
VERSIONS = pytest.mark.parametrize("version", [2, 1], ids=["v2", "v1"])


def owner_of(cluster: Cluster, topic: str, version: int | None = None, **settings: int) -> Owner:
    return Owner(cluster, f"tidelog.capture.{topic}", version=version, **settings)


def targets(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, 0), TopicPartition(topic, 1)]


def positions(topic: str) -> TopicPartition:
    return TopicPartition(f"{topic}.positions", 0)


def make(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=2)
    topics.create(cluster, positions(topic).topic, partitions=1, configs={"cleanup.policy": "compact"})


def record(value: bytes, key: bytes | None = None) -> Record:
    return key, value, (), 1_700_000_000_000


def position(owner: Owner, topic: str) -> int:
    return max((int(row.value or b"") for row in owner.rows(positions(topic)) if row.key == POSITION), default=0)


def send(outgoing: Outgoing, topic: str, number: int) -> None:
    for at in targets(topic):
        outgoing.send(at, [record(b"%d" % number)])
    outgoing.send(positions(topic), [record(b"%d" % (number + 1), POSITION)])


def capture(owner: Owner, topic: str, up_to: int | None = None) -> None:
    """As a process does it: begins, reads how far it was, and goes on."""
    owner.begin()
    first = position(owner, topic)
    for number in range(first, first + 1 if up_to is None else up_to):
        with owner.transaction() as outgoing:
            send(outgoing, topic, number)


def judge(cluster: Cluster, topic: str, version: int | None = None) -> int:
    """How many numbers count: each once and in order, in all partitions, and as many as the position says."""
    owner = owner_of(cluster, topic, version)
    owner.begin()
    count = position(owner, topic)
    for at in targets(topic):
        assert values_of(cluster, at) == [b"%d" % number for number in range(count)]
    return count


@proves("F2", "T10")
def test_what_one_transaction_sends_counts_in_all_topics_and_its_ends_are_told(cluster: Cluster, topic: str) -> None:
    make(cluster, topic)
    owner = owner_of(cluster, topic)
    owner.begin()
    with owner.transaction() as first:
        send(first, topic, 0)
    with pytest.raises(ZeroDivisionError), owner.transaction() as outgoing:
        send(outgoing, topic, 77)
        raise ZeroDivisionError
    with owner.transaction() as second:
        send(second, topic, 1)
    assert judge(cluster, topic) == 2
    for outgoing, count in ((first, 1), (second, 2)):
        for at, end in outgoing.ends.items():
            below = [row for row in rows_of(cluster, at) if row.offset < end]
            assert (len(below), below[-1].offset) == (count, end - 1)
    assert set(first.ends) == {*targets(topic), positions(topic)}


@proves("F2", "T10")
@VERSIONS
def test_of_two_owners_of_one_id_the_first_is_told_and_nothing_of_its_open_transaction_counts(
    cluster: Cluster, topic: str, version: int
) -> None:
    make(cluster, topic)
    old, new = owner_of(cluster, topic, version), owner_of(cluster, topic, version)
    capture(old, topic, 2)
    with pytest.raises(ProducerFenced, match="another owner began"), old.transaction() as outgoing:
        send(outgoing, topic, 77)
        new.begin()
        assert position(new, topic) == 2
    with pytest.raises(UsageError, match=r"its transaction is fenced; begin\(\) takes the id"), old.transaction():
        pass
    with new.transaction() as outgoing:
        send(outgoing, topic, 2)
    capture(old, topic, 4)  # it took the id back, and reads what the other one wrote
    with pytest.raises(ProducerFenced), new.transaction() as outgoing:
        send(outgoing, topic, 77)
    assert judge(cluster, topic, version) == 4


@proves("F2", "F3", "T6")
@VERSIONS
def test_an_owner_killed_at_each_of_its_steps_is_followed_by_one_that_goes_on(
    tidelog_broker: TestBroker, topic: str, version: int
) -> None:
    def instance(step: int) -> None:
        with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S, dial=DyingNetwork(step)) as dying:
            capture(owner_of(dying, topic, version), topic)

    def died(step: int) -> bool:
        process = multiprocessing.get_context("fork").Process(target=instance, args=(step,))
        process.start()
        process.join(TIMEOUT_S)
        assert process.exitcode in (0, -9)
        return process.exitcode != 0

    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        make(cluster, topic)
        steps = next(step for step in range(1, STEPS_MAX) if not died(step))
        assert steps > 10, "each request is two steps"
        # Those that died after the coordinator had their end count, and the one that lived.
        assert judge(cluster, topic, version) >= 2


@proves("F2", "T6")
@VERSIONS
@pytest.mark.parametrize("place", range(4))
def test_a_broker_restarted_in_a_transaction_is_waited_for(
    tidelog_broker: TestBroker, topic: str, version: int, place: int
) -> None:
    def crash_at(here: int) -> None:
        if here == place:
            tidelog_broker.kill()
            tidelog_broker.start()

    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        make(cluster, topic)
        owner = owner_of(cluster, topic, version, batch_bytes=1)  # every record goes out at once
        owner.begin()
        crash_at(0)
        with owner.transaction() as outgoing:
            outgoing.send(targets(topic)[0], [record(b"0")])
            crash_at(1)
            outgoing.send(targets(topic)[1], [record(b"0")])
            crash_at(2)
            outgoing.send(positions(topic), [record(b"1", POSITION)])
            crash_at(3)
        with owner.transaction() as outgoing:
            send(outgoing, topic, 1)
        assert judge(cluster, topic, version) == 2


@proves("F2", "F3", "T6")
@VERSIONS
@pytest.mark.parametrize("answered", [False, True], ids=["unsent", "answered"])
def test_a_commit_whose_answer_is_lost_is_told_by_reading(
    tidelog_broker: TestBroker, topic: str, version: int, answered: bool
) -> None:
    """The broker dies with it, and does not come back in time."""
    network = InterruptedNetwork(ApiKey.END_TXN, tidelog_broker.kill, answered=answered)
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S, dial=network) as cluster:
        make(cluster, topic)
        owner = owner_of(cluster, topic, version)
        owner.begin()
        with pytest.raises(OutcomeUnknown), owner.transaction() as outgoing:
            send(outgoing, topic, 0)
            outgoing._transactions.producer.flush()
            cluster.timeout_s = 0.2
        with pytest.raises(UsageError, match=r"being committed; begin\(\)"), owner.transaction():
            pass
        tidelog_broker.start()
        cluster.timeout_s = TIMEOUT_S
        owner.begin()
        assert position(owner, topic) == answered
        with owner.transaction() as outgoing:
            send(outgoing, topic, int(answered))
        assert judge(cluster, topic, version) == 1 + answered


@proves("F2", "T6")
def test_an_abort_that_is_not_answered_asks_for_begin(tidelog_broker: TestBroker, topic: str) -> None:
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        make(cluster, topic)
        owner = owner_of(cluster, topic, batch_bytes=1)
        owner.begin()
        with pytest.raises(ZeroDivisionError) as said, owner.transaction() as outgoing:
            outgoing.send(targets(topic)[0], [record(b"77")])
            tidelog_broker.kill()
            cluster.timeout_s = 0.2
            raise ZeroDivisionError
        assert any("was not aborted either" in note for note in said.value.__notes__)
        with pytest.raises(UsageError, match=r"its transaction is open; begin\(\)"), owner.transaction():
            pass
        tidelog_broker.start()
        cluster.timeout_s = TIMEOUT_S
        capture(owner, topic)
        assert judge(cluster, topic) == 1


@proves("F2", "T10")
def test_what_a_broker_refuses_is_raised_by_the_next_send_with_its_code_and_the_owner_goes_on(
    cluster: Cluster, topic: str
) -> None:
    make(cluster, topic)
    owner = owner_of(cluster, topic, batch_bytes=1)
    owner.begin()
    sent = 0

    def endless() -> Iterable[Record]:
        nonlocal sent
        while True:
            sent += 1
            yield record(b"77")

    with pytest.raises(BrokerError, match="has partitions 0 to 1") as said, owner.transaction() as outgoing:
        outgoing.send(TopicPartition(topic, 17), endless())
    assert said.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert sent < 5, "it is known when the next ones are to go out"
    capture(owner, topic)
    assert judge(cluster, topic) == 1


@proves("F2", "T10")
def test_an_owner_does_not_make_a_topic_that_does_not_exist(cluster: Cluster, topic: str) -> None:
    owner = owner_of(cluster, topic)
    owner.begin()
    assert list(owner.rows(positions(topic))) == []
    with pytest.raises(BrokerError) as said, owner.transaction() as outgoing:
        outgoing.send(TopicPartition(topic, 0), [record(b"77")])
    assert said.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic not in topics.names(cluster)


@proves("F3", "T10")
@VERSIONS
def test_a_transaction_that_is_open_for_too_long_is_told_from_one_that_was_fenced(topic: str, version: int) -> None:
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50}
    with tidelog.Broker(settings=often) as broker, Cluster(broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        make(cluster, topic)
        owner = owner_of(cluster, topic, version, timeout_ms=300, batch_bytes=1)
        owner.begin()
        said = r"took .* since its timeout_ms is 300; nothing of it counts"
        with pytest.raises(TransactionTimedOut, match=said), owner.transaction() as outgoing:
            send(outgoing, topic, 77)
            outgoing._transactions.producer.flush()
            cluster.wait_until(lambda: not transactions.open_in(cluster, targets(topic)))
        capture(owner, topic)
        assert judge(cluster, topic, version) == 1


@proves("F2", "T10")
def test_rows_behind_somebody_elses_open_transaction_are_waited_for_and_not_left_out(
    cluster: Cluster, topic: str
) -> None:
    make(cluster, topic)
    stranger = Transactions(cluster, f"stranger-{topic}")
    stranger.start()
    stranger.begin()
    stranger.producer.send(positions(topic).topic, b"0", key=b"other", partition=0)
    stranger.producer.flush()
    owner = owner_of(cluster, topic)
    owner.begin()
    with owner.transaction() as outgoing:
        send(outgoing, topic, 0)
    cluster.timeout_s = 0.2
    with pytest.raises(OpenTransaction, match="`tidelog transactions` shows which"):
        position(owner, topic)
    cluster.timeout_s = TIMEOUT_S
    stranger.abort()
    assert position(owner, topic) == 1


@proves("F2", "hostile")
def test_rows_of_many_topics_go_out_before_they_are_too_many_together(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a thousand topics with less than a batch each would all wait in memory."""
    monkeypatch.setattr("tidelog.client.producer.GATHERED_BYTES_MAX", 1000)
    assert GATHERED_BYTES_MAX < 64 << 20
    topics.create(cluster, topic, partitions=50)
    gathered = Producer(cluster)
    for number in range(200):
        gathered.send(topic, b"x" * 100, partition=number % 50)
        assert gathered._gathered_bytes < 1000
        assert gathered._gathered_bytes == sum(one.size for one in gathered._gathered.values())
    gathered.flush()
    assert sum(len(rows_of(cluster, TopicPartition(topic, partition))) for partition in range(50)) == 200


@proves("F2", "perf")
@pytest.mark.slow
def test_a_long_transaction_takes_the_memory_of_a_few_batches(tidelog_broker: TestBroker, topic: str) -> None:
    rows, batch_bytes = 40_000, 16 << 10
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        topics.create(cluster, topic, partitions=1)
        at = TopicPartition(topic, 0)
        owner = owner_of(cluster, topic, batch_bytes=batch_bytes)
        owner.begin()
        tracemalloc.start()
        try:
            with owner.transaction() as outgoing:
                outgoing.send(at, (record(b"%0100d" % number) for number in range(rows)))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert outgoing.ends == {at: rows}
        assert peak < rows * 100 / 4, "a quarter of what was sent"
        assert _batches(cluster, at) < 2 * rows * 100 / batch_bytes


def _batches(cluster: Cluster, at: TopicPartition) -> int:
    consumer = Consumer(cluster, max_wait_ms=0)
    consumer.assign({at: 0})
    count = 0
    while fetched := consumer.fetch():
        count += sum(len(scan(one.batches).headers) for one in fetched)
    return count
