"""From topic to topic while the driver, Python workers and the broker are killed at random: every row once, in order.

A seed gives the order of the kills and how long each waits. Each waits for progress first, so that whatever was killed
has come back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil
import pytest

from against.patience import eventually
from client.committed import rows_of
from contract import TIMEOUT_S
from crash.seeds import run_seeds
from proving import proves
from spark.driver import Job
from spark.drivers import Driver
from spark.filling import fill
from spark.mortal_broker import MortalBroker
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.control.marks import Mark, read_mark
from tidelog.errors import TidelogError
from tidelog.spark.query_log import default_name

pytestmark = pytest.mark.full

PATIENCE_S = 900.0
SOURCES = 2
ROWS_A_KILL = 60
ROWS_A_MICRO_BATCH = 20
WAIT_S = 1.0
KILLS = ("driver", "worker", "worker", "planner", "broker")
SOAK_SEEDS = 6


class Story:
    """A query, and those who kill. Row N of partition P is the text `P N`."""

    def __init__(self, broker: MortalBroker, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.broker = broker
        self.folder = folder
        name = f"s{seed}"
        self.job = Job(
            broker.bootstrap,
            f"{name}-in",
            f"{name}-out",
            str(folder / "checkpoint"),
            read={"maxOffsetsPerTrigger": str(ROWS_A_MICRO_BATCH)},
            parallelism=[SOURCES],  # a task a partition, so that its order is kept
            for_ever=True,
            supervised=True,
        )
        self.sink = default_name(self.job.target, self.job.checkpoint)
        self.rows = 0
        self.driver = self.started()

    def started(self) -> Driver:
        made = Driver(self.folder / "driver")
        made.plan(**({"limit": "0"} if self.random.random() < 0.5 else {}))
        return made

    def run(self) -> None:
        kills = list(KILLS)
        self.random.shuffle(kills)
        with Cluster(self.broker.bootstrap, timeout_s=TIMEOUT_S, patient=True) as cluster:
            topics.create(cluster, self.job.source, partitions=SOURCES)
            topics.create(cluster, self.job.target, partitions=3)
            self.driver.begin(self.job)
            for kill in kills:
                self.add_rows(cluster)
                self.await_progress(cluster)
                time.sleep(self.random.uniform(0, WAIT_S))
                getattr(self, f"kill_{kill}")()
            self.add_rows(cluster)
            ends = self.ends_of_source(cluster)
            self.await_mark(cluster, lambda mark: dict(mark.sources.offsets) == ends)
            self.driver.kill()
            self.check(cluster)

    def add_rows(self, cluster: Cluster) -> None:
        for partition in range(SOURCES):
            texts = [b"%d %d" % (partition, number) for number in range(self.rows, self.rows + ROWS_A_KILL)]
            fill(cluster, self.job.source, partition, texts)
        self.rows += ROWS_A_KILL

    def ends_of_source(self, cluster: Cluster) -> dict[TopicPartition, int]:
        found = list_offsets(cluster, dict.fromkeys(cluster.partitions(self.job.source), LATEST))
        return {at: one.offset for at, one in found.items()}

    def await_progress(self, cluster: Cluster) -> None:
        before = self.mark(cluster)
        self.await_mark(cluster, lambda mark: before is None or mark.batch_id > before.batch_id)

    def await_mark(self, cluster: Cluster, reached: Callable[[Mark], bool]) -> None:
        def look() -> Mark | None:
            assert self.driver.process.poll() is None, self.driver.said()
            return self.mark(cluster)

        try:
            eventually(look, lambda mark: mark is not None and reached(mark), seconds=PATIENCE_S)
        except AssertionError as error:
            error.add_note(self.driver.said())
            raise

    def mark(self, cluster: Cluster) -> Mark | None:
        try:
            return read_mark(cluster, self.sink)
        except TidelogError:
            return None

    # Kills ------------------------------------------------------------------------------------------------------------

    def kill_driver(self) -> None:
        self.driver.kill()
        self.driver = self.started()
        self.driver.begin(self.job)

    def kill_worker(self) -> None:
        self.kill_one(self.driver.workers)

    def kill_planner(self) -> None:
        self.kill_one(self.driver.planners)

    def kill_one(self, look: Callable[[], list[psutil.Process]]) -> None:
        victim = self.random.choice(sorted(eventually(look), key=lambda process: process.pid))
        with suppress(psutil.NoSuchProcess):
            victim.kill()

    def kill_broker(self) -> None:
        self.broker.kill()
        self.broker.start()

    # In the end -------------------------------------------------------------------------------------------------------

    def check(self, cluster: Cluster) -> None:
        every: list[bytes] = []
        for at in cluster.partitions(self.job.target):
            came = [row.value or b"" for row in rows_of(cluster, at)]
            every += came
            for partition in range(SOURCES):
                numbers = [int(text.split()[1]) for text in came if text.startswith(b"%d " % partition)]
                assert numbers == sorted(numbers), f"rows of partition {partition} came to {at} out of order"
        expected = [b"%d %d" % (partition, number) for partition in range(SOURCES) for number in range(self.rows)]
        assert sorted(every) == sorted(expected)


def tell(broker: MortalBroker, folder: Path, seed: int) -> None:
    print(f"seed {seed}")
    story = Story(broker, folder, seed)
    try:
        story.run()
    finally:
        story.driver.kill()


@proves("P1", "F2", "F3", "eo.5", "T10")
@pytest.mark.timeout(900)
def test_every_row_is_there_once_and_in_order_whoever_was_killed(
    mortal_broker: MortalBroker, tmp_path: Path, seed: int
) -> None:
    run_seeds(tmp_path, 1, lambda folder, one: tell(mortal_broker, folder, one), seed)


@pytest.mark.soak
@proves("P1", "F2", "F3", "eo.5", "T10", "soak")
@pytest.mark.timeout(7200)
def test_many_seeds_of_kills(mortal_broker: MortalBroker, tmp_path: Path, seed: int) -> None:
    run_seeds(tmp_path, SOAK_SEEDS, lambda folder, one: tell(mortal_broker, folder, one), seed)
