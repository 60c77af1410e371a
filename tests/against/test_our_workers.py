"""Our share reader and our workers, on Tidelog and on Apache Kafka: the same program, the same ends."""

from __future__ import annotations

from collections import Counter
from threading import Lock

import pytest

import tidelog
from against.brokers import Broker
from against.confluent import producer_of
from against.patience import eventually
from against.queues import EARLIEST, configure
from against.rebalancing import create
from proving import proves
from tidelog.client import Cluster
from tidelog.client.share import ACCEPT, REJECT, RELEASE, ShareReader
from tidelog.control.reading import read_all
from tidelog.work.outputs import JOB_ID
from tidelog.work.queue import is_empty

pytestmark = pytest.mark.slow


def fill(broker: Broker, topic: str, count: int, partitions: int = 1) -> list[str]:
    create(broker.bootstrap, topic, partitions)
    with tidelog.JobSender(broker.bootstrap) as sender:
        return [sender.send(topic, str(number), key=str(number)) for number in range(count)]


@proves("T4")
def test_our_reader_accepts_releases_rejects_and_renews(broker: Broker, topic: str, group: str) -> None:
    fill(broker, topic, 6)
    configure(broker.bootstrap, group, **EARLIEST)
    with Cluster(broker.bootstrap) as cluster:
        reader = ShareReader(cluster, group, [topic])
        first = eventually(lambda: reader.fetch(max_records=2))
        assert [one.row.offset for one in first] == [0, 1] and {one.delivery for one in first} == {1}
        at = first[0].at
        assert reader.renew([(at, 0), (at, 1)]) == []
        # One request says what became of these, and brings the next.
        found, lost = reader.exchange({at: {0: RELEASE, 1: ACCEPT}}, 5000, 1)
        assert len(found) == 1 and lost == []
        while len(found) < 5:
            found += reader.fetch()
        assert {one.row.offset: one.delivery for one in found} == {0: 2, 2: 1, 3: 1, 4: 1, 5: 1}
        assert reader.acknowledge({at: {0: REJECT}}) == []
        # What is not ours any more does not take the others with it; Apache Kafka passes over what is done.
        lost = reader.acknowledge({at: {1: ACCEPT, 2: ACCEPT, 3: ACCEPT}})
        assert lost == ([(at, 1)] if cluster.is_tidelog() else [])
        reader.close()
        other = ShareReader(cluster, group, [topic])
        left = {one.row.offset: one.delivery for one in eventually(other.fetch)}
        count = 1 if cluster.is_tidelog() else 2  # closed in good order: these were not tried, which Kafka does not say
        assert left == {4: count, 5: count}
        other.close()


@proves("T4")
def test_markers_of_transactions_keep_nothing_of_a_queue_waiting(broker: Broker, topic: str, group: str) -> None:
    """Apache Kafka gives them to consumers as offsets without a record. Five locks of 30 s each would run out."""
    create(broker.bootstrap, topic, 1)
    writer = producer_of(broker, transactional_id=topic)
    writer.init_transactions(180)
    for commits in (True, False, True):
        writer.begin_transaction()
        writer.produce(topic, "committed" if commits else "aborted")
        writer.flush(180)
        (writer.commit_transaction if commits else writer.abort_transaction)(180)
    configure(broker.bootstrap, group, **EARLIEST, share_isolation_level="read_committed")
    with Cluster(broker.bootstrap) as cluster:
        reader = ShareReader(cluster, group, [topic])
        found = eventually(reader.fetch)
        while len(found) < 2:
            found += reader.fetch()
        assert [one.row.value for one in found] == [b"committed", b"committed"]
        assert reader.acknowledge({found[0].at: {one.row.offset: ACCEPT for one in found}}) == []
        eventually(lambda: reader.fetch(100) or is_empty(cluster, topic, group), seconds=60)
        assert is_empty(cluster, topic, group)
        reader.close()


@proves("T4")
def test_our_workers_do_retry_and_give_up_jobs_and_write_each_result_once(
    broker: Broker, topic: str, group: str
) -> None:
    ids = fill(broker, topic, 40, partitions=2)
    calls, lock = Counter[bytes](), Lock()

    def work(job: tidelog.Job) -> bytes | None:
        with lock:
            calls[job.value or b""] += 1
        if job.value == b"7":
            raise tidelog.Reject("never")
        if job.value == b"3" and job.delivery_count == 1:
            raise ValueError("once")
        return job.value

    output = f"{topic}-results"
    options = {"bootstrap": broker.bootstrap, "topic": topic, "group": group}
    running = tidelog.worker(work, workers=4, output=output, **options)  # type: ignore[arg-type]
    running.drain()
    ends = {name: running.jobs[name] for name in ("done", "known", "retried", "rejected", "lost")}
    assert ends == {"done": 39, "known": 0, "retried": 1, "rejected": 1, "lost": 0}
    assert calls[b"3"] == 2 and sum(calls.values()) == 41
    with Cluster(broker.bootstrap) as cluster:
        rows = [row for at in cluster.partitions(output) for row in read_all(cluster, at)]
    told = Counter((dict(row.headers)[JOB_ID] or b"").decode() for row in rows)
    assert len(ids) == 40 and set(told.values()) == {1} and len(told) == 39 and set(told) < set(ids)
