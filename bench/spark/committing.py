"""Row `commit`: what the driver writes in a second when it commits staged micro-batches, since it alone does it,
however many executors there are. No Spark: staged by one task, read back and written in one transaction.
"""

from __future__ import annotations

import time
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from bench.spark.bench import KEY_BYTES, PARTITIONS, SEED, SHAPES, Bench, Shape, random_column
from bench.spark.figures import OURS, side_of

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.record.arrow import arrow_to_partitions

if TYPE_CHECKING:
    from tidelog.spark.routing import Routed
    from tidelog.spark.staging import Stage

SINK = "tidelog.spark.commit"
BYTES = 200_000_000  # of values in a micro-batch
ROWS_AT_ONCE = 50_000


def run(bench: Bench) -> None:
    if find_spec(SINK) is None:
        return
    for shape in SHAPES:
        batches = encoded(shape, bench.amount(BYTES, least=4_000_000))
        for rep in range(bench.reps + 1):
            for broker, bootstrap in bench.brokers.items():
                seconds, cpu = committed(bench, broker, bootstrap, batches)
                if rep:
                    size = sum(len(data) for _, _, data in batches) / 1e6
                    row, side = f"commit by the driver, {shape.name}", side_of(OURS, broker)
                    bench.figures.add(row, "MB/s", side, size / seconds)
                    bench.figures.add(row, "CPU s/GB", side, cpu / size * 1e3)


def encoded(shape: Shape, size: int) -> list[tuple[int, int, bytes]]:
    """Partition, rows and bytes of batches, as a task's rows become them."""
    from tidelog.record.codec import peek

    random = np.random.default_rng(SEED)
    found: list[tuple[int, int, bytes]] = []
    for _ in range(max(1, size // (shape.size * ROWS_AT_ONCE))):
        keys, values = (random_column(random, ROWS_AT_ONCE, width) for width in (KEY_BYTES, shape.size))
        rows = pa.RecordBatch.from_arrays([keys, values], ["key", "value"])
        for partition, batch in arrow_to_partitions(rows, partitions=PARTITIONS, spare=0, timestamp_ms=1):
            found.append((partition, peek(batch).count, bytes(batch)))
    return found


def committed(bench: Bench, broker: str, bootstrap: str, batches: list[tuple[int, int, bytes]]) -> tuple[float, float]:
    """Seconds, and CPU seconds of this process."""
    from tidelog.spark.commit import Writing, commit

    topic = bench.new_topic(broker)
    with Cluster(bootstrap) as cluster:
        stages = [staged(cluster, topic, batches)]
        began, cpu = time.perf_counter(), time.process_time()
        commit(cluster, Writing(topic, "bench", 0, topics=(topic,)), stages, partial(Cluster, bootstrap))
        took = time.perf_counter() - began, time.process_time() - cpu
    bench.delete_topic(broker, topic)
    return took


def staged(cluster: Cluster, topic: str, batches: list[tuple[int, int, bytes]]) -> Stage:
    from tidelog.spark.routing import Routed
    from tidelog.spark.staging import stage

    made: list[Routed] = [Routed(TopicPartition(topic, at), rows, bytearray(data)) for at, rows, data in batches]
    return stage(cluster, made, sink=topic, limit=0)
