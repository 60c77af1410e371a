"""Single batches of an owner, in no transaction: each counts as a whole or not at all, and only of who has the id."""

from __future__ import annotations

import multiprocessing
from threading import Event, Thread

import pytest

from client.committed import values_of
from client.dying import DyingNetwork, InterruptedNetwork
from contract import TIMEOUT_S
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Record
from tidelog.control import owner as owners
from tidelog.control.owner import Owner
from tidelog.errors import OutcomeUnknown, PeerError, ProducerFenced, UsageError
from tidelog.testing.broker import TestBroker
from tidelog.wire.api import ApiKey

SIZE = 100  # of a few records, at most
STEPS_MAX = 60


def owner_of(cluster: Cluster, topic: str) -> Owner:
    return Owner(cluster, f"tidelog.store.{topic}")


def numbers(*some: int) -> list[Record]:
    return [(b"k", b"%d" % number, (), 1_700_000_000_000) for number in some]


def known(owner: Owner, at: TopicPartition) -> list[int]:
    return [int(row.value or b"") for row in owner.rows(at)]


def make(cluster: Cluster, topic: str) -> TopicPartition:
    topics.create(cluster, topic, partitions=1)
    return TopicPartition(topic, 0)


@proves("F2", "E4")
def test_a_batch_counts_by_itself_between_transactions_where_the_broker_knows_whose_the_id_is(
    cluster: Cluster, topic: str
) -> None:
    at, owner = make(cluster, topic), owner_of(cluster, topic)
    owner.begin([at])
    appended = owner.append(at, numbers(0, 1), SIZE)
    if not cluster.is_tidelog():
        assert appended is None, "it would fence nobody for sure"
        return
    with owner.transaction() as outgoing:
        outgoing.send(at, numbers(2))
    ends = [owner.append(at, numbers(3), SIZE), owner.append(at, numbers(4, 5), SIZE)]
    assert [values_of(cluster, at)] == [[b"0", b"1", b"2", b"3", b"4", b"5"]]
    rows = list(owner.rows(at))
    assert [appended, *ends] == [rows[1].offset + 1, rows[3].offset + 1, rows[5].offset + 1]
    assert owner.append(at, numbers(6), 1 << 30) is None, "more than a batch is for a transaction"
    with pytest.raises(ZeroDivisionError), owner.transaction() as outgoing:
        outgoing.send(at, numbers(77))
        raise ZeroDivisionError
    assert owner.append(at, numbers(6), SIZE) is not None
    assert known(owner, at) == [0, 1, 2, 3, 4, 5, 6]


@proves("F2", "E4")
def test_who_did_not_say_where_or_had_no_transaction_for_long_does_not_append(
    tidelog_broker: TestBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        at, owner = make(cluster, topic), owner_of(cluster, topic)
        owner.begin()
        assert owner.append(at, numbers(0), SIZE) is None
        owner.begin([at])
        monkeypatch.setattr(owners, "FORGETS_S", 0.0)
        assert owner.append(at, numbers(0), SIZE) is None
        with owner.transaction() as outgoing:
            outgoing.send(at, numbers(0))
        monkeypatch.setattr(owners, "FORGETS_S", 60.0)
        assert owner.append(at, numbers(1), SIZE) is not None
        assert known(owner, at) == [0, 1]


@proves("F2", "F3", "E4", "es.24")
def test_the_next_owner_reads_all_that_the_last_one_appended_and_nothing_comes_after(
    tidelog_broker: TestBroker, topic: str
) -> None:
    """The elder appends without a pause while the younger takes the id: wherever that falls, what is read is all."""
    acked: list[int] = []

    def append_on(begun: Event) -> None:
        with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
            owner = owner_of(cluster, topic)
            owner.begin([at])
            number = max(known(owner, at), default=-1) + 1
            begun.set()
            with pytest.raises(ProducerFenced):
                while True:
                    assert owner.append(at, numbers(number), SIZE) is not None
                    acked.append(number)
                    number += 1

    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        at = make(cluster, topic)
        for _ in range(15):
            begun = Event()
            elder = Thread(target=append_on, args=(begun,))
            elder.start()
            begun.wait(TIMEOUT_S)
            younger = owner_of(cluster, topic)
            younger.begin([at])
            read = known(younger, at)
            elder.join(TIMEOUT_S)
            assert known(younger, at) == read == list(range(len(read)))
            assert set(acked) <= set(read)
        assert acked


@proves("F2", "F3", "T6")
def test_an_owner_killed_at_each_step_of_an_append_is_followed_by_one_that_goes_on(
    tidelog_broker: TestBroker, topic: str
) -> None:
    at = TopicPartition(topic, 0)

    def go_on(cluster: Cluster) -> None:
        owner = owner_of(cluster, topic)
        owner.begin([at])
        first = len(known(owner, at))
        for number in (first, first + 1):
            assert owner.append(at, numbers(number), SIZE) is not None
        with owner.transaction() as outgoing:
            outgoing.send(at, numbers(first + 2))
        assert owner.append(at, numbers(first + 3), SIZE) is not None

    def instance(step: int) -> None:
        with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S, dial=DyingNetwork(step)) as dying:
            go_on(dying)

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
        found = [int(value) for value in values_of(cluster, at)]
        assert found == list(range(len(found)))
        assert len(found) > 4


@proves("F2", "F3", "T6")
@pytest.mark.parametrize("answered", [False, True], ids=["unsent", "answered"])
@pytest.mark.parametrize("in_time", [True, False], ids=["back in time", "back too late"])
def test_a_batch_whose_answer_is_lost_is_there_once_or_not_at_all(
    tidelog_broker: TestBroker, topic: str, answered: bool, in_time: bool
) -> None:
    def crash() -> None:
        tidelog_broker.kill()
        if in_time:
            tidelog_broker.start()

    network = InterruptedNetwork(ApiKey.PRODUCE, crash, answered=answered)
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S, dial=network) as cluster:
        at, owner = make(cluster, topic), owner_of(cluster, topic)
        owner.begin([at])
        if in_time:
            assert owner.append(at, numbers(0), SIZE) == next(iter(owner.rows(at))).offset + 1
        else:
            cluster.timeout_s = 0.2
            with pytest.raises((OutcomeUnknown, PeerError)):
                owner.append(at, numbers(0), SIZE)
            with pytest.raises(UsageError, match=r"not started; begin\(\)"):
                owner.append(at, numbers(1), SIZE)
            tidelog_broker.start()
            cluster.timeout_s = TIMEOUT_S
            owner.begin([at])
        there = known(owner, at)
        assert there == ([0] if answered or in_time else [])
        assert owner.append(at, numbers(len(there)), SIZE) is not None
        assert known(owner, at) == list(range(len(there) + 1))
