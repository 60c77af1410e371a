"""Operators with state in the test driver: what a fold keeps, what the clock does, what the plugin loads."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from pipelines.operators.state import counting as counting_fold
from proving import proves
from tidelog.pipelines.operators.state.operator import run_fold
from tidelog.testing.pipeline import PipelineDriver
from tidelog.testing.pipeline_session import travelling_whole


class Reminding(StatefulProcessor):
    """Puts out a key an hour after it was first seen, by the time of day."""

    def init(self, handle) -> None:
        self.handle = handle

    def handleInputRows(self, key, rows, timerValues):
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 3_600_000)
        yield from ()

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield Row(key=key[0])

    def close(self) -> None:
        pass


def reminding(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").transformWithState(Reminding(), "key string", "Update", "ProcessingTime")


def counting(rows: DataFrame) -> DataFrame:
    timed = rows.selectExpr("key", "value", "unix_millis(at) as at")
    return run_fold(timed, ["key"], counting_fold.Counting())


@proves("P1")
@pytest.mark.slow
def test_what_a_fold_keeps_is_seen_as_rows(tidelog_pipeline: PipelineDriver) -> None:
    rows = tidelog_pipeline.input("rows", "key string, value long, at timestamp")
    with travelling_whole(counting_fold), tidelog_pipeline.run(counting, rows) as run:
        rows.add([("a", 1, "10:00"), ("a", 2, "10:01"), ("b", 3, "10:02")])
        run.step()
        assert {row["key"]: row["n"] for row in run.state()} == {"a": 2, "b": 1}
        assert [state.fold for state in run.fold_states()] == [counting_fold.Counting().name]


@proves("P1")
@pytest.mark.slow
def test_timers_of_processing_time_fire_when_the_test_lets_time_pass(tidelog_pipeline: PipelineDriver) -> None:
    rows = tidelog_pipeline.input("rows", "key string")
    run = tidelog_pipeline.run(reminding, rows, output_mode="update")
    rows.add([("a",)])
    assert run.step() == []
    run.advance_clock("59 minutes")
    assert run.step() == []
    run.advance_clock("1 minute")
    assert run.step() == [Row(key="a")]


@proves("P1", "architecture")
@pytest.mark.parametrize("heavy", ["pyspark", "pyarrow", "numpy"])
def test_the_plugin_loads_spark_only_where_it_is_used(heavy: str) -> None:
    program = f"import sys, tidelog.testing.plugin; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
