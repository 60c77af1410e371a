"""A driver for tests of Spark pipelines: fixed micro-batches, one step at a time, with crashes where one wants them.

    def clicks_by_minute(clicks: DataFrame) -> DataFrame:
        timed = clicks.withWatermark("at", "10 seconds")
        return timed.groupBy(F.window("at", "1 minute"), "user").count()

    with PipelineDriver(spark) as driver:
        clicks = driver.input("clicks", "user string, at timestamp")
        run = driver.run(clicks_by_minute, clicks)
        clicks.add([("ada", "10:03:20"), ("ada", "10:03:59")])
        assert run.step() == []
        clicks.add([("bob", "10:04:30")])
        assert [row["count"] for row in run.step()] == [2]

It is Spark that runs, whole: its planner, state stores, checkpoints and recovery. What the driver puts in their place
is the input (Spark's MemoryStream), the sink (its MemorySink) and the clock. So a step takes tens of milliseconds, and
a test that passes says something about production. A pipeline is a function of DataFrames; the same function over
batch DataFrames is the oracle (`run.batch()`).

One Spark session serves all tests of a process: it takes seconds to start, a run takes milliseconds.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from tidelog.errors import UsageError
from tidelog.testing.pipeline_input import PipelineInput
from tidelog.testing.pipeline_query import RestartPoint
from tidelog.testing.pipeline_run import Pipeline, PipelineRun
from tidelog.testing.pipeline_times import DAY, Moment, epoch_ms

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession
    from pyspark.sql.types import StructType

MEMORY = Path("/dev/shm")  # checkpoints of tests need not outlive a power cut

OutputMode = Literal["append", "update", "complete"]

_numbers: Iterator[int] = count()  # of streams: Spark takes those of one number for one and the same


class PipelineDriver:
    """`now` is the time of day at which every run begins."""

    def __init__(self, spark: SparkSession, *, now: Moment = f"{DAY} 00:00") -> None:
        self._spark = spark
        self._now_ms = epoch_ms(now)
        self._folder = Path(tempfile.mkdtemp(prefix="tidelog-pipeline-", dir=MEMORY if MEMORY.is_dir() else None))
        self._runs: list[PipelineRun] = []

    @property
    def spark(self) -> SparkSession:
        return self._spark

    def input(self, name: str, schema: str | StructType, *, partitions: int = 1) -> PipelineInput:
        """A new input; its schema is a StructType or like "user string, at timestamp"."""
        return PipelineInput(self._spark, name, schema, partitions)

    def run(self, pipeline: Pipeline, *inputs: PipelineInput, output_mode: OutputMode = "append") -> PipelineRun:
        """Start the query of `pipeline(*inputs)`; it waits for the first step. Each run reads from the beginning."""
        if not inputs:
            raise UsageError("a run needs the inputs that its pipeline is called with: driver.run(pipeline, clicks)")
        jvm: Any = self._spark._jvm
        streams = [one.stream(next(_numbers)) for one in inputs]
        clock = jvm.org.apache.spark.util.ManualClock(self._now_ms)
        place = RestartPoint(self._folder / f"run{len(self._runs)}", output_mode, clock)
        run = PipelineRun(self._spark, pipeline, inputs, streams, place)
        self._runs.append(run)
        return run

    def batch(self, pipeline: Pipeline, *inputs: PipelineInput) -> list[Row]:
        """What the pipeline gives on all rows added so far, as a batch."""
        return pipeline(*(one.batch() for one in inputs)).collect()

    def close(self) -> None:
        for run in self._runs:
            run.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        # Spark's upkeep of state, a minute later, makes folders anew that it does not find.
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)

    def __enter__(self) -> PipelineDriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
