"""A broker that dies under a job: the job goes on, comes again, and the worker works on by itself."""

from __future__ import annotations

from threading import Event

import tidelog
from against.patience import eventually
from proving import proves
from tidelog.testing.broker import TestBroker


@proves("T4")
def test_a_job_whose_broker_was_killed_comes_again_and_no_other_is_lost(tidelog_broker: TestBroker) -> None:
    for person in ("Ada", "Bob", "Cleo"):
        tidelog.send("mail", person, bootstrap=tidelog_broker.bootstrap)
    begun, go_on, ended = Event(), Event(), list[str]()

    def deliver(job: tidelog.Job) -> None:
        begun.set()
        go_on.wait()
        ended.append(job.id)

    where = {"topic": "mail", "group": "mailers", "bootstrap": tidelog_broker.bootstrap}
    with tidelog.worker(deliver, **where) as running:
        begun.wait()
        tidelog_broker.kill()
        tidelog_broker.start()
        go_on.set()
        eventually(lambda: running.jobs["done"], lambda done: done == 3)
    assert len(ended) == 4 and len(set(ended)) == 3, "the one under way was done twice, under one id"
    assert running.jobs["lost"] == 1
