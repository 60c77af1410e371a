"""Analytics on Spark: in a stream as in a batch, and sketches within the error that is stated of them."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from proving import proves
from tidelog.errors import UsageError
from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.analytics import compare_with_earlier, rate
from tidelog.pipelines.operators.changes import changes
from tidelog.pipelines.operators.dedup import deduplicate
from tidelog.pipelines.operators.joins.stream_join import stream_join
from tidelog.pipelines.operators.sketches import distinct, hll_bits, kll_size, percentiles, top_k
from tidelog.pipelines.operators.time import event_time
from tidelog.pipelines.operators.windows.hopping import hopping
from tidelog.pipelines.operators.windows.tumbling import tumbling
from tidelog.testing.pipeline import PipelineDriver

VISITS = "user int, at timestamp, ms double, page string"
ERROR = 0.02
RANKS = [0.0, 0.5, 0.9, 0.99, 1.0]
Operator = Callable[[DataFrame], DataFrame]


def then(*operators: Operator) -> Operator:
    def pipeline(rows: DataFrame) -> DataFrame:
        for operator in operators:
            rows = rows.transform(operator)
        return rows

    return pipeline


def plain(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted(
        (tuple(value.strftime("%H:%M:%S") if hasattr(value, "strftime") else value for value in row) for row in rows),
        key=repr,
    )


# --- sketches --------------------------------------------------------------------------------------------------------


def visits(seed: int, count: int = 3000) -> list[tuple[Any, ...]]:
    """Six hours of a day: few users come often, few pages are read by many."""
    chance = random.Random(seed)
    return [
        (
            int(chance.paretovariate(0.5)) % 2000,
            f"{chance.randrange(6):02}:{chance.randrange(60):02}:{chance.randrange(60):02}",
            chance.lognormvariate(3, 1),
            f"page{int(chance.paretovariate(0.8)) % 300}",
        )
        for _ in range(count)
    ]


def check(found: Row, rows: list[tuple[Any, ...]], error: float) -> None:
    """`error` as stated, three and a half times over: what is stated is not the worst case."""
    users = len({row[0] for row in rows})
    assert abs(found["users"] - users) <= 3.5 * error * users + 1
    times = sorted(row[2] for row in rows)
    for rank, value in zip(RANKS, found["ms"], strict=True):
        low, high = bisect_left(times, value) / len(times), bisect_right(times, value) / len(times)
        assert low - 3.5 * error <= rank <= high + 3.5 * error
    pages = Counter(row[3] for row in rows)
    assert [pages[item] for item, _ in found["pages"]] == [count for _, count in found["pages"]]
    assert sorted(pages.values(), reverse=True)[:5] == [count for _, count in found["pages"]]


@proves("P2", "B1")
@pytest.mark.slow
def test_a_day_made_of_the_sketches_of_its_hours_is_within_the_error_of_one_sketch(
    tidelog_pipeline: PipelineDriver, seed: int
) -> None:
    """Hours and the day, in one query, and in a batch: the sketches are Spark's and stay small."""
    hours = {
        "users": distinct("user", error=ERROR, sketch=True),
        "ms": percentiles("ms", RANKS, error=ERROR, sketch=True),
        "pages": top_k("page", 5, sketch=True),
    }
    day = {
        "users": distinct("users", error=ERROR, merge=True),
        "ms": percentiles("ms", RANKS, error=ERROR, merge=True),
        "pages": top_k("pages", 5, merge=True),
    }
    pipeline = then(event_time("at", "1 day"), tumbling("1 hour", aggregates=hours), tumbling("1 day", aggregates=day))
    rows = visits(seed)
    given = tidelog_pipeline.input("visits", VISITS)
    run = tidelog_pipeline.run(pipeline, given)
    for cut in range(0, len(rows), 1000):
        given.add(rows[cut : cut + 1000])
        assert run.step() == []
    [found] = run.finish()
    check(found, rows, ERROR)
    [batch] = run.batch()
    check(batch, rows, ERROR)


@proves("P2")
@pytest.mark.slow
def test_windows_take_sketches_beside_other_aggregates_and_folds_refuse_them(
    tidelog_pipeline: PipelineDriver, seed: int
) -> None:
    aggregates = {
        "n": agg.count(),
        "users": distinct("user"),
        "ms": percentiles("ms", RANKS),
        "pages": top_k("page", 5),
    }
    rows = visits(seed, 600)
    given = tidelog_pipeline.input("visits", VISITS)
    run = tidelog_pipeline.run(then(event_time("at", "1 day"), tumbling("1 hour", aggregates=aggregates)), given)
    given.add(rows)
    run.step()
    for found in run.finish():
        hour = [row for row in rows if row[1][:2] == found["window_start"].strftime("%H")]
        assert found["n"] == len(hour)
        check(found, hour, 0.01)
    corrected = tumbling("1 hour", aggregates=aggregates, late="correct", allowed_lateness="1 hour")
    with pytest.raises(UsageError, match="a sketch of Spark's, which only Spark's own windows have"):
        tidelog_pipeline.run(then(event_time("at", "1 day"), corrected), given)


@proves("P2")
@pytest.mark.slow
def test_beyond_what_is_tracked_the_most_frequent_are_short_by_no_more_than_stated(
    tidelog_spark: SparkSession, seed: int
) -> None:
    chance, tracked = random.Random(seed), 64
    values = [chance.choice([1, 1, 1, 2, 2, 3, chance.randrange(10, 5000)]) for _ in range(20_000)]
    frame = tidelog_spark.createDataFrame([(value,) for value in values], "v int")
    [[found]] = frame.agg(top_k("v", 5, tracked=tracked).native("")).collect()
    counts = Counter(values)
    assert len(counts) > 10 * tracked
    for item, count in found:
        assert abs(counts[item] - count) <= 3.5 / tracked * len(values)
    assert found[0]["item"] == counts.most_common(1)[0][0]


@proves("P2")
def test_of_no_values_a_count_is_0_percentiles_are_null_and_nothing_is_frequent(tidelog_spark: SparkSession) -> None:
    frame = tidelog_spark.createDataFrame([(None, None, None)], "user int, ms double, page string")
    wanted = [distinct("user"), percentiles("ms", RANKS), percentiles("ms", 0.5), top_k("page", 3)]
    assert tuple(frame.agg(*(one.native("") for one in wanted)).collect()[0]) == (0, None, None, [])


@proves("P2")
def test_a_stated_error_is_kept_by_the_least_sketch_that_has_it() -> None:
    assert [hll_bits(error) for error in (0.5, 0.1, 0.0163, 0.016, 0.01)] == [4, 7, 12, 13, 14]
    assert kll_size(0.0133) == pytest.approx(300, abs=5)
    for wrong in (0, 1, -1, 1e-9):
        with pytest.raises(UsageError, match="error of"):
            distinct("user", error=wrong)
        with pytest.raises(UsageError, match="error of"):
            percentiles("ms", 0.5, error=wrong)
    for ranks in ([], 1.01, [-0.1]):
        with pytest.raises(UsageError, match="ranks from 0 to 1"):
            percentiles("ms", ranks)
    with pytest.raises(UsageError, match="1 <= k <= tracked"):
        top_k("page", 20_000)


@proves("P2")
def test_what_is_no_number_and_what_is_no_sketch_is_refused_when_it_is_declared(
    tidelog_pipeline: PipelineDriver,
) -> None:
    given = tidelog_pipeline.input("visits", VISITS)
    for aggregate, why in (
        (percentiles("page", 0.5), "percentiles are of numbers"),
        (distinct("page", merge=True), "takes sketches, and 'page' is a string"),
        (percentiles("ms", 0.5, merge=True), "takes sketches, and 'ms' is a double"),
    ):
        window = tumbling("1 hour", aggregates={"found": aggregate})
        with pytest.raises(UsageError, match=why):
            tidelog_pipeline.run(then(event_time("at", "1 day"), window), given)


# --- rates and rolling averages ---------------------------------------------------------------------------------------


@proves("P2", "B1")
def test_rates_and_rolling_averages_are_those_of_the_batch(tidelog_pipeline: PipelineDriver) -> None:
    """Five minutes every minute: each minute is in five of them."""
    rolling = hopping("5 minutes", every="1 minute", by="user", aggregates={"ms": agg.mean("ms"), "n": agg.count()})

    def pipeline(rows: DataFrame) -> DataFrame:
        found = rows.transform(event_time("at", "1 minute")).transform(rolling)
        per_minute = found.withColumn("a_second", rate("n")).withColumn("a_minute", rate("n", per="1 minute"))
        return per_minute.select("window_start", "user", "ms", "a_second", "a_minute")

    given = tidelog_pipeline.input("visits", VISITS)
    run = tidelog_pipeline.run(pipeline, given)
    given.add([(1, "10:00:10", 10.0, "a"), (1, "10:01:10", 20.0, "a")])
    run.step()
    given.add([(1, "10:04:00", 60.0, "b"), (2, "10:04:30", 5.0, "b")])
    run.step()
    run.finish()
    assert plain(run.output) == plain(run.batch())
    assert ("10:00:00", 1, 30.0, 0.01, 0.6) in plain(run.output)


# --- the same time earlier --------------------------------------------------------------------------------------------


@pytest.mark.full
@proves("P2", "B1", "F1")
def test_each_hour_is_compared_with_the_same_hour_of_the_day_before(tidelog_pipeline: PipelineDriver) -> None:
    hours = tumbling("1 hour", by="page", aggregates={"n": agg.count(), "ms": agg.sum("ms")})
    compare = compare_with_earlier("1 day", by="page", columns=["n", "ms"])

    def pipeline(rows: DataFrame) -> DataFrame:
        found = rows.transform(event_time("at", "10 minutes")).transform(hours).transform(compare)
        return found.select("window_start", "page", "n", "n_earlier", "ms", "ms_earlier")

    given = tidelog_pipeline.input("visits", VISITS)
    run = tidelog_pipeline.run(pipeline, given)
    given.add([(1, "2026-03-01 10:10", 1.0, "a"), (1, "2026-03-01 10:50", 2.0, "a"), (1, "2026-03-01 10:20", 4.0, "b")])
    run.step()
    given.add([(1, "2026-03-01 20:00", 1.0, "a")])
    assert [row["n_earlier"] for row in run.step()] == [None, None]
    run.restart()
    given.add([(1, "2026-03-02 10:30", 8.0, "a"), (1, "2026-03-02 11:30", 8.0, "b")])
    came = run.step()
    given.add([(1, "2026-03-02 13:00", 1.0, "c")])
    found = {(row["page"], row["window_start"].hour): row for row in came + run.step()}
    assert (found["a", 10]["n_earlier"], found["a", 10]["ms_earlier"]) == (2, 3.0)
    assert found["b", 11]["n_earlier"] is None
    run.finish()
    assert plain(run.output) == plain(run.batch())


@proves("P2", "P7", "F1")
@pytest.mark.slow
def test_a_row_that_is_late_for_a_comparison_is_dropped_and_counted(tidelog_pipeline: PipelineDriver) -> None:
    """It would come out behind the watermark, and Spark ends a query for that, again after every restart."""
    pipeline = then(event_time("at", "10 seconds"), compare_with_earlier("1 hour", by="sensor", columns="degrees"))
    given = tidelog_pipeline.input("readings", READINGS)
    run = tidelog_pipeline.run(pipeline, given)
    given.add([("a", "10:05:00", 1.0, "")])
    assert [row["degrees_earlier"] for row in run.step()] == [None]
    given.add([("a", "10:00:00", 2.0, "late"), ("a", None, 3.0, "without a time"), ("a", "11:05:00", 4.0, "")])
    assert [(row["degrees"], row["degrees_earlier"]) for row in run.step()] == [(4.0, 1.0)]
    (state,) = run.fold_states()
    assert state.counts == {"in": 4, "dropped": 2, "late": 1, "without_time": 1}


@proves("P2", "P7")
@pytest.mark.full
def test_a_period_that_is_shorter_than_the_lateness_is_refused_for_rows_that_may_come_out_of_order(
    tidelog_pipeline: PipelineDriver,
) -> None:
    """What was a minute before may come after, and be no late row: a batch would find it."""
    given = tidelog_pipeline.input("readings", READINGS)
    compare = compare_with_earlier("1 minute", by="sensor", columns="degrees")
    with pytest.raises(
        UsageError, match="rows may come 0:01:01 late, and compare_with_earlier looks for what was 0:01:00"
    ):
        tidelog_pipeline.run(then(event_time("at", "61 seconds"), compare), given)
    run = tidelog_pipeline.run(then(event_time("at", "1 minute"), compare), given)
    given.add([("a", "10:01:00", 2.0, "")])
    run.step()
    given.add([("a", "10:00:00", 1.0, "late by then"), ("a", "10:02:00", 3.0, "")])
    run.step()
    assert [(row["degrees"], row["degrees_earlier"]) for row in run.output] == [(2.0, None), (3.0, 2.0)]
    minutes = tumbling("1 minute", by="sensor", aggregates={"degrees": agg.max("degrees")})
    tidelog_pipeline.run(then(event_time("at", "1 hour"), minutes, compare), given)


@proves("P2", "P7")
def test_a_comparison_behind_a_join_of_streams_is_refused_since_its_rows_come_at_any_time(
    tidelog_pipeline: PipelineDriver,
) -> None:
    given = tidelog_pipeline.input("readings", READINGS)

    def pipeline(rows: DataFrame) -> DataFrame:
        timed = rows.transform(event_time("at", "10 seconds"))
        other = rows.selectExpr("sensor", "at as met_at").transform(event_time("met_at", "10 seconds"))
        met = timed.transform(stream_join(other, on="sensor", within="1 hour"))
        return met.transform(compare_with_earlier("1 hour", by="sensor", columns="degrees"))

    with pytest.raises(UsageError, match="compare_with_earlier would be given rows from behind the watermark"):
        tidelog_pipeline.run(pipeline, given)


@proves("P2", "P7")
def test_a_comparison_of_results_and_other_rows_together_is_refused_since_either_may_be_late(
    tidelog_pipeline: PipelineDriver,
) -> None:
    """A late reading among the minutes would come out behind the watermark, and Spark ends a query for that."""
    minutes = tumbling("1 minute", by="sensor", aggregates={"degrees": agg.max("degrees")})
    compare = compare_with_earlier("1 hour", by="sensor", columns="degrees")

    def both(rows: DataFrame, timed: DataFrame) -> DataFrame:
        found = timed.transform(minutes).select("sensor", F.col("window_time").alias("at"), "degrees")
        return found.union(rows.select("sensor", "at", "degrees"))

    def pipeline(rows: DataFrame) -> DataFrame:
        timed = rows.transform(event_time("at", "10 seconds"))
        return both(timed, timed).transform(compare)

    given = tidelog_pipeline.input("readings", READINGS)
    with pytest.raises(UsageError, match="given results that were held back, and other rows among them"):
        tidelog_pipeline.run(pipeline, given)

    def of_results(rows: DataFrame) -> DataFrame:
        found = rows.transform(event_time("at", "10 seconds")).transform(minutes)
        return found.union(found).transform(compare)

    tidelog_pipeline.run(of_results, given)


# --- duplicates and changes -------------------------------------------------------------------------------------------

READINGS = "sensor string, at timestamp, degrees double, status string"


@proves("P2", "B1")
@pytest.mark.slow
def test_a_record_that_is_sent_again_goes_on_once_and_at_once(tidelog_pipeline: PipelineDriver) -> None:
    """Spark's own: while the watermark has not moved on, a key is a duplicate, however much later it comes back."""
    pipeline = then(event_time("at", "10 seconds"), deduplicate("sensor"))
    given = tidelog_pipeline.input("readings", READINGS)
    run = tidelog_pipeline.run(pipeline, given)
    given.add([("a", "10:00:00", 1.0, "x"), ("a", "10:00:00", 1.0, "x"), ("b", "10:00:01", 1.0, "x")])
    assert [row["sensor"] for row in run.step()] == ["a", "b"]
    given.add([("a", "10:00:09", 1.0, "again")])
    assert run.step() == []
    given.add([("b", "11:00:00", 2.0, "an hour later, and nothing has moved the watermark")])
    assert run.step() == []
    given.add([("b", "11:00:01", 2.0, "now it has moved")])
    assert [row["sensor"] for row in run.step()] == ["b"]
    assert [row["sensor"] for row in run.batch()] == ["a", "b"]


@proves("P2", "P7", "B1")
@pytest.mark.slow
def test_a_row_without_a_time_is_no_first_of_its_key(tidelog_pipeline: PipelineDriver) -> None:
    given = tidelog_pipeline.input("readings", READINGS)
    run = tidelog_pipeline.run(then(event_time("at", "10 seconds"), deduplicate("sensor")), given)
    given.add([("a", None, 1.0, "x"), ("a", "10:00:00", 2.0, "x"), ("b", None, 3.0, "x")])
    assert [row["degrees"] for row in run.step()] == [2.0]
    assert [row["degrees"] for row in run.batch()] == [2.0]


@pytest.mark.full
@proves("P2", "B1", "F1")
def test_keys_that_come_back_are_told_from_duplicates_by_their_time_alone(tidelog_pipeline: PipelineDriver) -> None:
    pipeline = then(event_time("at", "10 seconds"), deduplicate("sensor", within="1 minute"))
    given = tidelog_pipeline.input("readings", READINGS, partitions=2)
    run = tidelog_pipeline.run(pipeline, given)
    given.add([("a", "10:00:05", 2.0, "second"), ("a", "10:00:00", 1.0, "first"), ("b", "10:00:01", 1.0, "first")])
    assert run.step() == []
    given.add([("a", "10:01:00", 3.0, "a minute after the first: within"), ("a", "10:01:00.001", 4.0, "after it")])
    assert plain([row["status"] for row in run.step()]) == plain(["first", "first"])
    given.add([("a", "11:00:00", 5.0, "later")])
    run.crash("before the commit")
    run.restart()
    run.finish()
    assert plain(run.output) == plain(run.batch())
    assert [row["degrees"] for row in run.output if row["sensor"] == "a"] == [1.0, 4.0, 5.0]


@pytest.mark.full
@proves("P2", "B1", "F1")
def test_a_change_is_put_out_with_what_was_before_it(tidelog_pipeline: PipelineDriver) -> None:
    def pipeline(rows: DataFrame) -> DataFrame:
        timed = rows.transform(event_time("at", "10 seconds"))
        return timed.transform(changes("status", by="sensor")).select("at", "sensor", "status", "status_before")

    given = tidelog_pipeline.input("readings", READINGS)
    run = tidelog_pipeline.run(pipeline, given)
    given.add([("a", "10:00:03", 1.0, "off"), ("a", "10:00:01", 1.0, "on"), ("a", "10:00:02", 1.0, "on")])
    assert run.step() == []
    given.add([("a", "10:00:30", 1.0, "off"), ("a", "10:00:31", 1.0, None)])
    assert plain(run.step()) == [("10:00:01", "a", "on", None), ("10:00:03", "a", "off", "on")]
    run.restart()
    run.finish()
    assert plain(run.output) == plain(run.batch())
    assert run.output[-1]["status_before"] == "off"


@proves("P2")
@pytest.mark.full
def test_a_value_that_trembles_is_no_change_and_what_does_not_fit_is_refused(tidelog_pipeline: PipelineDriver) -> None:
    def pipeline(**options: Any) -> Operator:
        return then(event_time("at", "10 seconds"), changes(by="sensor", **options))

    given = tidelog_pipeline.input("readings", READINGS)
    run = tidelog_pipeline.run(pipeline(columns="degrees", at_least=0.5), given)
    given.add([("a", f"10:00:0{n}", degrees, "") for n, degrees in enumerate([20.0, 20.4, 19.9, 20.5, 20.1, 20.0])])
    run.step()
    assert [(row["degrees"], row["degrees_before"]) for row in run.finish()] == [
        (20.0, None),
        (20.5, 20.0),
        (20.0, 20.5),
    ]
    for options, why in (
        ({"columns": "status", "at_least": 1}, "at_least is of numbers"),
        ({"columns": "nothing"}, "column 'nothing' does not exist"),
    ):
        with pytest.raises(UsageError, match=why):
            tidelog_pipeline.run(pipeline(**options), given)
    with pytest.raises(UsageError, match="above 0, and of one column"):
        changes(["degrees", "status"], by="sensor", at_least=1)
    with pytest.raises(UsageError, match="deduplicate takes plain rows, and this is a changelog"):
        tidelog_pipeline.run(
            then(event_time("at", "1 second"), lambda rows: rows.withColumn("_op", F.lit("+I")), deduplicate("sensor")),
            given,
        )
