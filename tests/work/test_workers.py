"""Workers of a queue against a real broker: jobs are done, tried again, given up, renewed, timed out and finished."""

from __future__ import annotations

import time
from collections import Counter
from threading import Barrier, Event, Lock, Semaphore
from typing import Any

import pytest

import tidelog
from against.patience import eventually
from proving import proves
from tidelog.client import Cluster, Consumer, configs, topics
from tidelog.client.acknowledgements import Kinds
from tidelog.client.metadata import TopicPartition
from tidelog.client.share import ACCEPT, AcquiredRecord, ShareReader
from tidelog.control.status import read_status
from tidelog.errors import UsageError
from tidelog.record.columns import Row
from tidelog.work.crew import Crew, JobCall
from tidelog.work.queue import is_empty
from work.pools import GROUP, TOPIC, Pool

LETTERS = "dlq.mail"


class Doing:
    """A function that notes its jobs, and fails as it is told to."""

    def __init__(self, *errors: BaseException) -> None:
        self.jobs: list[tidelog.Job] = []
        self._errors = list(errors)
        self._lock = Lock()

    def __call__(self, job: tidelog.Job) -> None:
        with self._lock:
            self.jobs.append(job)
            error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error


def letters(broker: tidelog.Broker) -> list[tuple[bytes | None, dict[str, bytes | None]]]:
    with Cluster(broker.bootstrap) as cluster:
        consumer = Consumer(cluster)
        consumer.assign(dict.fromkeys(cluster.partitions(LETTERS), 0))
        rows = [row for fetched in consumer.fetch() for row in fetched.rows()]
        return [(row.value, dict(row.headers or ())) for row in rows]


@proves("T4")
def test_each_job_that_was_sent_before_the_group_began_is_done_once(pool: Pool, sender: tidelog.JobSender) -> None:
    ids = [sender.send(TOPIC, f"{number}", key="k", headers={"h": b"v"}) for number in range(20)]
    doing = Doing()
    running = pool(doing, workers=3)
    running.drain()
    assert Counter(job.id for job in doing.jobs) == Counter(ids)
    job = min(doing.jobs, key=lambda job: job.offset)
    assert (job.value, job.key, job.headers, job.delivery_count) == (b"0", b"k", (("h", b"v"),), 1)
    assert job.id == f"{TOPIC}/{job.partition}/{job.offset}" and job.topic == TOPIC
    assert (running.jobs["done"], running.jobs["retried"], running.jobs["lost"]) == (20, 0, 0)


@proves("T4")
def test_a_job_that_raises_is_tried_again_and_counts_its_deliveries(pool: Pool, sender: tidelog.JobSender) -> None:
    sender.send(TOPIC, "flaky")
    doing = Doing(ValueError("no"), SystemExit("not the worker's end"))
    said: list[dict[str, object]] = []
    running = pool(doing, say=lambda event, **fields: said.append({"event": event, **fields}))
    running.drain()
    assert [job.delivery_count for job in doing.jobs] == [1, 2, 3]
    first = next(one for one in said if one["event"] == "job released")
    assert (first["job"], first["delivery"], first["error"]) == (doing.jobs[0].id, 1, "ValueError: no")
    assert str(first["raised_at"]).startswith(__file__)
    assert len({job.id for job in doing.jobs}) == 1
    assert (running.jobs["retried"], running.jobs["done"]) == (2, 1)


@proves("T4")
def test_a_rejected_job_is_a_dead_letter_at_once_and_a_failing_one_after_its_last_delivery(
    broker: tidelog.Broker, pool: Pool, sender: tidelog.JobSender
) -> None:
    sender.send(TOPIC, "never")
    sender.send(TOPIC, "fails")
    seen: list[bytes | None] = []

    def work(job: tidelog.Job) -> None:
        seen.append(job.value)
        raise tidelog.Reject("no such person") if job.value == b"never" else ValueError("mail server away")

    said: list[tuple[str, object]] = []
    told = {"say": lambda event, **fields: said.append((event, fields.get("delivery")))}
    running = pool(work, dead_letters=LETTERS, attempts=3, **told)
    running.drain()
    ends = sorted(one for one in said if one[0].startswith("job "))
    assert ends == [("job given up", 3), ("job rejected", 1), ("job released", 1), ("job released", 2)]
    assert Counter(seen) == {b"never": 1, b"fails": 3}
    assert (running.jobs["rejected"], running.jobs["retried"]) == (1, 3)
    found = eventually(lambda: letters(broker), lambda found: len(found) == 2)
    assert {value: headers["__dlq.errors.delivery.count"] for value, headers in found} == {
        b"never": b"1",
        b"fails": b"3",
    }
    why = {value: (headers["__dlq.errors.message"] or b"").decode() for value, headers in found}
    assert why[b"never"].startswith(f"Reject: no such person, raised at {__file__}:")
    assert why[b"never"].endswith(" (a consumer rejected it)")
    assert why[b"fails"].startswith("ValueError: mail server away, raised at ")
    assert why[b"fails"].endswith(" (it was delivered 3 times, the limit, and not accepted)")


@proves("T4")
def test_the_lock_of_a_long_job_is_renewed_and_nobody_else_gets_it(pool: Pool, sender: tidelog.JobSender) -> None:
    sender.send(TOPIC, "long")
    begun: list[int] = []
    running = None

    def work(job: tidelog.Job) -> None:
        begun.append(job.delivery_count)
        assert running is not None
        eventually(lambda: running.jobs["renewed"], lambda renewed: renewed >= 4)  # more than one lock

    running = pool(work, workers=2)
    running.drain()
    assert begun == [1]
    assert (running.jobs["done"], running.jobs["lost"]) == (1, 0)


@proves("T4")
def test_a_job_over_its_time_is_released_while_its_call_is_left_alone(pool: Pool, sender: tidelog.JobSender) -> None:
    sender.send(TOPIC, "slow at first")
    go_on, deliveries = Event(), list[int]()

    def work(job: tidelog.Job) -> None:
        deliveries.append(job.delivery_count)
        if job.delivery_count == 1:
            go_on.wait()

    said: list[str] = []
    running = pool(work, time_limit_s=0.05, say=lambda event, **_: said.append(event))
    running.drain()
    late = running.jobs["late"]
    go_on.set()
    assert deliveries == [1, 2]
    assert (running.jobs["timed_out"], running.jobs["done"], late) == (1, 1, 1)
    assert "job timed out" in said


@proves("T4")
def test_a_pool_that_is_stopped_ends_the_jobs_under_way_and_leaves_the_rest(
    broker: tidelog.Broker, pool: Pool, sender: tidelog.JobSender
) -> None:
    for number in range(3):
        sender.send(TOPIC, f"{number}")
    begun, go_on, ended = Event(), Event(), list[str]()

    def work(job: tidelog.Job) -> None:
        begun.set()
        go_on.wait()
        ended.append(job.id)

    with pool(work) as running:
        begun.wait()
        running.stop()
        go_on.set()
    assert (len(ended), running.jobs["done"]) == (1, 1)
    doing = Doing()
    pool(doing).drain()
    assert {job.id for job in doing.jobs}.isdisjoint(ended) and len(doing.jobs) == 2


@proves("T4")
def test_a_delayed_job_is_waited_for_and_one_that_the_topic_does_not_delay_is_refused(
    broker: tidelog.Broker, pool: Pool, sender: tidelog.JobSender
) -> None:
    called: dict[bytes | None, float] = {}
    began = time.time()
    sender.send(TOPIC, "later", delay_s=0.3)
    sender.send(TOPIC, "now")
    pool(lambda job: called.update({job.value: time.time()})).drain()
    assert called.keys() == {b"now", b"later"} and called[b"later"] >= began + 0.299  # stamps are whole milliseconds
    for delay_s in (-1.0, float("nan"), 1e9):
        with pytest.raises(tidelog.TidelogError, match="delay"):
            sender.send(TOPIC, "no", delay_s=delay_s)


@proves("T4")
def test_workers_are_parts_with_a_status_and_keep_what_was_set_of_their_group(
    broker: tidelog.Broker, pool: Pool, sender: tidelog.JobSender
) -> None:
    sender.send(TOPIC, "one")
    with Cluster(broker.bootstrap) as cluster:
        with pool(Doing(), name="m", workers=2) as running:
            eventually(lambda: is_empty(cluster, TOPIC, GROUP))
            eventually(lambda: running.jobs["done"] == 1)
        told = {one.name: one for one in read_status(cluster) if one.kind == "worker"}
        assert sorted(told) == ["m"] and told["m"].figures["workers"] == 2
        assert {one.figures["state"] for one in told.values()} == {"stopped"}
        assert sum(one.figures["rows_out"] for one in told.values()) == 1
        configs.alter(cluster, configs.GROUP, GROUP, set={"share.auto.offset.reset": "latest"})
        pool(Doing(), backoff_s=None).prepare()
        pool(Doing(), group="new", backoff_s=None).prepare()
        names = ("share.auto.offset.reset", "tidelog.retry.backoff.ms")
        found = {
            group: {one.name: one.value for one in configs.describe(cluster, configs.GROUP, group)}
            for group in (GROUP, "new")
        }
        assert [found[GROUP][name] for name in names] == ["latest", "0"]
        assert [found["new"][name] for name in names] == ["earliest", "1000"]


@proves("T4")
@pytest.mark.parametrize("wrong", [{"workers": 0}, {"time_limit_s": 0.0}, {"backoff_s": -1.0}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(tidelog.TidelogError, match="; "):
        tidelog.worker(print, topic=TOPIC, group=GROUP, **wrong)  # type: ignore[arg-type]


@proves("T4")
def test_a_job_that_waits_behind_a_long_one_is_given_back_once_and_done_by_another(
    pool: Pool, sender: tidelog.JobSender
) -> None:
    """Short jobs teach the first pool to acquire ahead; then both of its threads are held up."""
    for _ in range(60):
        sender.send(TOPIC, "short")
    held, go_on = list[str](), Event()

    def first_function(job: tidelog.Job) -> None:
        if job.value == b"long":
            held.append(job.id)
            go_on.wait()

    other = Doing()
    with pool(first_function, workers=2, name="first") as first:
        eventually(lambda: first.jobs["done"] == 60)
        for _ in range(6):
            sender.send(TOPIC, "long")
        eventually(lambda: len(held) == 2)
        with pool(other, name="other") as second:
            eventually(lambda: second.jobs["done"] == 4)
            go_on.set()
    assert (first.jobs["done"], first.jobs["lost"], first.jobs["retried"]) == (62, 0, 0)
    assert {job.delivery_count for job in other.jobs} <= {1, 2}


@proves("T4")
def test_all_threads_of_a_pool_are_busy_and_one_request_tells_of_many_jobs(
    broker: tidelog.Broker, pool: Pool, sender: tidelog.JobSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(100):
        sender.send(TOPIC, "short")
    told, together = list[int](), Barrier(8)
    say = ShareReader.exchange

    def exchange(self: ShareReader, kinds: Kinds, *options: int | None) -> Any:
        told.append(sum(len(one) for one in kinds.values()))
        return say(self, kinds, *options)

    monkeypatch.setattr(ShareReader, "exchange", exchange)
    running = pool(lambda job: together.wait(60) if job.offset < 96 else None, workers=8)
    running.drain()
    assert (running.jobs["done"], running.jobs["lost"]) == (100, 0)
    assert max(told) > 1 and sum(one > 0 for one in told) < 100


@proves("T4")
def test_in_order_by_key_many_threads_do_the_jobs_of_one_key_one_after_the_other(
    broker: tidelog.Broker, pool: Pool, sender: tidelog.JobSender
) -> None:
    """Also when one of them fails: those behind it wait until it is done, and other keys do not."""
    with Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, TOPIC, partitions=1, configs={"tidelog.queue.order": "key"})
    for number in range(30):
        sender.send(TOPIC, str(number), key="ab"[number % 2])
    done: dict[bytes | None, list[int]] = {b"a": [], b"b": []}
    running, together, lock = Counter[bytes | None](), list[int](), Lock()

    def work(job: tidelog.Job) -> None:
        with lock:
            running[job.key] += 1
            together.append(running[job.key])
        try:
            if job.delivery_count == 1 and job.offset % 5 == 0:
                raise ValueError("at the second try")
            with lock:
                done[job.key].append(job.offset)
        finally:
            with lock:
                running[job.key] -= 1

    pool(work, workers=8).drain()
    assert done == {b"a": list(range(0, 30, 2)), b"b": list(range(1, 30, 2))}
    assert set(together) == {1}


@proves("T4")
def test_a_call_that_ends_while_it_is_looked_at_is_counted_once() -> None:
    """A crew of one: whoever looks between the end of a call and its thread's next step sees it as held or as ended."""
    crew = Crew("c", lambda job: None, 1)
    at = TopicPartition(TOPIC, 0)
    for offset in range(300):
        crew.take([AcquiredRecord(at, Row(offset, 0, None, b"", ()), 1)], 1)
        assert not crew.is_idle()
        seen: list[JobCall] = []
        while not crew.is_idle():
            seen += crew.ended(0.0)
        assert [call.job.offset for call in seen] == [offset] and not crew.leave(seen[0])
    crew.go_home()


@proves("T4")
def test_a_call_that_runs_goes_on_under_a_new_lock_and_not_under_that_of_another_record() -> None:
    """The offset alone does not say that it is the same job: its topic may have been made anew."""
    begun, go_on = Semaphore(0), Event()

    def wait(_: tidelog.Job) -> None:
        begun.release()
        go_on.wait()

    crew, at = Crew("c", wait, 2), TopicPartition(TOPIC, 0)
    one, other = (Row(0, timestamp_ms, None, b"", ()) for timestamp_ms in (1, 2))
    assert crew.take([AcquiredRecord(at, one, 1)], 1) == []
    begun.acquire()
    (again,) = crew.take([AcquiredRecord(at, one, 2)], 2)
    assert (again.session, again.record.delivery, again.job.delivery_count) == (2, 2, 1)
    assert crew.take([AcquiredRecord(at, other, 1)], 3) == []
    begun.acquire()
    assert [(call.session, call.job.timestamp_ms) for call in crew.held()] == [(2, 1), (3, 2)]
    assert (crew.room(), crew.room(anew=True)) == (0, 2), "what runs is asked for again"
    go_on.set()
    crew.go_home()


@proves("T4")
def test_one_lock_that_is_lost_does_not_take_the_ends_of_others_with_it(
    broker: tidelog.Broker, sender: tidelog.JobSender
) -> None:
    for number in range(4):
        sender.send(TOPIC, str(number))
    with Cluster(broker.bootstrap) as cluster:
        configs.alter(cluster, configs.GROUP, GROUP, set={"share.auto.offset.reset": "earliest"})
        reader = ShareReader(cluster, GROUP, [TOPIC])
        got = eventually(reader.fetch, lambda got: len(got) == 4)
        at = got[0].at
        assert reader.acknowledge({at: {1: ACCEPT}}) == []
        records, lost = reader.exchange({at: {0: ACCEPT, 1: ACCEPT, 2: ACCEPT}}, 0, 1)
        assert (records, lost) == ([], [(at, 1)])
        assert reader.renew([(at, 0), (at, 3)]) == [(at, 0)]
        assert reader.acknowledge({at: {2: ACCEPT, 3: ACCEPT}}) == [(at, 2)]
        eventually(lambda: is_empty(cluster, TOPIC, GROUP))
        reader.close()


@proves("T4")
@pytest.mark.parametrize("value", [5, {"to": "Ada"}, ["Ada"]])
def test_a_job_that_is_neither_text_nor_bytes_is_refused_and_not_sent(sender: tidelog.JobSender, value: Any) -> None:
    with pytest.raises(UsageError, match=f"a job's value is text or bytes, and not {type(value).__name__}; json.dumps"):
        sender.send(TOPIC, value)
    assert sender.send(TOPIC, "Ada").endswith("/0")


@proves("T4")
def test_a_function_that_cannot_take_a_job_is_refused_before_the_first(pool: Pool) -> None:
    for wrong in (lambda: None, lambda job, other: None, "deliver"):
        with pytest.raises(UsageError, match=r"to take one argument, a tidelog.Job|is not a function"):
            pool(wrong)  # type: ignore[arg-type]
    pool(lambda *jobs: None)
    pool(lambda job, limit=3: None)
