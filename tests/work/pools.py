"""A broker with short locks, and the pieces of which tests of workers are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidelog
from tidelog.client import Cluster, configs
from tidelog.work.running import WorkerPool, worker

GROUP, TOPIC = "mailers", "mail"


@pytest.fixture
def broker() -> Iterator[tidelog.Broker]:
    settings = {"group.share.min.record.lock.duration.ms": "1000", "tidelog.log.level": "ERROR"}
    with tidelog.Broker(in_process=True, settings=settings) as running:
        with Cluster(running.bootstrap) as cluster:
            configs.alter(cluster, configs.GROUP, GROUP, set={"share.record.lock.duration.ms": "1000"})
        yield running


Pool = Callable[..., WorkerPool]


@pytest.fixture
def pool(broker: tidelog.Broker) -> Pool:
    def make(function: Callable[[tidelog.Job], Any], **options: Any) -> WorkerPool:
        given = {"topic": TOPIC, "group": GROUP, "backoff_s": 0.0, "bootstrap": broker.bootstrap, **options}
        return worker(function, **given)

    return make


@pytest.fixture
def sender(broker: tidelog.Broker) -> Iterator[tidelog.JobSender]:
    with tidelog.JobSender(broker.bootstrap) as made:
        yield made
