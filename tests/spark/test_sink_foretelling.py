"""Rows and mark in one request: what the mark foretells is what the answers say, or nothing of it counts. On Tidelog
and on Apache Kafka alike.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest

from client.committed import rows_of
from client.dying import WatchedTransport
from proving import proves
from spark.sinking import (
    QUERY,
    SOURCE,
    Died,
    MortalNetwork,
    PausedNetwork,
    committed,
    connected,
    last_mark,
    numbers_of,
    run,
    staged_numbers,
    up_to,
    writing_of,
)
from tidelog.client.address import Address
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.client.transactions import Transactions
from tidelog.client.transport import Transport, plain
from tidelog.control.marks import Sources, partition_of_marks
from tidelog.errors import BrokerError, DataLoss, ProducerFenced
from tidelog.spark import commit as committing
from tidelog.spark import late_reports
from tidelog.spark.commit import Kept, commit
from tidelog.spark.foretelling import REST_MAX, Outlook, missed
from tidelog.spark.foretelling import committed as after_commit
from tidelog.spark.staging import Stage
from tidelog.wire.api import ApiKey

STEPS_MAX = 60


class AllRequests:
    """A `Dial` that counts the requests of each API."""

    def __init__(self) -> None:
        self.seen: Counter[int] = Counter()

    def __call__(self, address: Address, timeout_s: float) -> Transport:
        return WatchedTransport(plain(address, timeout_s), self)

    def before(self, api_key: int) -> None:
        self.seen[api_key] += 1

    def after(self, _api_key: int, _await_answer: Callable[[], None]) -> None:
        pass


@pytest.fixture
def sink(cluster: Cluster, topic: str) -> str:
    topics.create(cluster, topic, partitions=3)
    return f"s-{topic}"


class Driver:
    """One process of a query, which keeps the sink's id from commit to commit."""

    def __init__(self, cluster: Cluster, mine: Cluster, topic: str, sink: str, **more: object) -> None:
        self.kept: Kept = {}
        self._cluster, self._mine, self._topic, self._sink, self._more = cluster, mine, topic, sink, more

    def commit(self, batch: int, numbers: list[int] | None = None) -> bool:
        wanted = numbers_of(batch) if numbers is None else numbers
        stages = staged_numbers(self._cluster, self._topic, self._sink, wanted, tasks=1)
        writing = writing_of(self._sink, batch, self._topic, **self._more)
        return commit(self._mine, writing, stages, lambda: connected(self._cluster), self.kept)

    @property
    def outlook(self) -> Outlook:
        return self.kept[self._sink].outlook


def ends_in(cluster: Cluster, topic: str) -> dict[TopicPartition, int]:
    """Behind the last committed row of each partition."""
    return {at: rows[-1].offset + 1 if (rows := rows_of(cluster, at)) else 0 for at in cluster.partitions(topic)}


# One request ----------------------------------------------------------------------------------------------------------


@proves("eo.3", "eo.5", "T10")
def test_a_driver_that_goes_on_has_two_requests_a_commit(cluster: Cluster, topic: str, sink: str) -> None:
    """One that produces rows and mark, one that ends the transaction; of topics it has asked a moment ago."""
    network = AllRequests()
    with connected(cluster, network) as mine:  # type: ignore[arg-type]
        driver = Driver(cluster, mine, topic, sink)
        assert driver.commit(0) and driver.commit(1)
        for batch in range(2, 6):
            mine_before = Counter(network.seen)
            known = driver.kept[sink].known
            driver.kept[sink] = driver.kept[sink]._replace(known=known._replace(at=time.monotonic()))
            assert driver.commit(batch)
            sent = network.seen - mine_before
            del sent[ApiKey.ADD_PARTITIONS_TO_TXN]  # of transaction version 1
            again = sent[ApiKey.PRODUCE] - 1  # Apache Kafka may still be busy with the end of the last one
            assert sent == {ApiKey.PRODUCE: 1 + again, ApiKey.END_TXN: 1}
            assert last_mark(cluster, sink).ends == ends_in(cluster, topic)
    assert committed(cluster, topic) == up_to(6)


@proves("eo.3", "T10")
def test_marks_are_the_same_whether_foretold_or_not(
    cluster: Cluster, topic: str, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sinks, two topics, the same rows: one driver keeps what it knows, the other one writes in turn."""
    other = f"{topic}-in-turn"
    topics.create(cluster, other, partitions=3)
    with connected(cluster) as mine, connected(cluster) as theirs:
        together, in_turn = Driver(cluster, mine, topic, sink), Driver(cluster, theirs, other, f"{sink}-t")
        for batch in range(5):
            assert together.commit(batch, numbers_of(batch)[: 1 + batch * 3])
            with monkeypatch.context() as turned:
                turned.setattr(committing, "together", lambda stages: None)
                assert in_turn.commit(batch, numbers_of(batch)[: 1 + batch * 3])
            one, two = last_mark(cluster, sink), last_mark(cluster, f"{sink}-t")
            assert [*one.ends.values()] == [*two.ends.values()]
            assert (one.batch_id, one.query_id, one.sources) == (two.batch_id, two.query_id, two.sources)
    for at in cluster.partitions(topic):
        rows = [(row.offset, row.key, row.value) for row in rows_of(cluster, at)]
        assert rows == [
            (row.offset, row.key, row.value) for row in rows_of(cluster, TopicPartition(other, at.partition))
        ]
    assert together.outlook.misses == 0


# Foretold wrongly -----------------------------------------------------------------------------------------------------


@proves("eo.3", "eo.5", "F2", "T10")
def test_another_writer_makes_it_abort_and_write_again(cluster: Cluster, topic: str, sink: str) -> None:
    with connected(cluster) as mine:
        driver = Driver(cluster, mine, topic, sink)
        assert driver.commit(0) and driver.commit(1)
        with Producer(cluster) as another:
            for at in cluster.partitions(topic):
                another.send(topic, b"-7", key=b"another's", partition=at.partition)
        assert driver.commit(2)
        assert driver.outlook.misses == 1
        assert last_mark(cluster, sink).ends == ends_in(cluster, topic)
        for batch in range(3, 8):  # some in turn, then foretold again
            assert driver.commit(batch)
            assert last_mark(cluster, sink).ends == ends_in(cluster, topic)
        assert driver.outlook.misses == 1 and not driver.outlook.rest
    assert committed(cluster, topic) == [-7] * 3 + up_to(8)


@proves("eo.3", "eo.5", "F2", "T10")
def test_an_aborted_transaction_makes_it_abort_and_write_again(cluster: Cluster, topic: str, sink: str) -> None:
    with connected(cluster) as mine:
        driver = Driver(cluster, mine, topic, sink)
        assert driver.commit(0) and driver.commit(1)
        with Transactions(cluster, f"{sink}-others") as other:
            other.begin()
            for at in cluster.partitions(topic):
                other.producer.send(topic, b"never", partition=at.partition)
            other.producer.flush()
            other.abort()
        assert driver.commit(2)
        assert driver.outlook.misses == 1
        assert last_mark(cluster, sink).ends == ends_in(cluster, topic)
        assert [row.key for row in rows_of(cluster, partition_of_marks(sink))] == [sink.encode()] * 3
    assert committed(cluster, topic) == up_to(3)


@proves("eo.3", "eo.5", "F2", "T10")
def test_one_that_writes_between_the_foretelling_and_the_rows_is_noticed(
    cluster: Cluster, topic: str, sink: str
) -> None:
    def write() -> None:
        with Producer(cluster) as another:
            for at in cluster.partitions(topic):
                another.send(topic, b"-7", key=b"another's", partition=at.partition)

    with connected(cluster) as first:
        assert Driver(cluster, first, topic, sink).commit(0)
    network = PausedNetwork(ApiKey.PRODUCE, write)
    with connected(cluster, network) as mine:
        driver = Driver(cluster, mine, topic, sink)  # which asks where partitions end, before it stands still
        assert driver.commit(1)
        assert network.paused and driver.outlook.misses == 1
    assert last_mark(cluster, sink).ends == ends_in(cluster, topic)
    assert committed(cluster, topic) == [-7] * 3 + up_to(2)


@proves("eo.5", "F2", "F3", "T10")
@pytest.mark.parametrize(
    "wrongly",
    [pytest.param(False, marks=pytest.mark.full, id="as foretold"), pytest.param(True, id="foretold wrongly")],
)
@pytest.mark.slow
def test_a_driver_may_die_at_any_step_of_what_it_writes_together(
    cluster: Cluster, topic: str, sink: str, wrongly: bool
) -> None:
    """Also while it aborts what was foretold wrongly, and while it writes it again."""
    others = 0
    for batch in count():
        network = MortalNetwork(1_000_000)
        died = False
        try:
            with connected(cluster, network) as mortal:
                driver = Driver(cluster, mortal, topic, sink)
                assert driver.commit(2 * batch)
                if wrongly:
                    driver.kept[sink] = driver.kept[sink]._replace(outlook=Outlook(driver.outlook.next))
                    with Producer(cluster) as another:
                        for at in cluster.partitions(topic):
                            another.send(topic, b"-7", key=b"another's", partition=at.partition)
                    others += 3
                network._left = batch + 1
                driver.commit(2 * batch + 1)
        except Died:
            died = True
        run(cluster, topic, sink, 2 * batch + 1)
        assert last_mark(cluster, sink).ends == ends_in(cluster, topic)
        if not died:
            break
        assert batch < STEPS_MAX
    assert batch > (6 if wrongly else 3), "it has more steps than that"
    assert committed(cluster, topic) == [-7] * others + up_to(2 * batch + 2)


@proves("eo.5", "F3", "T10")
def test_a_driver_that_was_succeeded_is_fenced_when_it_writes_together(cluster: Cluster, topic: str, sink: str) -> None:
    with connected(cluster) as mine:
        driver = Driver(cluster, mine, topic, sink)
        assert driver.commit(0)
        assert run(cluster, topic, sink, 1)
        assert not driver.commit(1), "it finds the successor's mark"
        network = PausedNetwork(ApiKey.END_TXN, lambda: [run(cluster, topic, sink, batch) for batch in (2, 3)])
    with connected(cluster, network) as zombie:
        late = Driver(cluster, zombie, topic, sink)
        with pytest.raises((ProducerFenced, BrokerError)):
            late.commit(2)
    assert committed(cluster, topic) == up_to(4)


@proves("eo.6", "T10")
def test_a_target_that_was_made_anew_is_not_written_together(cluster: Cluster, topic: str, sink: str) -> None:
    """Also where the driver has asked for it a moment ago."""
    with connected(cluster) as mine:
        driver = Driver(cluster, mine, topic, sink, marked=True)
        assert driver.commit(0) and driver.commit(1)
        topics.delete(cluster, topic)
        cluster.wait_until(lambda: topic not in topics.names(cluster))
        topics.create(cluster, topic, partitions=3)
        known = driver.kept[sink].known
        driver.kept[sink] = driver.kept[sink]._replace(known=known._replace(at=time.monotonic()))
        with pytest.raises(DataLoss, match="was deleted and created again after micro-batch 1"):
            driver.commit(2)
    assert committed(cluster, topic) == []


@proves("eo.3")
def test_after_a_miss_it_writes_in_turn_for_a_while() -> None:
    at = TopicPartition("t", 0)
    outlook, rests = after_commit(Outlook(), {at: 5}), []
    assert outlook.next == {at: 6}, "the marker has an offset, too"
    for _ in range(12):
        outlook = missed(outlook)
        assert not outlook.next
        rests.append(outlook.rest)
        for _ in range(outlook.rest):
            outlook = after_commit(outlook, {at: 5})
        assert not outlook.rest
    assert rests[:3] == [2, 4, 8] and rests[-1] == REST_MAX


# The group's offsets --------------------------------------------------------------------------------------------------


@proves("eo.11", "T10")
def test_source_offsets_are_told_once_a_second_and_when_commits_end(
    cluster: Cluster, topic: str, sink: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(cluster, f"{topic}-source", partitions=1)
    source = TopicPartition(f"{topic}-source", 0)
    network = AllRequests()
    reports = late_reports.LateReports()
    monkeypatch.setattr(committing, "LATE_REPORTS", reports)

    def told() -> int:
        return groups.committed(cluster, group)[source].offset

    with connected(cluster, network) as mine:  # type: ignore[arg-type]
        kept: Kept = {}
        first = 0
        for batch in range(5):
            sources = Sources({SOURCE: 5, source: 10 * batch})
            writing = writing_of(sink, batch, topic, group=group, sources=sources, report_every_s=3600.0)
            stages = [Stage(QUERY, 0)]
            assert commit(mine, writing, stages, lambda: connected(cluster), kept)
            first = first or network.seen[ApiKey.TXN_OFFSET_COMMIT]  # Apache Kafka may be asked again
        assert network.seen[ApiKey.TXN_OFFSET_COMMIT] == first > 0
        cluster.wait_until(lambda: bool(groups.committed(cluster, group)))
        assert told() == 0, "of the first commit"
        reports.flush()
        assert told() == 40, "of the last"
        every = writing_of(sink, 5, topic, group=group, sources=Sources({source: 50}))
        assert commit(mine, every, [], lambda: connected(cluster), kept)
        cluster.wait_until(lambda: told() == 50)
        reports.flush()
        assert told() == 50, "nothing older is told after it"
