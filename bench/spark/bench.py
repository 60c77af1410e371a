"""The brokers, the topics and the one session of a run, and how work in it is measured.

Both brokers have the same topics, filled once: two partitions, keys of 8 bytes, batches as a busy producer makes them.
What comes out of a turn is compared with what was put in: a count and a sum of checksums.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
from bench.broker.bench import KAFKA_SETTINGS
from bench.filling import send_rows
from bench.process_tree import cpu_of
from bench.run import Extent, Run
from bench.session import QUIET, end_with_jvm
from bench.spark.figures import JVM, KAFKA, OURS, TIDELOG, side_of

import tidelog
from against.apache_kafka import DISTRIBUTION_JVM, ApacheKafka
from against.tidelog_process import TidelogProcess
from spark.connector import found_jars
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 2
KEY_BYTES = 8
ROWS_AT_ONCE = 20_000
HEAP = "2g"
SEED = 20261115


class Shape(NamedTuple):
    name: str
    rows: int
    size: int


SHAPES = (Shape("100 B", 6_000_000, 100), Shape("1 KB", 1_500_000, 1000))


class Turn(NamedTuple):
    connector: str
    broker: str
    counts: bool
    """False in the first round, which only warms all sides up."""

    @property
    def side(self) -> str:
        return side_of(self.connector, self.broker)


class Bench(Run):
    def __init__(self, folder: Path, extent: Extent) -> None:
        super().__init__(folder, extent)
        self._filled: set[str] = set()
        self._session: SparkSession | None = None

    def stop(self) -> None:
        self.stop_session()
        super().stop()

    def new_folder(self, name: str) -> Path:
        return self.folder / f"{name}-{next(self._numbers)}"

    # Brokers and topics -----------------------------------------------------------------------------------------------

    @cached_property
    def brokers(self) -> dict[str, str]:
        """Where each broker is."""
        kafka = self.started(ApacheKafka(self.new_folder("kafka"), KAFKA_SETTINGS, jvm=DISTRIBUTION_JVM))
        ours = self.started(TidelogProcess(self.new_folder("tidelog")))
        return {KAFKA: kafka.bootstrap, TIDELOG: ours.bootstrap}

    def topic(self, shape: Shape) -> str:
        """A filled topic, the same on both brokers."""
        name = f"filled-{shape.size}-{shape.rows}"
        if name not in self._filled:
            self._filled.add(name)
            for bootstrap in self.brokers.values():
                fill(bootstrap, name, self.rows_of(shape), shape.size)
        return name

    def rows_of(self, shape: Shape) -> int:
        return self.amount(shape.rows, least=20_000)

    def new_topic(self, broker: str) -> str:
        name = f"written-{next(self._numbers)}"
        with Cluster(self.brokers[broker]) as cluster:
            topics.create(cluster, name, partitions=PARTITIONS)
        return name

    def delete_topic(self, broker: str, name: str) -> None:
        with Cluster(self.brokers[broker]) as cluster:
            topics.delete(cluster, name)

    # The session ------------------------------------------------------------------------------------------------------

    @property
    def session(self) -> SparkSession:
        if self._session is None:
            jars = {"spark.jars": ",".join(map(str, found_jars()))}
            where = {"spark.local.dir": str(self.new_folder("local"))}
            progress = {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
            settings = {**jars, **QUIET, **where, **progress}
            self._session = tidelog.spark_session("bench", memory=HEAP, settings=settings)
        return self._session

    def stop_session(self) -> None:
        """Rows that measure other sessions want this one out of the way."""
        if self._session is not None:
            end_with_jvm(self._session)
            self._session = None

    def frame(self, connector: str, bootstrap: str, topic: str, **options: str) -> DataFrame:
        reader = self.session.read.format(connector).option("kafka.bootstrap.servers", bootstrap)
        return reader.option("subscribe", topic).options(**options).load()

    def turns(self) -> Iterator[Turn]:
        for counts in self.rounds():
            yield from self.one_round(counts=counts)

    def one_round(self, *, counts: bool) -> list[Turn]:
        return [Turn(one, broker, counts) for broker, one in itertools.product((KAFKA, TIDELOG), (OURS, JVM))]

    def add(self, row: str, side: str, rows: int, used: Used) -> None:
        self.figures.add(row, "rows/s", side, rows / used.seconds)
        self.figures.add(row, "CPU s/M rows", side, used.cpu / rows * 1e6)


class Used:
    """Of a stretch of work: seconds, and CPU seconds of this process with all below it: the JVM, the workers."""

    seconds = 0.0
    cpu = 0.0


@contextmanager
def measured() -> Iterator[Used]:
    used = Used()
    cpu, began = cpu_seconds(), time.perf_counter()
    yield used
    used.seconds = time.perf_counter() - began
    used.cpu = cpu_seconds() - cpu


def cpu_seconds() -> float:
    """Without the brokers, which are children of this process too. The dead count where they were waited for."""
    me = psutil.Process()
    mine = me.cpu_times()
    total = float(mine.user + mine.system)
    for child in me.children():
        if is_session(child):
            total += sum(map(cpu_of, (child, *child.children(recursive=True))))
    return total


def is_session(process: psutil.Process) -> bool:
    try:
        return any("org.apache.spark" in word for word in process.cmdline())
    except psutil.Error:
        return False


def fill(bootstrap: str, topic: str, rows: int, size: int) -> None:
    """Random bytes; the same on every broker."""
    random = np.random.default_rng(SEED)
    with Cluster(bootstrap) as cluster:
        topics.create(cluster, topic, partitions=PARTITIONS)
        with Producer(cluster) as producer:
            for number, first in enumerate(range(0, rows, ROWS_AT_ONCE)):
                count = min(ROWS_AT_ONCE, rows - first)
                now = int(time.time() * 1000)
                keys, values = random_column(random, count, KEY_BYTES), random_column(random, count, size)
                made = pa.RecordBatch.from_arrays([keys, values], ["key", "value"])
                send_rows(producer, TopicPartition(topic, number % PARTITIONS), made, timestamp_ms=now)


def random_column(random: np.random.Generator, count: int, size: int) -> pa.Array:
    offsets = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(random.bytes(count * size))]
    )
