"""Windows on Spark: both roads, stream and batch, each step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row

from proving import proves
from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.time import event_time
from tidelog.pipelines.operators.windows.hopping import hopping
from tidelog.pipelines.operators.windows.session import session
from tidelog.pipelines.operators.windows.tumbling import tumbling
from tidelog.testing.pipeline import PipelineDriver

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
    fold = tidelog_pipeline.run(over(operators[window](late="divert")), clicks)
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
