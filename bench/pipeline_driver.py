"""What the driver of pipeline tests costs: a run that starts and stops, its first step, and every further step.

    python bench/pipeline_driver.py                every pipeline, three rounds; the median of each
    python bench/pipeline_driver.py --rounds 1

A step feeds ten rows. `wall` depends on what else the machine does; `cpu` is that of all processes together, Spark's
Python workers included, and says more on a machine that is shared. The first round is that of a JVM that has compiled
nothing yet, as in the first tests of a process.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import NamedTuple

import psutil
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from tidelog.testing.pipeline import PipelineDriver
from tidelog.testing.pipeline_session import shared_session
from tidelog.testing.pipeline_times import at

ROWS = 10
STEPS = 20
SCHEMA = "user string, at timestamp, n int"


class Counting(StatefulProcessor):
    """transformWithState as its users write it: a value for each key."""

    def init(self, handle) -> None:
        self.count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key, rows, timerValues) -> Iterator[Row]:
        held = self.count.get()
        total = (held[0] if held else 0) + sum(1 for _ in rows)
        self.count.update((total,))
        yield Row(user=key[0], n=total)

    def close(self) -> None:
        pass


def stateless(rows: DataFrame) -> DataFrame:
    return rows.where("n > 2").withColumn("twice", F.col("n") * 2)


def window(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "10 seconds").groupBy(F.window("at", "10 seconds"), "user").count()


def processor(rows: DataFrame) -> DataFrame:
    return rows.groupBy("user").transformWithState(Counting(), "user string, n bigint", "Update", "None")


PIPELINES = {"stateless": stateless, "window": window, "transformWithState": processor}
STARTS = {"stateless": 10, "window": 10, "transformWithState": 3}


class Cost(NamedTuple):
    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:7.0f} {self.cpu:7.0f}"


def cost(times: int, work: Callable[[int], object]) -> Cost:
    """In ms: the median of the wall clock, and the mean of the CPU."""
    walls, before = [], cpu_seconds()
    for number in range(times):
        began = time.perf_counter()
        work(number)
        walls.append(time.perf_counter() - began)
    return Cost(statistics.median(walls) * 1000, (cpu_seconds() - before) / times * 1000)


def cpu_seconds() -> float:
    """Of this process and all below it, also of those that have ended."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            spent = process.cpu_times()
        except psutil.Error:
            continue
        total += spent.user + spent.system + spent.children_user + spent.children_system
    return total


def rows_of(step: int) -> list[tuple[str, object, int]]:
    began = at("10:00") + timedelta(seconds=ROWS * step)
    return [(f"user {number % 3}", began + timedelta(seconds=number), number) for number in range(ROWS)]


def measure(spark: SparkSession, name: str) -> list[Cost]:
    pipeline, starts = PIPELINES[name], STARTS[name]
    with PipelineDriver(spark) as driver:
        rows = driver.input("rows", SCHEMA)
        mode = "update" if pipeline is processor else "append"

        def first_step(_: int) -> None:
            with driver.run(pipeline, rows, output_mode=mode) as run:
                run.step()

        idle = cost(starts, lambda _: driver.run(pipeline, rows, output_mode=mode).close())
        rows.add(rows_of(0))
        first = cost(starts, first_step)
        run = driver.run(pipeline, rows, output_mode=mode)
        run.step()

        def step(number: int) -> None:
            rows.add(rows_of(number + 1))
            run.step()

        return [idle, first, cost(STEPS, step)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    print(f"{'ms, wall and cpu':24} {'start and stop':>15} {'with a step':>15} {'a further step':>15}")
    with shared_session() as spark:
        for number in range(1, rounds + 1):
            for name in PIPELINES:
                print(f"{number} {name:22} " + " ".join(map(str, measure(spark, name))), flush=True)


if __name__ == "__main__":
    main()
