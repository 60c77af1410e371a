"""A speculative twin of Spark's own making: a task that stands still is started a second time, on another host.

`external`, for its cost: a master, two workers and their executors are five JVMs beside the driver's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import Broker
from proving import proves
from spark.driver import Job
from spark.drivers import Driver, environment_of
from spark.filling import fill, numbers
from spark.sinking import committed
from spark.standalone import StandaloneCluster
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster

pytestmark = pytest.mark.external

ROWS = 60
SPECULATION = {
    "spark.executor.memory": "600m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    plan = tmp_path / "driver"
    cluster = StandaloneCluster(tmp_path / "cluster", environment_of(plan, java_by_pip=False))
    made = Driver(plan, cluster.master, java_by_pip=False, settings=SPECULATION)
    yield made
    made.kill()
    cluster.kill()


@proves("P1", "F3", "eo.5", "T10")
@pytest.mark.timeout(900)
def test_rows_of_a_task_and_of_its_speculative_twin_are_written_once(
    driver: Driver, broker: Broker, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    job = Job(broker.bootstrap, f"{topic}-in", f"{topic}-out", str(tmp_path / "checkpoint"))
    topics.create(cluster, job.source, partitions=2)
    topics.create(cluster, job.target, partitions=3)
    for partition in range(2):
        fill(cluster, job.source, partition, numbers(0, ROWS)[partition::2])
    driver.plan(slow="1")
    driver.run_well(job)
    attempts = driver.noted("staged-1")
    assert len(attempts) == len(set(attempts)) == 2, "both staged the rows, in processes of their own"
    assert driver.noted("tasks") == ["2"], "and the commit had those of one of them"
    assert committed(cluster, job.target) == list(range(ROWS))
