"""Windows on Spark: both roads, stream and batch, each step by step."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row

from proving import proves
from tidelog.errors import UsageError
from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.analytics import compare_with_earlier
from tidelog.pipelines.operators.changes import changes
from tidelog.pipelines.operators.dedup import deduplicate
from tidelog.pipelines.operators.time import event_time
from tidelog.pipelines.operators.windows.hopping import hopping
from tidelog.pipelines.operators.windows.late import late_rows, on_time
from tidelog.pipelines.operators.windows.session import session
from tidelog.pipelines.operators.windows.sliding import sliding
from tidelog.pipelines.operators.windows.tumbling import tumbling
from tidelog.testing.pipeline import PipelineDriver
from tidelog.testing.pipeline_input import PipelineInput
from tidelog.testing.pipeline_times import at

CLICKS = "user string, at timestamp, price int"
Operator = Callable[[DataFrame], DataFrame]
COUNTS = {"clicks": agg.count(), "paid": agg.sum("price")}


def over(window: Operator, *more: Operator, lateness: str = "10 seconds") -> Operator:
    def pipeline(clicks: DataFrame) -> DataFrame:
        found = clicks.transform(event_time("at", lateness)).transform(window)
        for operator in more:
            found = found.transform(operator)
        return found

    return pipeline


def told(rows: list[Row]) -> list[tuple[Any, ...]]:
    """(op, start, end, user, the aggregates); times as 10:03:00."""
    found = []
    for row in rows:
        fields = row.asDict()
        head = [fields.pop("_op")] if "_op" in fields else []
        times = [fields.pop(name).strftime("%H:%M:%S") for name in ("window_start", "window_end")]
        for name in ("_seq", "window_time", "_late"):
            fields.pop(name, None)
        found.append((*head, *times, *fields.values()))
    return found


@proves("P8")
def test_a_minute_that_tumbles_is_sparks_own_where_nothing_more_is_asked_for(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    pipeline = over(tumbling("1 minute", by="user", aggregates=COUNTS))
    run = tidelog_pipeline.run(pipeline, clicks)
    clicks.add([("ada", "10:03:00", 1), ("ada", "10:03:59.999", 2), ("ada", "10:04:00", 4), ("bob", "10:03:30", None)])
    assert run.step() == []
    clicks.add([("bob", "10:05:20", 1)])
    assert sorted(told(run.step())) == [
        ("10:03:00", "10:04:00", "ada", 2, 3),
        ("10:03:00", "10:04:00", "bob", 1, None),
        ("10:04:00", "10:05:00", "ada", 1, 4),
    ]
    assert len(run.batch()) == 4


@pytest.mark.full
@proves("P8", "P7")
@pytest.mark.parametrize("window", ["tumbling", "hopping", "session"])
def test_both_roads_give_the_same_results_and_the_fold_has_the_late_rows_too(
    tidelog_pipeline: PipelineDriver, window: str
) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    operators: dict[str, Callable[..., Operator]] = {
        "tumbling": lambda **more: tumbling("1 minute", by="user", aggregates=COUNTS, **more),
        "hopping": lambda **more: hopping("1 minute", every="20 seconds", by="user", aggregates=COUNTS, **more),
        "session": lambda **more: session("30 seconds", by="user", aggregates=COUNTS, **more),
    }
    native = tidelog_pipeline.run(over(operators[window]()), clicks)
    fold = tidelog_pipeline.run(over(operators[window](late="side_output")), clicks)
    late = 0
    for rows in (
        [("ada", "10:03:05", 1), ("bob", "10:03:50", 2)],
        [("ada", "10:04:40", 3), (None, "10:04:20", 4)],
        [("ada", "10:03:10", 5), ("bob", "10:03:59", 6), ("bob", "10:04:31", 7)],
        [("cleo", "10:09:00", 8)],
        [("cleo", "10:09:00", 9)],
    ):
        clicks.add(rows)
        found = fold.step()
        assert sorted(told([row for row in found if row._late is None]), key=repr) == sorted(
            told(native.step()), key=repr
        )
        late += sum(row._late is not None for row in found)
    assert late > 0
    assert sorted(told(fold.batch()), key=repr) == sorted(told(native.batch()), key=repr)


@proves("P7")
@pytest.mark.slow
def test_late_rows_go_their_own_way_as_they_came_with_the_window_that_they_missed(
    tidelog_pipeline: PipelineDriver,
) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    window = hopping("1 minute", every="30 seconds", by="user", aggregates=COUNTS, late="side_output")
    late, good = (tidelog_pipeline.run(over(window, which), clicks) for which in (late_rows, on_time))
    clicks.add([("ada", "10:05:10", 1)])
    late.step(), good.step()
    clicks.add([("ada", "10:04:40", 2), ("bob", None, 3)])
    found = late.step()
    assert [(row.user, row["at"], row.price) for row in found] == [("ada", at("10:04:40"), 2), ("bob", None, 3)]
    assert [row._late.why for row in found] == ["its window was over", "it has no event time"]
    assert [row._late.window_start for row in found] == [at("10:04"), None]
    assert found[0]._late.watermark == at("10:05")
    assert told(good.step()) == []
    assert told(good.finish()) == [
        ("10:04:30", "10:05:30", "ada", 2, 3),
        ("10:05:00", "10:06:00", "ada", 1, 1),
    ]


@proves("P7", "P8")
def test_a_late_row_corrects_its_window_the_old_result_is_taken_back_first(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    window = tumbling("1 minute", by="user", aggregates=COUNTS, late="correct", allowed_lateness="5 minutes")
    run = tidelog_pipeline.run(over(window), clicks)
    clicks.add([("ada", "10:03:10", 1), ("bob", "10:05:00", 1)])
    assert told(run.step()) == [("+I", "10:03:00", "10:04:00", "ada", 1, 1)]
    run.restart()
    clicks.add([("ada", "10:03:20", 10)])
    assert told(run.step()) == [
        ("-U", "10:03:00", "10:04:00", "ada", 1, 1),
        ("+U", "10:03:00", "10:04:00", "ada", 2, 11),
    ]
    clicks.add([("bob", "10:09:10", 1)])
    assert told(run.step()) == [("+I", "10:05:00", "10:06:00", "bob", 1, 1)]
    clicks.add([("ada", "10:03:30", 100)])
    assert told(run.step()) == []


@proves("P7", "P8", "F1")
@pytest.mark.full
def test_a_session_that_ends_a_microsecond_behind_a_watermark_is_put_out(tidelog_pipeline: PipelineDriver) -> None:
    """Spark ends a query whose results are not beyond the watermark of the micro-batch before."""
    given = tidelog_pipeline.input("clicks", "user string, at timestamp")
    window = session("5 seconds", by="user", aggregates={"n": agg.count()}, late="side_output")
    run = tidelog_pipeline.run(lambda rows: rows.transform(event_time("at", "0 seconds")).transform(window), given)
    for user, time in (("ada", "10:00:00.000001"), ("bob", "10:00:05"), ("bob", "10:00:06")):
        given.add([(user, time)])
        run.step()
    assert [row["user"] for row in run.output] == ["ada"]


@proves("P8")
@pytest.mark.full
def test_early_sessions_are_a_changelog_and_a_bridge_takes_two_back(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    window = session("30 minutes", by="user", aggregates=COUNTS, early=True)
    run = tidelog_pipeline.run(over(window, lateness="1 hour"), clicks)
    clicks.add([("ada", "10:00", 1), ("ada", "10:50", 2)])
    assert told(run.step()) == [
        ("+I", "10:00:00", "10:30:00", "ada", 1, 1),
        ("+I", "10:50:00", "11:20:00", "ada", 1, 2),
    ]
    clicks.add([("ada", "10:25", 4)])
    assert told(run.step()) == [
        ("-D", "10:00:00", "10:30:00", "ada", 1, 1),
        ("-D", "10:50:00", "11:20:00", "ada", 1, 2),
        ("+I", "10:00:00", "11:20:00", "ada", 3, 7),
    ]


@pytest.mark.full
@proves("P8")
def test_early_results_come_once_in_an_interval_of_event_time(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(over(tumbling("10 minutes", by="user", aggregates=COUNTS, early="1 minute")), clicks)
    clicks.add([("ada", "10:00:40", 1)])
    assert told(run.step()) == [("+I", "10:00:00", "10:10:00", "ada", 1, 1)], "with the first watermark"
    clicks.add([("ada", "10:00:50", 2)])
    assert run.step() == []
    clicks.add([("ada", "10:01:00", 3)])
    assert run.step() == []
    run.restart()
    clicks.add([("ada", "10:01:10", 4)])
    assert told(run.step()) == [
        ("-U", "10:00:00", "10:10:00", "ada", 1, 1),
        ("+U", "10:00:00", "10:10:00", "ada", 4, 10),
    ]
    clicks.add([("ada", "10:01:11", 5)])
    assert run.step() == []
    assert [row[0] for row in told(run.finish())] == ["-U", "+U"]
    assert told(run.batch()) == [("+I", "10:00:00", "10:10:00", "ada", 5, 15)]


@pytest.mark.full
@proves("P8")
def test_a_report_comes_for_every_hop_and_every_declared_key_also_without_a_row(
    tidelog_pipeline: PipelineDriver,
) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS, partitions=2)
    every = hopping("20 minutes", every="10 minutes", by="user", aggregates=COUNTS, emit="always", keys=["ada", "bob"])
    run = tidelog_pipeline.run(over(every), clicks)
    clicks.add([("ada", "10:01", 1)])
    assert run.step() == []
    run.advance_watermark("10:10")
    first = [("09:50:00", "10:10:00", "ada", 1, 1), ("09:50:00", "10:10:00", "bob", 0, None)]
    assert sorted(told(run.step())) == first
    run.restart()
    run.advance_watermark("10:30")
    second = [("10:00:00", "10:20:00", "ada", 1, 1), ("10:00:00", "10:20:00", "bob", 0, None)]
    silent = [("10:10:00", "10:30:00", "ada", 0, None), ("10:10:00", "10:30:00", "bob", 0, None)]
    assert sorted(told(run.step())) == second + silent
    clicks.add([("cleo", "10:31", 7)], partition=1)
    run.step()
    run.advance_watermark("10:40")
    assert [row[2:] for row in sorted(told(run.step()))] == [("ada", 0, None), ("bob", 0, None), ("cleo", 1, 7)]
    assert len(run.batch()) == 2 * 5 + 2


@proves("P8")
@pytest.mark.slow
def test_two_actions_within_30_minutes_slide_on_spark(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(over(sliding("30 minutes", by=["user"], aggregates=COUNTS)), clicks)
    clicks.add([("ada", "10:00", 1), ("ada", "10:30", 2), ("bob", "11:30", 1)])
    stream = run.step() + run.finish()
    expected = [
        ("09:30:00", "10:00:00", "ada", 1, 1),
        ("10:00:00", "10:30:00", "ada", 2, 3),
        ("10:00:00", "10:30:00", "ada", 1, 2),
        ("11:00:00", "11:30:00", "bob", 1, 1),
    ]
    assert sorted(told(stream)) == sorted(expected)
    assert sorted(told(run.batch())) == sorted(expected)


@proves("P8")
@pytest.mark.full
def test_a_sliding_window_may_end_where_the_watermark_has_just_been(tidelog_pipeline: PipelineDriver) -> None:
    """Spark ends a query in which the event time of a result is not beyond the watermark of the micro-batch before."""
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(over(sliding("1 minute", by="user", aggregates=COUNTS)), clicks)
    clicks.add([("ada", "10:00:00", 1), ("bob", "10:00:10", 2)])
    assert run.step() == []
    assert run.watermark == at("10:00")
    run.advance_watermark("10:00:00.001")
    assert told(run.step()) == [("09:59:00", "10:00:00", "ada", 1, 1)]


@proves("P8")
@pytest.mark.parametrize("late", ["drop", pytest.param("side_output", marks=pytest.mark.full)])
@pytest.mark.slow
def test_windows_of_windows_know_the_event_time_of_results(tidelog_pipeline: PipelineDriver, late: Any) -> None:
    """A minute's result falls into the hour that the minute lies in, the last minute's too."""
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    minutes = tumbling("1 minute", by="user", aggregates=COUNTS, late=late)
    hours = tumbling("1 hour", aggregates={"minutes": agg.count(), "clicks": agg.sum("clicks")})
    apart = [on_time] if late == "side_output" else []
    run = tidelog_pipeline.run(over(minutes, *apart, hours), clicks)
    clicks.add([("ada", "10:03:10", 1), ("ada", "10:03:20", 1), ("ada", "10:59:59", 1)])
    clicks.add([("bob", "11:00:30", 1)])
    expected = [("10:00:00", "11:00:00", 2, 3)]
    assert told(run.step() + run.finish())[:1] == expected
    assert told(sorted(run.batch()))[:1] == expected


@proves("P7", "P8")
@pytest.mark.parametrize("late", ["drop", "side_output"])
def test_a_fold_behind_windows_is_refused_since_it_would_take_their_results_for_late(
    tidelog_pipeline: PipelineDriver, late: Any
) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    minutes = tumbling("1 minute", by="user", aggregates=COUNTS, late=late)
    apart = [on_time] if late == "side_output" else []
    hours = {"aggregates": {"minutes": agg.count()}}
    others = [deduplicate("user", within="1 hour"), changes("clicks", by="user")]
    early = tumbling("1 hour", **hours, early=True)
    windows = [("sliding windows", sliding("1 hour", **hours)), ("tumbling windows", early)]
    for called, again in (*windows, *(("", other) for other in others)):
        with pytest.raises(UsageError, match=f"{called} would take results of an operator before it for late"):
            tidelog_pipeline.run(over(minutes, *apart, again), clicks)
        assert over(minutes, *apart, again)(clicks.batch()).columns


@proves("P7", "P8")
@pytest.mark.parametrize("late", [pytest.param("drop", marks=pytest.mark.full), "side_output"])
@pytest.mark.slow
def test_a_row_without_a_time_is_in_no_window_on_both_roads_and_holds_nothing_up(
    tidelog_pipeline: PipelineDriver, late: Any
) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(over(tumbling("1 minute", by="user", aggregates=COUNTS, late=late)), clicks)
    clicks.add([("ada", None, 1), ("ada", "10:03:10", 2), ("bob", "10:05:00", 4)])
    for rows in (run.step(), run.batch()):
        assert ("10:03:00", "10:04:00", "ada", 1, 2) in told([row for row in rows if row.window_start is not None])
        assert [row._late.why for row in rows if row.window_start is None] == ["it has no event time"] * (
            late == "side_output"
        )
    for state in run.fold_states():
        assert state.counts == {"in": 3, "aggregated": 2, "diverted": 1, "dropped": 0}


@proves("P8")
@pytest.mark.slow
def test_every_aggregate_is_the_same_on_both_roads(tidelog_pipeline: PipelineDriver) -> None:
    every = {
        "n": agg.count(),
        "there": agg.count("price"),
        "total": agg.sum("price"),
        "exact": agg.sum("exact"),
        "mean": agg.mean("price"),
        "exact_mean": agg.mean("exact"),
        "least": agg.min("name"),
        "most": agg.max("at"),
        "first": agg.first("name"),
        "last": agg.last("price"),
        "known": agg.last("price", ignore_nulls=True),
        "dearest": agg.max_by("name", "exact"),
        "widest": agg.max_by("price", "wide"),
        "cheapest": agg.min_by("at", "price"),
        "spread": agg.stddev("price"),
        "variance": agg.variance("wide"),
        "nan": agg.max("wide"),
    }
    rows = tidelog_pipeline.input("rows", "name string, at timestamp, price int, exact decimal(7,2), wide double")
    rows.add(
        [
            ("b", "10:00:01", 3, Decimal("1.25"), 1.5),
            (None, "10:00:02", None, None, None),
            ("a", "10:00:03", 5, Decimal("-99999.99"), float("nan")),
            ("c", "10:00:04", None, Decimal("0.01"), -2.0),
            (None, "10:01:00", None, None, None),
        ]
    )
    native = tidelog_pipeline.batch(over(tumbling("1 minute", aggregates=every)), rows)
    fold = tidelog_pipeline.batch(over(tumbling("1 minute", aggregates=every, late="side_output"), on_time), rows)
    assert [row.asDict().keys() for row in fold] == [row.asDict().keys() for row in native]
    assert repr(sorted(fold)) == repr(sorted(native))


@proves("P8")
@pytest.mark.slow
def test_sums_that_leave_their_range_end_the_query_on_both_roads(tidelog_pipeline: PipelineDriver) -> None:
    rows = tidelog_pipeline.input("rows", "at timestamp, big bigint")
    rows.add([("10:00", 2**63 - 1), ("10:00", 1)])
    for late, words in (("drop", "ARITHMETIC_OVERFLOW"), ("side_output", "has left the range of a 64-bit integer")):
        window = tumbling("1 minute", aggregates={"total": agg.sum("big")}, late=late)  # type: ignore[arg-type]
        with pytest.raises(Exception, match=words):
            tidelog_pipeline.batch(over(window), rows)


@proves("P8")
@pytest.mark.parametrize(
    ("window", "words"),
    [
        (lambda: tumbling("1 minute", aggregates={}), "tumbling has no aggregates"),
        (lambda: hopping("1 minute", every="2 minutes", aggregates=COUNTS), "longer than size"),
        (
            lambda: tumbling("1 minute", aggregates=COUNTS, late="correct"),
            "needs an allowed lateness; write allowed_lateness=",
        ),
        (
            lambda: tumbling("1 minute", aggregates=COUNTS, allowed_lateness="1 hour"),
            "are for late='correct', and late is 'drop'",
        ),
        (lambda: session("0 seconds", aggregates=COUNTS), "has to be longer"),
        (lambda: sliding("1 month", aggregates=COUNTS), "no fixed length"),
        (lambda: hopping("1 hour", every="1 hour", aggregates=COUNTS, keys=["ada"]), "write emit='always'"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_declared(window: Callable[[], Operator], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        window()


@proves("P8")
@pytest.mark.parametrize(
    ("window", "words"),
    [
        (tumbling("1 minute", by="who", aggregates=COUNTS), "column 'who' does not exist; columns are user, at, price"),
        (tumbling("1 minute", by="user", aggregates={"user": agg.count()}), "is called 'user', as another column"),
        (tumbling("1 minute", aggregates={"x": agg.sum("user")}), "'user' is a string; cast it"),
        (tumbling("1 minute", aggregates={"x": agg.max_by("user", "dear")}), "column 'dear' does not exist"),
    ],
)
def test_what_does_not_fit_the_rows_is_refused_when_it_is_declared(
    tidelog_pipeline: PipelineDriver, window: Operator, words: str
) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    with pytest.raises(UsageError, match=words):
        over(window)(clicks.batch())


@proves("P8")
def test_operators_over_rows_take_plain_rows_only(tidelog_pipeline: PipelineDriver) -> None:
    clicks = tidelog_pipeline.input("clicks", CLICKS)
    for again in (
        tumbling("1 hour", aggregates={"n": agg.count()}),
        compare_with_earlier("1 hour", columns="clicks"),
        deduplicate("clicks", within="1 hour"),
        changes("paid", by="clicks"),
    ):
        check_plain(clicks, again)
    with pytest.raises(UsageError, match="column _late does not exist"):
        on_time(clicks.batch())


def check_plain(clicks: PipelineInput, again: Operator) -> None:
    for first, words in (({"early": True}, "is a changelog"), ({"late": "side_output"}, "split them off by on_time")):
        with pytest.raises(UsageError, match=words):
            over(tumbling("1 minute", aggregates=COUNTS, **first), again)(clicks.batch())  # type: ignore[arg-type]
