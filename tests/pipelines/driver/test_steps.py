"""A pipeline in the test driver: steps, micro-batches, partitions, inputs, time, and what a step puts out."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from proving import proves
from tidelog.errors import PipelineFailed, UsageError
from tidelog.testing.pipeline import OutputMode, PipelineDriver
from tidelog.testing.pipeline_times import at

CLICKS = "user string, at timestamp"


def by_minute(clicks: DataFrame) -> DataFrame:
    counts = clicks.withWatermark("at", "10 seconds").groupBy(F.window("at", "1 minute"), "user").count()
    return counts.select("window.start", "user", "count")


def everything(rows: DataFrame) -> DataFrame:
    return rows


def placed(rows: DataFrame) -> DataFrame:
    return rows.select(F.spark_partition_id().alias("partition"), "user")


@proves("P1")
def test_a_step_puts_out_what_its_rows_lead_to(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(by_minute, clicks)
    clicks.add([("ada", "10:03:20"), ("ada", "10:03:59")])
    assert run.step() == []
    assert run.watermark == at("10:03:49")
    clicks.add([("bob", "10:04:30")])
    assert run.step() == [Row(start=at("10:03"), user="ada", count=2)]
    assert run.step() == []


@proves("P1")
@pytest.mark.slow
def test_a_step_without_settling_is_one_micro_batch(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(by_minute, clicks)
    clicks.add([("ada", "10:03:20"), ("bob", "10:04:30")])
    assert run.step(settle=False) == []
    assert [batch.number for batch in run.micro_batches] == [0]
    assert run.step(settle=False) == [Row(start=at("10:03"), user="ada", count=1)]
    assert run.step(settle=False) == []
    assert [batch.number for batch in run.micro_batches] == [0, 1]


@proves("P1")
@pytest.mark.slow
def test_rows_that_come_together_are_judged_by_the_watermark_before_them(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    settled, hasty = (tidelog_pipeline.run(by_minute, clicks) for _ in range(2))
    clicks.add([("ada", "10:09")])
    settled.step()
    hasty.step(settle=False)
    clicks.add([("late", "10:03")])
    settled.step()
    hasty.step(settle=False)
    assert settled.progress is not None
    assert {row.user for row in settled.finish()} == {"ada"}
    assert {row.user for row in [*hasty.output, *hasty.finish()]} == {"ada", "late"}


@proves("P1")
@pytest.mark.full
def test_an_end_of_all_time_before_the_first_row_is_refused(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    run, plain = tidelog_pipeline.run(by_minute, clicks), tidelog_pipeline.run(lambda rows: rows, clicks)
    clicks.add([("ada", "10:09")])
    with pytest.raises(UsageError, match=r"all rows that were added would be late.*call step\(\) before it"):
        run.finish()
    assert run.step() == []
    assert [row.user for row in run.finish()] == ["ada"], "nothing was lost by that"
    assert [row.user for row in plain.finish()] == ["ada"], "where no time is declared no row is late"


@proves("P1")
@pytest.mark.slow
def test_each_partition_is_a_task_of_its_own(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS, partitions=3)
    run = tidelog_pipeline.run(placed, clicks)
    clicks.add([("ada", "10:00"), ("bob", "10:01")], partition=2)
    clicks.add([("eve", "10:00")])
    assert run.step() == [Row(partition=0, user="eve"), Row(partition=2, user="ada"), Row(partition=2, user="bob")]
    clicks.add([("kim", "10:00")], partition=1)
    assert run.step() == [Row(partition=1, user="kim")]


@proves("P1")
def test_inputs_meet_in_one_micro_batch_or_in_several(tidelog_pipeline: PipelineDriver) -> None:
    def joined(clicks: DataFrame, names: DataFrame) -> DataFrame:
        return clicks.join(names, "user").select("user", "name")

    clicks = tidelog_pipeline.input("clicks", CLICKS)
    names = tidelog_pipeline.input("names", "user string, name string")
    run = tidelog_pipeline.run(joined, clicks, names)
    clicks.add([("a", "10:00")])
    names.add([("a", "Ada")])
    assert run.step() == [Row(user="a", name="Ada")]
    clicks.add([("b", "10:00")])
    assert run.step() == []
    names.add([{"name": "Bob", "user": "b"}])
    assert run.step() == [Row(user="b", name="Bob")]


@proves("P1")
@pytest.mark.slow
def test_runs_of_one_input_do_not_know_of_each_other(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    first = tidelog_pipeline.run(everything, clicks)
    clicks.add([("ada", "10:00")])
    assert [row.user for row in first.step()] == ["ada"]
    second = tidelog_pipeline.run(everything, clicks)
    clicks.add([("bob", "10:01")])
    assert [row.user for row in second.step()] == ["ada", "bob"]
    assert [row.user for row in first.step()] == ["bob"]


@proves("P1")
def test_the_watermark_moves_without_rows(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(by_minute, clicks)
    clicks.add([("ada", "10:03:20")])
    run.step()
    run.advance_watermark("10:03:59")
    assert run.step() == []
    run.advance_watermark("10:04")
    assert [row.user for row in run.step()] == ["ada"]
    run.advance_watermark("10:00")
    run.step()
    assert run.watermark == at("10:04"), "it never goes back"


@proves("P1")
@pytest.mark.slow
def test_time_passes_when_the_test_says_so(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(lambda rows: rows.select(F.current_timestamp().alias("now")), clicks)
    began = run.now
    clicks.add([("ada", "10:00")])
    assert run.step()[0].now - began < timedelta(seconds=1)
    run.advance_clock("1 hour")
    assert run.now - began >= timedelta(hours=1)
    clicks.add([("ada", "10:00")])
    assert timedelta(hours=1) <= run.step()[0].now - began < timedelta(hours=1, seconds=1)


@proves("P1")
@pytest.mark.parametrize("mode", ["update", "complete"])
@pytest.mark.slow
def test_the_output_is_that_of_its_mode(tidelog_pipeline: PipelineDriver, mode: OutputMode) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(lambda rows: rows.groupBy("user").count(), clicks, output_mode=mode)
    clicks.add([("ada", "10:00"), ("bob", "10:00")])
    assert sorted(run.step()) == [("ada", 1), ("bob", 1)]
    clicks.add([("bob", "10:00")])
    assert sorted(run.step()) == ([("bob", 2)] if mode == "update" else [("ada", 1), ("bob", 2)])
    assert len(run.output) == (3 if mode == "update" else 2)


@proves("P1")
@pytest.mark.slow
def test_values_of_every_kind_come_out_as_they_went_in(tidelog_pipeline: PipelineDriver) -> None:
    schema = (
        "b boolean, i int, l bigint, f double, t string, x binary, d date, at timestamp, n timestamp_ntz,"
        " m decimal(10,2), a array<int>, h map<string,int>, s struct<p: int, q: array<struct<r: timestamp>>>"
    )
    from datetime import date
    from decimal import Decimal

    row = (
        *(True, 1, 2**40, 0.5, "text", bytearray(b"\x00\xff"), date(2026, 3, 1), at("10:03:20.123456"), at("10:00")),
        *(Decimal("12.34"), [1, None], {"k": 1}, (1, [(at("10:03"),)])),
    )
    rows = tidelog_pipeline.input("rows", schema)
    run = tidelog_pipeline.run(everything, rows)
    rows.add([row, [None] * len(row)])
    full, empty = run.step()
    assert tuple(full) == row
    assert set(empty) == {None}
    assert run.output == tidelog_pipeline.batch(everything, rows)


@proves("P1")
def test_the_batch_answer_is_that_of_the_same_function(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS, partitions=2)
    run = tidelog_pipeline.run(by_minute, clicks)
    for minute in range(3):
        clicks.add([("ada", f"10:0{minute}:30")], partition=minute % 2)
        run.step()
    run.finish()
    assert sorted(run.output) == sorted(run.batch())
    assert len(run.output) == 3


@proves("P1")
@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda rows: rows.add([("ada",)]), "a row has 1 values"),
        (lambda rows: rows.add([{"usr": "ada"}]), "column usr does not exist"),
        (lambda rows: rows.add([("ada", "ten")]), "'ten' is not a time"),
        (lambda rows: rows.add([("ada", None)], partition=1), "no partition 1"),
    ],
)
def test_a_wrong_row_is_refused_where_it_is_added(tidelog_pipeline: PipelineDriver, mistake, said: str) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    with pytest.raises(UsageError, match=said):
        mistake(clicks)
    assert clicks.rows == []


@proves("P1")
def test_an_error_in_the_pipeline_names_the_users_line(tidelog_pipeline: PipelineDriver) -> None:
    def broken(rows: DataFrame) -> DataFrame:
        def by_name(batches):
            for batch in batches:
                raise LookupError("no such user")
                yield batch

        return rows.mapInArrow(by_name, rows.schema)

    clicks = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(broken, clicks)
    clicks.add([("ada", "10:00")])
    with pytest.raises(PipelineFailed, match=r"(?s)LookupError: no such user\n.*test_steps.py.*by_name"):
        run.step()


@proves("P9")
@pytest.mark.slow
def test_rows_dicts_and_tuples_are_added_alike_whatever_the_order_of_their_names(
    tidelog_pipeline: PipelineDriver,
) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    clicks.add([Row(at="10:03:20", user="ada"), Row(user="ada", at="10:03:20"), Row("ada", "10:03:20")])
    clicks.add([{"at": "10:03:20", "user": "ada"}, ("ada", "10:03:20")])
    assert clicks.rows == [("ada", at("10:03:20"))] * 5
    with pytest.raises(UsageError, match="column usr does not exist"):
        clicks.add([Row(usr="ada")])
