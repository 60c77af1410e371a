"""Operators whose state is Spark's own: a query with other parameters does not go on with it, and is told which."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from proving import proves
from tidelog.errors import StateMismatch
from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.dedup import deduplicate
from tidelog.pipelines.operators.joins.stream_join import stream_join
from tidelog.pipelines.operators.sketches import top_k
from tidelog.pipelines.operators.time import event_time
from tidelog.pipelines.operators.windows.hopping import hopping
from tidelog.pipelines.operators.windows.session import session
from tidelog.pipelines.operators.windows.tumbling import tumbling
from tidelog.spark.native_operators import FILE, MARK, Declared, changed_names, check, declared_in
from tidelog.testing.pipeline import PipelineDriver

CLICKS = "user string, other string, at timestamp, x bigint, y bigint"
Operator = Callable[[DataFrame], DataFrame]


def timed(operator: Operator, lateness: str = "10 seconds") -> Operator:
    return lambda rows: rows.transform(event_time("at", lateness)).transform(operator)


def counted(size: str = "1 minute", *, by: str = "user", lateness: str = "10 seconds", **aggregates: Any) -> Operator:
    return timed(tumbling(size, by=by, aggregates=aggregates or {"n": agg.count()}), lateness)


def met(within: Any, how: str = "inner") -> Operator:
    def pipeline(rows: DataFrame) -> DataFrame:
        other = rows.selectExpr("user", "at as met_at").transform(event_time("met_at", "10 seconds"))
        return timed(stream_join(other, on="user", within=within, how=how))(rows.select("user", "at", "x"))

    return pipeline


def clicks(*times: str) -> list[tuple[Any, ...]]:
    return [("ada", "bob", time, 1, 2) for time in times]


def declared(operator: Operator, spark: SparkSession) -> list[Declared]:
    """What the plan of a query says that nobody starts."""
    ticks = spark.readStream.format("rate").load()
    rows = ticks.selectExpr("'ada' user", "'bob' other", "timestamp at", "value x", "value y")
    return list(declared_in(operator(rows)._jdf.queryExecution().analyzed()))


REFUSED: dict[str, tuple[Operator, Operator, list[str]]] = {
    "size": (counted(), counted("5 minutes"), ["size", "every"]),
    "hop": (
        timed(hopping("6 minutes", every="2 minutes", by="user", aggregates={"n": agg.count()})),
        timed(hopping("6 minutes", every="3 minutes", by="user", aggregates={"n": agg.count()})),
        ["every"],
    ),
    "gap": (
        timed(session("1 minute", by="user", aggregates={"n": agg.count()})),
        timed(session("2 minutes", by="user", aggregates={"n": agg.count()})),
        ["gap"],
    ),
    "by": (counted(), counted(by="other"), ["by"]),
    "column": (counted(n=agg.sum("x")), counted(n=agg.sum("y")), ["aggregate 1"]),
    "order of aggregates": (
        counted(a=agg.sum("x"), b=agg.sum("y")),
        counted(b=agg.sum("y"), a=agg.sum("x")),
        ["aggregate 1", "aggregate 2"],
    ),
    "lateness of keys": (timed(deduplicate("user")), timed(deduplicate("user"), "1 hour"), ["lateness"]),
    "keys": (timed(deduplicate("user")), timed(deduplicate("other")), ["by"]),
    "within": (met("1 minute"), met(("1 minute", "1 hour")), ["within after"]),
    "how": (met("1 minute"), met("1 minute", "left"), ["how"]),
}


@proves("P1", "F4")
@pytest.mark.parametrize(("made", "now", "changed"), REFUSED.values(), ids=REFUSED)
@pytest.mark.slow  # together
def test_another_parameter_of_an_operator_of_sparks_own_is_another_in_the_plan(
    spark: SparkSession, made: Operator, now: Operator, changed: list[str]
) -> None:
    [was], [is_] = declared(made, spark), declared(now, spark)
    assert was.operator == is_.operator
    assert changed_names(was, is_) == changed


@proves("P1", "F4")
def test_a_changed_parameter_is_refused_with_both_values_and_the_name_that_users_know() -> None:
    """What has not changed is not said."""
    was = Declared("deduplicate", {"by": "['user']", "lateness": "0:00:10"})
    said = (
        "the state of 'deduplicate' in /c was made with watermark_delay 0:00:10, and the query now has"
        " watermark_delay 1:00:00; go back to what it was, or start over"
    )
    with pytest.raises(StateMismatch, match=re.escape(said)):
        check([was], [Declared("deduplicate", {"by": "['user']", "lateness": "1:00:00"})], "/c")
    check([was], [was], "/c")


@proves("P1", "F4")
@pytest.mark.parametrize("now", [["b", "a"], ["a"], ["a", "b", "b"], []])
def test_operators_are_the_same_ones_in_the_same_order(now: list[str]) -> None:
    with pytest.raises(StateMismatch, match=f"is that of a, b, and the query now has {', '.join(now) or 'none'};"):
        check([Declared("a", {}), Declared("b", {})], [Declared(name, {}) for name in now], "/c")


@proves("P1", "F4")
@pytest.mark.parametrize(
    "now", [counted("5 minutes"), timed(deduplicate("user"))], ids=["another size", "another operator"]
)
@pytest.mark.slow
def test_a_query_that_is_declared_otherwise_is_refused_before_anything_runs(
    tidelog_pipeline: PipelineDriver, now: Operator
) -> None:
    given = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(counted(), given)
    given.add(clicks("10:00:00"))
    run.step()
    begun = sorted(path.name for path in (run.checkpoint / "offsets").iterdir())
    given.add(clicks("10:03:30"))
    with pytest.raises(StateMismatch, match=re.escape(str(run.checkpoint))):
        run.restart(now)
    assert sorted(path.name for path in (run.checkpoint / "offsets").iterdir()) == begun
    run.restart(counted())
    run.step()
    run.finish()
    assert sorted(map(repr, run.output)) == sorted(map(repr, run.batch()))


FREE: dict[str, tuple[Operator, Operator]] = {
    "a longer lateness of windows": (counted(), counted(lateness="1 hour")),
    "a shorter lateness of windows": (counted(lateness="1 minute"), counted(lateness="1 second")),
    "a name": (counted(n=agg.sum("x")), counted(m=agg.sum("x"))),
    "how many are told": (
        counted(pages=top_k("user", 1)),
        counted(pages=top_k("user", 3)),
    ),
    "the same, said otherwise": (
        counted(),
        timed(hopping("60 seconds", every="1 minute", by="user", aggregates={"n": agg.count()})),
    ),
}


@proves("P1", "F4")
@pytest.mark.parametrize(("made", "now"), FREE.values(), ids=FREE)
@pytest.mark.slow  # together
def test_what_no_state_of_sparks_own_rests_on_is_the_same_in_the_plan(
    spark: SparkSession, made: Operator, now: Operator
) -> None:
    check(declared(made, spark), declared(now, spark), "/c")


QUICK = "a longer lateness of windows"


@proves("P1", "F4")
@pytest.mark.parametrize(
    ("made", "now"),
    [pytest.param(*case, id=name, marks=() if name == QUICK else pytest.mark.full) for name, case in FREE.items()],
)
@pytest.mark.slow
def test_what_no_state_of_sparks_own_rests_on_may_change(
    tidelog_pipeline: PipelineDriver, made: Operator, now: Operator
) -> None:
    """Each window once, and with all of its rows."""
    given = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(made, given)
    given.add(clicks("10:00:00", "10:01:30"))
    run.step()
    run.restart(now)
    given.add(clicks("10:01:40", "10:01:50", "10:20:00"))
    run.step()
    run.finish()
    assert sorted(map(tuple, run.output), key=repr) == sorted(map(tuple, run.batch()), key=repr)


@proves("P1", "F4")
def test_a_checkpoint_from_before_parameters_were_kept_takes_the_present_ones(tidelog_pipeline: PipelineDriver) -> None:
    given = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(counted(), given)
    given.add(clicks("10:00:00"))
    run.step()
    (run.checkpoint / FILE).unlink()
    run.restart(counted())
    with pytest.raises(StateMismatch, match=r"was made with size 0:01:00"):
        run.restart(counted("5 minutes"))


@proves("P1", "F4")
def test_while_no_micro_batch_has_begun_there_is_no_state_and_all_may_change(tidelog_pipeline: PipelineDriver) -> None:
    given = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(counted(), given)
    run.restart(counted("5 minutes"))
    kept = json.loads((run.checkpoint / FILE).read_text())
    [operator] = kept["operators"]
    declared = {"size": "0:05:00", "every": "0:05:00", "offset": "0:00:00", "by": "['user']", "time": "'at'"}
    assert kept["format"] == 1
    assert operator["operator"] == "windows on a grid"
    assert operator["declared"] == {**declared, "aggregate 1": "count(column=None)"}, "it is a format"
    run.restart(lambda rows: rows)
    assert json.loads((run.checkpoint / FILE).read_text())["operators"] == []


@proves("P1")
@pytest.mark.full
def test_what_the_plan_says_of_an_operator_changes_neither_what_runs_nor_its_columns(
    tidelog_pipeline: PipelineDriver,
) -> None:
    def pipeline(rows: DataFrame) -> DataFrame:
        named = rows.transform(event_time("at", "10 seconds")).alias("clicks")
        kept = named.transform(deduplicate("user")).select("clicks.user", named["at"], named["x"])
        return kept.transform(tumbling("1 minute", by="user", aggregates={"n": agg.count()}))

    given = tidelog_pipeline.input("clicks", CLICKS)
    run = tidelog_pipeline.run(pipeline, given)
    given.add(clicks("10:00:00"))
    run.step()
    query: Any = run._query
    plans = query._execution.lastExecution()
    assert plans.analyzed().toString().count(MARK) == 2
    assert MARK not in plans.optimizedPlan().toString()


@proves("P1", "F4")
def test_a_parameter_that_only_one_version_knows_is_no_difference() -> None:
    check([Declared("a", {"size": "1"})], [Declared("a", {"size": "1", "new": "2"})], "/c")
    check([Declared("a", {"size": "1", "old": "2"})], [Declared("a", {"size": "1"})], "/c")
    with pytest.raises(StateMismatch, match="is that of none, and the query now has a, b; go back"):
        check([], [Declared("a", {}), Declared("b", {})], "/c")
