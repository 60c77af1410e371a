"""One session to be measured, in a process of its own: commands by standard input, figures by standard output, as JSON.

    {"do": "floor", "row": NAME, "settings": {...}, "batches": N}   micro-batches of ten rows, one after the other
    {"do": "latency", "settings": {...}, "seconds": S}              how old records are when a sink sees them

The settings of a command hold for its query alone. CPU is that of this process and all below it: the JVM, the workers,
and processes that came and went.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.process_tree import cpu_seconds
from bench.session import QUIET

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS = 10
WARM_BATCHES = 15  # after the first of a session, which compiles, a query needs a few
FEWEST, MOST_S = 4, 8.0  # where micro-batches take long, fewer of them are waited for
LOOK_S = 0.1  # looking costs the JVM something too
BASIC = {
    **QUIET,
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("--defaults", action="store_true")
    parser.add_argument("--settings", type=json.loads, default={})
    arguments = parser.parse_args()
    began = time.monotonic()
    settings = {**BASIC, **arguments.settings}
    spark = default_session(settings) if arguments.defaults else our_session(settings)
    answer({"session s": time.monotonic() - began})
    for line in sys.stdin:
        command = json.loads(line)
        what = command.pop("do")
        answer((floor if what == "floor" else latency)(spark, arguments.bootstrap, **command))
    spark.stop()


def answer(figures: dict[str, float]) -> None:
    print(json.dumps(figures), flush=True)


def our_session(settings: dict[str, str]) -> SparkSession:
    import tidelog

    return tidelog.spark_session(memory="1g", settings=settings)


def default_session(settings: dict[str, str]) -> SparkSession:
    """PySpark as it comes, but with the interpreter, the cores and the shuffle partitions of the other side.

    By default there are 200 of these, and a micro-batch that counts takes many seconds.
    """
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[*]").config("spark.driver.memory", "1g")
    builder = builder.config("spark.sql.shuffle.partitions", len(os.sched_getaffinity(0)))
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def frame_of(spark: SparkSession, bootstrap: str, row: str) -> DataFrame:
    if row.startswith("jvm"):
        frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    else:
        frame = topic(spark, bootstrap, "floor", maxOffsetsPerTrigger=str(ROWS), startingOffsets="earliest")
    return frame.selectExpr("hash(value) % 5 as key").groupBy("key").count() if "count" in row else frame


def topic(spark: SparkSession, bootstrap: str, name: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap).option("subscribe", name)
    return reader.options(**options).load()


def floor(spark: SparkSession, bootstrap: str, row: str, settings: dict[str, str], batches: int) -> dict[str, float]:
    if "rocksdb" in row:
        settings = {**settings, "spark.sql.streaming.stateStore.providerClass": ROCKSDB}
    with holding(spark, settings), folder() as checkpoint:
        mode = "update" if "count" in row else "append"
        writer = frame_of(spark, bootstrap, row).writeStream.format("noop").outputMode(mode)
        query = writer.option("checkpointLocation", checkpoint).start()
        first, cpu = wait_for(query, WARM_BATCHES), cpu_seconds(os.getpid())
        last = wait_for(query, batches)
        cpu = cpu_seconds(os.getpid()) - cpu
        done = query.recentProgress
        query.stop()
        times = [float(one.durationMs["triggerExecution"]) for one in done if first < one.batchId <= last]
    return {"ms": statistics.median(times), "CPU ms": 1000 * cpu / (last - first)}


def wait_for(query: StreamingQuery, batches: int) -> int:
    """Until so many more micro-batches are done, or a few and time is up; the number of the last."""
    first: int | None = None
    deadline = time.monotonic() + MOST_S
    while True:
        last = query.lastProgress
        if last is not None:
            first = last.batchId if first is None else first
            done = last.batchId - first
            if done >= batches or (done >= FEWEST and time.monotonic() > deadline):
                return last.batchId
        if query.exception() is not None:
            sys.exit(str(query.exception()))
        time.sleep(LOOK_S)


def latency(spark: SparkSession, bootstrap: str, settings: dict[str, str], seconds: float) -> dict[str, float]:
    """Records hold the nanosecond at which they were made; a sink in this process looks at the clock."""
    ages: list[int] = []
    counting = threading.Event()

    def see(frame: DataFrame, _: int) -> None:
        made = frame.selectExpr("cast(cast(value as string) as bigint) as made").toArrow()["made"].to_pylist()
        now = time.time_ns()
        if counting.is_set():
            ages.extend(now - one for one in made)

    with holding(spark, settings), folder() as checkpoint:
        writer = topic(spark, bootstrap, "clock", startingOffsets="earliest").writeStream.foreachBatch(see)
        query = writer.option("checkpointLocation", checkpoint).start()
        wait_for(query, WARM_BATCHES)
        counting.set()
        cpu = cpu_seconds(os.getpid())
        time.sleep(seconds)
        cpu = cpu_seconds(os.getpid()) - cpu
        query.stop()
    ages.sort()
    return {
        "p50 ms": ages[len(ages) // 2] / 1e6,
        "p99 ms": ages[len(ages) * 99 // 100] / 1e6,
        "CPU ms/s": 1000 * cpu / seconds,
    }


@contextmanager
def holding(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        spark.conf.unset(name) if old is None else spark.conf.set(name, old)


@contextmanager
def folder() -> Iterator[str]:
    made = tempfile.mkdtemp(prefix="tidelog-floor-")
    yield made
    shutil.rmtree(made, ignore_errors=True)


if __name__ == "__main__":
    main()
