"""Results of jobs in a topic: once, whoever dies between them and the end of the job."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from threading import Event
from typing import Any

import pytest

import tidelog
from against.patience import eventually
from proving import proves
from tidelog.client import Cluster, topics
from tidelog.client.metadata import TopicPartition
from tidelog.control.reading import read_all, span
from tidelog.errors import ProducerFenced
from tidelog.record.columns import Row
from tidelog.work import outputs
from tidelog.work.job import Job
from tidelog.work.outputs import DoneJob, Outputs, done_topic, results_of
from work.pools import GROUP, TOPIC, Pool

SENT = "sent"
KILLED_BEFORE_IT_SAYS_SO = """
import os, signal, sys
import tidelog
from tidelog.client.share import ShareReader

def dying(say):
    def said(self, kinds, *options):
        if kinds:
            os.kill(os.getpid(), signal.SIGKILL)
        return say(self, kinds, *options)
    return said

ShareReader.exchange, ShareReader.acknowledge = dying(ShareReader.exchange), dying(ShareReader.acknowledge)
tidelog.worker(lambda job: b"by the first", topic="mail", group="mailers", output="sent", bootstrap=sys.argv[1]).run()
"""


@pytest.fixture
def cluster(broker: tidelog.Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as made:
        yield made


def rows(cluster: Cluster, topic: str = SENT) -> list[Row]:
    return [row for at in cluster.partitions(topic) for row in read_all(cluster, at)]


def job(offset: int, value: bytes = b"Ada") -> Job:
    return Job(TOPIC, 0, offset, 1, None, value, (), 1)


def ended(one: Job, returned: Any = b"done") -> DoneJob:
    return DoneJob(one, results_of(one, returned, 2))


@proves("T4")
def test_what_a_function_returns_is_written_with_the_jobs_id_and_nothing_is_nothing(
    pool: Pool, sender: tidelog.JobSender, cluster: Cluster
) -> None:
    ids = [sender.send(TOPIC, name, key=f"k{name}") for name in ("one", "none", "two", "keyed")]
    answers: dict[bytes, Any] = {
        b"one": "1",
        b"none": None,
        b"two": [b"2a", tidelog.Result("2b")],
        b"keyed": tidelog.Result(b"3", key="other", headers={"h": b"v"}),
    }
    running = pool(lambda job: answers[job.value], workers=2, output=SENT)
    running.drain()
    found = {row.value: (row.key, row.headers) for row in rows(cluster)}
    assert found == {
        b"1": (b"kone", ((outputs.JOB_ID, ids[0].encode()),)),
        b"2a": (b"ktwo", ((outputs.JOB_ID, ids[2].encode()),)),
        b"2b": (b"ktwo", ((outputs.JOB_ID, ids[2].encode()),)),
        b"3": (b"other", (("h", b"v"), (outputs.JOB_ID, ids[3].encode()))),
    }
    assert running.jobs["done"] == 4
    with pytest.raises(tidelog.TidelogError, match="each would be a job"):
        pool(print, output=TOPIC).prepare()


@proves("T4")
@pytest.mark.slow
def test_a_job_whose_worker_was_killed_before_it_could_say_that_it_is_done_is_recognised(
    broker: tidelog.Broker, pool: Pool, sender: tidelog.JobSender, cluster: Cluster
) -> None:
    sender.send(TOPIC, "Ada")
    killed = subprocess.run([sys.executable, "-c", KILLED_BEFORE_IT_SAYS_SO, broker.bootstrap], timeout=120)
    assert killed.returncode == -9
    assert [row.value for row in rows(cluster)] == [b"by the first"]
    called = Event()
    running = pool(lambda job: called.set(), output=SENT)
    running.drain()
    assert (running.jobs["known"], running.jobs["done"], called.is_set()) == (1, 0, False)
    assert len(rows(cluster)) == 1


@proves("T4")
def test_of_two_who_did_the_same_job_one_commits_in_whatever_order(broker: tidelog.Broker, cluster: Cluster) -> None:
    topics.create(cluster, TOPIC)
    topics.create(cluster, SENT)
    with Cluster(broker.bootstrap) as other:
        first, second = Outputs(cluster, GROUP, TOPIC, SENT), Outputs(other, GROUP, TOPIC, SENT)
        assert first.commit([ended(job(0)), ended(job(1))]) == {job(0): True, job(1): True}
        again = replace(job(2), delivery_count=2)  # it came to the same process a second time
        assert second.commit([ended(job(1)), ended(job(2)), ended(again)]) == {
            job(1): False,
            job(2): True,
            again: False,
        }
        sessions = count()
        eventually(lambda: first.are_done([job(2), job(3)], next(sessions)), lambda known: known == {job(2)})
        # The second takes over while the first has written, and not committed.
        mine = first._partition(0)
        with pytest.raises(ProducerFenced):
            first.commit([ended(job(3))])
            with mine.owner.transaction() as outgoing:
                outgoing.send(TopicPartition(SENT, 0), [(None, b"late", (), 3)])
                outgoing.flush()
                assert second.commit([ended(job(4), b"by the second")]) == {job(4): True}
        mine.is_owned = False
        assert first.commit([ended(job(4), b"by the first"), ended(job(5))]) == {job(4): False, job(5): True}
    found = Counter(dict(row.headers)[outputs.JOB_ID] for row in rows(cluster))
    assert found == Counter(job(offset).id.encode() for offset in range(6))
    assert b"by the second" in [row.value for row in rows(cluster)]


@proves("T4")
def test_an_offset_that_is_used_again_is_another_job(cluster: Cluster) -> None:
    topics.create(cluster, TOPIC)
    topics.create(cluster, SENT)
    before = Outputs(cluster, GROUP, TOPIC, SENT)
    assert before.commit([ended(job(0))])[job(0)] is True
    assert before.commit([ended(job(0, b"Bob"))])[job(0, b"Bob")] is True  # the log lost its end, and went on
    topics.delete(cluster, TOPIC)
    cluster.forget()
    topics.create(cluster, TOPIC)
    assert Outputs(cluster, GROUP, TOPIC, SENT).commit([ended(job(0))])[job(0)] is True
    assert len(rows(cluster)) == 3


@proves("T4")
def test_a_result_that_cannot_be_written_is_the_error_of_its_own_job(
    pool: Pool, sender: tidelog.JobSender, cluster: Cluster
) -> None:
    topics.create(cluster, SENT, configs={"max.message.bytes": "1000"})
    for value in ("good", "large", "odd", "good"):
        sender.send(TOPIC, value)
    said: list[dict[str, object]] = []
    answers: dict[bytes, Any] = {b"good": "fine", b"large": bytes(5000), b"odd": object()}
    running = pool(
        lambda job: answers[job.value], output=SENT, attempts=2, say=lambda event, **more: said.append(dict(more))
    )
    running.drain()
    assert [row.value for row in rows(cluster)] == [b"fine", b"fine"]
    assert (running.jobs["done"], running.jobs["retried"]) == (2, 4)
    errors = " ".join(str(one.get("error")) for one in said)
    assert "MESSAGE_TOO_LARGE" in errors and "returned object" in errors


@proves("T4")
def test_done_records_that_nobody_needs_any_more_are_deleted(
    pool: Pool, sender: tidelog.JobSender, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "TRIM_EVERY", 5)
    for number in range(30):
        sender.send(TOPIC, str(number))
    pool(lambda job: job.value, output=SENT).drain()
    assert len(rows(cluster)) == 30
    kept = span(cluster, TopicPartition(done_topic(GROUP, TOPIC), 0))
    assert kept is not None and kept.start > 0


@proves("T4")
@pytest.mark.parametrize("group", ["a.b", "mail ers", "é" * 300, "x" * 300])
def test_each_group_has_a_topic_of_its_own_for_what_is_done(group: str) -> None:
    from tidelog.broker.names import fault_of

    assert fault_of(done_topic(group, TOPIC)) is None
    assert done_topic("a.b", "c") != done_topic("a", "b.c") and done_topic(group, TOPIC) != done_topic(group, "c")


@proves("T4")
@pytest.mark.slow
def test_pools_that_take_the_partition_from_each_other_write_each_result_once(
    pool: Callable[..., Any], sender: tidelog.JobSender, cluster: Cluster
) -> None:
    ids = [sender.send(TOPIC, str(number)) for number in range(150)]
    pools = [pool(lambda job: job.value, workers=2, output=SENT, name=f"p{number}") for number in range(3)]
    for one in pools:
        one.__enter__()
    eventually(lambda: sum(one.jobs["done"] + one.jobs["known"] for one in pools), lambda done: done == 150)
    for one in pools:
        one.__exit__(None)
    assert Counter(dict(row.headers)[outputs.JOB_ID].decode() for row in rows(cluster)) == Counter(ids)  # type: ignore[union-attr]
