"""A broker that dies under a job: the job goes on, comes again to its own call, and the worker works on by itself."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

import tidelog
from against.patience import eventually
from proving import proves
from tidelog.client.acknowledgements import Kinds
from tidelog.client.share import ShareReader
from tidelog.testing.broker import TestBroker


@proves("T4")
def test_a_job_whose_broker_was_killed_goes_on_and_counts_and_no_other_is_lost(tidelog_broker: TestBroker) -> None:
    for person in ("Ada", "Bob", "Cleo"):
        tidelog.send("mail", person, bootstrap=tidelog_broker.bootstrap)
    begun, given_again, go_on, ended = Event(), Event(), Event(), list[str]()

    def deliver(job: tidelog.Job) -> None:
        begun.set()
        go_on.wait()
        ended.append(job.id)

    def say(event: str, **_: object) -> None:
        if event == "job goes on":
            given_again.set()

    where = {"topic": "mail", "group": "mailers", "bootstrap": tidelog_broker.bootstrap, "say": say}
    with tidelog.worker(deliver, **where) as running:  # type: ignore[arg-type]
        begun.wait()
        tidelog_broker.kill()
        tidelog_broker.start()
        assert given_again.wait(180), "the call that runs has the new lock"
        go_on.set()
        eventually(lambda: running.jobs["done"], lambda done: done == 3)
    assert len(ended) == len(set(ended)) == 3
    assert running.jobs["lost"] == 0


@proves("T4")
def test_a_job_that_comes_again_to_another_while_its_call_runs_is_done_by_both_and_counted_once(
    tidelog_broker: TestBroker,
) -> None:
    tidelog.send("mail", "Ada", bootstrap=tidelog_broker.bootstrap)
    begun, go_on, said = Event(), Event(), list[str]()

    def deliver(job: tidelog.Job) -> None:
        begun.set()
        go_on.wait()

    where = {"topic": "mail", "group": "mailers", "bootstrap": tidelog_broker.bootstrap}
    with tidelog.worker(deliver, **where, say=lambda event, **_: said.append(event)) as first:  # type: ignore[arg-type]
        begun.wait()
        first.stop()  # it does not ask for jobs any more
        tidelog_broker.kill()
        tidelog_broker.start()
        tidelog.worker(lambda job: None, **where).drain()  # type: ignore[arg-type]
        go_on.set()
        eventually(lambda: first.jobs["lost"])
    assert "job lost" in said and first.jobs["done"] == 0


@proves("T4")
def test_a_job_whose_broker_was_killed_before_it_heard_that_it_is_done_is_recognised(
    tidelog_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its results are committed. What a crash ended is no delivery that a broker counts, so it comes as at first."""
    tidelog.send("mail", "Ada", bootstrap=tidelog_broker.bootstrap)
    say, kills, deliveries = ShareReader.exchange, iter([True]), list[int]()

    def exchange(self: ShareReader, kinds: Kinds, *options: int | None) -> Any:
        if kinds and next(kills, False):
            tidelog_broker.kill()
            tidelog_broker.start()
        return say(self, kinds, *options)

    def deliver(job: tidelog.Job) -> bytes:
        deliveries.append(job.delivery_count)
        return b"sent"

    monkeypatch.setattr(ShareReader, "exchange", exchange)
    where = {"topic": "mail", "group": "mailers", "bootstrap": tidelog_broker.bootstrap, "output": "sent"}
    running = tidelog.worker(deliver, **where)  # type: ignore[arg-type]
    running.drain()
    assert (running.jobs["known"], running.jobs["lost"], deliveries) == (1, 1, [1])
    assert [row.value for row in tidelog_broker.records("sent") if row.headers] == [b"sent"]
