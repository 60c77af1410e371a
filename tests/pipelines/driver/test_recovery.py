"""Restarts and crashes in the test driver: what a pipeline puts out and keeps is as if nothing had happened."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from proving import proves
from tidelog.errors import PipelineFailed, UsageError
from tidelog.testing.pipeline import PipelineDriver
from tidelog.testing.pipeline_sinks import CRASH_POINTS, CrashPoint
from tidelog.testing.pipeline_times import at
from tries import tries

CLICKS = "user string, at timestamp"
SLOW = pytest.mark.slow


def by_minute(clicks: DataFrame) -> DataFrame:
    counts = clicks.withWatermark("at", "10 seconds").groupBy(F.window("at", "1 minute"), "user").count()
    return counts.select("window.start", "user", "count")


def patiently(clicks: DataFrame) -> DataFrame:
    return clicks.withWatermark("at", "301 seconds").groupBy(F.window("at", "1 minute"), "user").count()


def by_user(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy("user").count()


class Counting(StatefulProcessor):
    """Counts a user's rows by transformWithState, as a processor of one's own does."""

    def init(self, handle) -> None:
        self.count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key, rows, timerValues):
        held = self.count.get()
        total = (held[0] if held else 0) + sum(1 for _ in rows)
        self.count.update((total,))
        yield Row(user=key[0], count=total)

    def close(self) -> None:
        pass


def by_processor(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy("user").transformWithState(Counting(), "user string, count bigint", "Update", "None")


@proves("P1")
def test_a_restart_goes_on_from_the_checkpoint(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(by_user, clicks, output_mode="update")
    clicks.add([("ada", "10:00")])
    run.step()
    assert run.restart() == []
    clicks.add([("ada", "10:01")])
    assert run.step() == [Row(user="ada", count=2)]


@proves("P1")
@pytest.mark.slow
def test_the_watermark_outlives_a_restart_and_moves_without_rows(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(by_minute, clicks)
    clicks.add([("ada", "10:03:20")])
    run.step()
    run.restart()
    assert run.watermark == at("10:03:10")
    run.advance_watermark("10:05")
    assert run.step() == [Row(start=at("10:03"), user="ada", count=1)]


@proves("P1")
@pytest.mark.parametrize(
    ("point", "pipeline"),
    [
        *(pytest.param(point, by_user, marks=() if point == "before the commit" else SLOW) for point in CRASH_POINTS),
        pytest.param("between tasks", by_processor, marks=pytest.mark.full),
    ],
)
def test_a_micro_batch_that_crashed_is_run_again(tidelog_pipeline: PipelineDriver, point: CrashPoint, pipeline) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS, partitions=2)
    run = tidelog_pipeline.run(pipeline, clicks, output_mode="update")
    clicks.add([("ada", "10:00"), ("bob", "10:00"), ("eve", "10:00")])
    run.step()
    clicks.add([("ada", "10:01"), ("bob", "10:01"), ("eve", "10:01")], partition=1)
    run.crash(point)
    clicks.add([("ada", "10:02")])
    assert sorted(run.restart()) == [("ada", 2), ("bob", 2), ("eve", 2)], "with the rows that it had, and no others"
    assert run.step() == [Row(user="ada", count=3)]
    assert len(run.output) == 7
    twice = 3 if point == "before the commit" else 0
    assert sum(len(batch.rows) for batch in run.micro_batches) == 7 + twice


@proves("P1")
def test_a_crash_between_tasks_leaves_the_state_of_those_that_ran(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(by_user, clicks, output_mode="update")
    clicks.add([(name, "10:00") for name in ("ada", "bob", "eve", "kim")])
    run.crash("between tasks")
    state = run.checkpoint / "state" / "0"
    assert {folder.name for folder in state.iterdir() if any(folder.glob("1.*"))} == {"0"}


@proves("P1")
@pytest.mark.slow
def test_there_must_be_something_to_crash_in(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(by_user, clicks, output_mode="update")
    with pytest.raises(UsageError, match="no micro-batch ran to crash in"):
        run.crash("between tasks")
    with pytest.raises(UsageError, match="crash point 'somewhere' does not exist"):
        run.crash("somewhere")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="restart"):
        run.step()
    run.restart()
    clicks.add([("ada", "10:00")])
    assert run.step() == [Row(user="ada", count=1)]


@proves("P1")
@pytest.mark.slow
def test_a_pipeline_that_failed_goes_on_when_it_is_mended(tidelog_pipeline: PipelineDriver) -> None:
    def refusing(rows: DataFrame) -> DataFrame:
        return rows.where(F.when(F.col("n") == 3, F.raise_error(F.lit("three"))).isNull())

    numbers = tidelog_pipeline.input("numbers", "n int")
    run = tidelog_pipeline.run(refusing, numbers)
    numbers.add([(2,)])
    assert run.step() == [Row(n=2)]
    numbers.add([(3,)])
    with pytest.raises(PipelineFailed, match="three"):
        run.step()
    assert run.restart(lambda rows: rows) == [Row(n=3)]


@proves("P1")
@pytest.mark.slow
def test_state_is_seen_as_rows(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    native = tidelog_pipeline.run(by_user, clicks, output_mode="update")
    own = tidelog_pipeline.run(by_processor, clicks, output_mode="update")
    stateless = tidelog_pipeline.run(lambda rows: rows, clicks)
    clicks.add([("ada", "10:00"), ("ada", "10:00")])
    for run in (native, own, stateless):
        run.step()
    assert native.state() == [{"user": "ada", "count": 2}]
    assert own.state() == [{"user": "ada", "variable": "count", "value": {"n": 2}}]
    assert stateless.state() == []


@proves("P1")
@pytest.mark.full
def test_the_state_of_several_operators_is_told_apart(tidelog_pipeline: PipelineDriver) -> None:
    def joined(clicks: DataFrame, names: DataFrame) -> DataFrame:
        return clicks.join(names, "user").select("user", "name").dropDuplicates(["user"])

    clicks = tidelog_pipeline.input("clicks", CLICKS)
    names = tidelog_pipeline.input("names", "user string, name string")
    run = tidelog_pipeline.run(joined, clicks, names)
    clicks.add([("a", "10:00"), ("b", "10:01")])
    names.add([("a", "Ada")])
    run.step()
    with pytest.raises(UsageError, match=r"state\(operator=...\); the query has 0 \(dedupe\), 1 \(symmetricHashJoin\)"):
        run.state()
    assert run.state(0) == [{"user": "a"}]
    sides = [(row["side"], row["user"]) for row in run.state(1)]
    assert sorted(sides) == [("left", "a"), ("left", "b"), ("right", "a")]


@proves("P1")
@pytest.mark.slow
def test_a_difference_from_the_batch_answer_is_told(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(by_minute, clicks)
    clicks.add([("ada", "10:00")])
    run.step()
    with pytest.raises(AssertionError, match=r"there would be Row.*ada.* too"):
        run.assert_equal_to_batch()
    run.assert_equal_to_batch(table=lambda rows: [])
    run.finish()
    run.assert_equal_to_batch()


def seconds(most: int) -> st.SearchStrategy[datetime]:
    return st.integers(0, most).map(lambda number: at("10:00") + timedelta(seconds=number))


@pytest.mark.full
@proves("P1")
@tries(4, suppress_health_check=[HealthCheck.function_scoped_fixture])  # each is a run on Spark
@given(data=st.data())
def test_any_split_with_restarts_and_crashes_gives_the_batch_answer(tidelog_pipeline: PipelineDriver, data) -> None:
    """Rows within the lateness, so that none is late whatever came before."""
    clicks = tidelog_pipeline.input("clicks", CLICKS, partitions=2)
    rows = st.lists(st.tuples(st.sampled_from("abc"), seconds(300)), min_size=1, max_size=4)
    with tidelog_pipeline.run(patiently, clicks) as run:
        for _ in range(data.draw(st.integers(1, 3))):
            clicks.add(data.draw(rows), partition=data.draw(st.integers(0, 1)))
            point = data.draw(st.sampled_from([None, *CRASH_POINTS]))
            if point is None:
                run.step(settle=data.draw(st.booleans()))
            else:
                run.crash(point)
                run.restart()
        run.finish()
        run.assert_equal_to_batch()
