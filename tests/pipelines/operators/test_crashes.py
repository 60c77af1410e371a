"""Every operator with state, on Spark, with a crash at each point of a micro-batch: as if nothing had happened.

One run crashes at each named point, in one micro-batch after the other, and is started again; beside it one runs
through, micro-batch by micro-batch. After each both have put out the same, and in the end they have counted the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame

from proving import proves
from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.analytics import compare_with_earlier
from tidelog.pipelines.operators.changelog import as_changelog
from tidelog.pipelines.operators.changes import changes
from tidelog.pipelines.operators.dedup import deduplicate
from tidelog.pipelines.operators.joins.enrich import enrich
from tidelog.pipelines.operators.joins.join_tables import join_tables
from tidelog.pipelines.operators.time import event_time
from tidelog.pipelines.operators.windows.hopping import hopping
from tidelog.pipelines.operators.windows.session import session
from tidelog.pipelines.operators.windows.sliding import sliding
from tidelog.pipelines.operators.windows.tumbling import tumbling
from tidelog.testing.pipeline import PipelineDriver
from tidelog.testing.pipeline_run import PipelineRun
from tidelog.testing.pipeline_sinks import CRASH_POINTS

pytestmark = pytest.mark.full

Added = tuple[int, int, list[tuple[Any, ...]]]  # to which input, to which partition, what


class Case(NamedTuple):
    """A pipeline, the schemas of its inputs, and what is added in each round: one more than there are crashes."""

    pipeline: Callable[..., DataFrame]
    inputs: tuple[str, ...]
    rounds: tuple[list[Added], ...]


STORY = "compare_with_earlier"  # the mechanism is one for all operators: this one, behind another, at every change
END = "14:00"
COUNTS = {"clicks": agg.count(), "paid": agg.sum("price"), "newest": agg.last("price")}
CLICKS = "user string, at timestamp, price int"
OF_CLICKS: tuple[list[Added], ...] = (
    [(0, 0, [("ada", "10:00:10", 1), ("bob", "10:00:40", 2), (None, "10:00:45", 2)])],
    [(0, 1, [("ada", "10:02:00", 3)]), (0, 0, [("bob", "10:00:50", 4)])],
    [(0, 0, [("ada", "10:00:20", 5), ("cleo", "10:04:00", 6), ("ada", None, 7)])],
    [(0, 1, [("bob", "10:04:10", 7), ("ada", "10:03:59", 8), ("bob", "10:02:30", 8)])],
    [(0, 0, [("cleo", "10:09:00", 9)]), (0, 1, [("ada", "10:04:30", 9)])],
)


def of_clicks(*operators: Callable[[DataFrame], DataFrame]) -> Case:
    def pipeline(clicks: DataFrame) -> DataFrame:
        found = clicks.transform(event_time("at", "10 seconds"))
        for operator in operators:
            found = found.transform(operator)
        return found

    return Case(pipeline, (CLICKS,), OF_CLICKS)


def taxed(sales: DataFrame, rates: DataFrame) -> DataFrame:
    table = rates.transform(event_time("since", "10 seconds"))
    timed = sales.transform(event_time("sold_at", "10 seconds"))
    return timed.transform(enrich(table, on="product", deleted="percent is null", late="side_output"))


def named(orders: DataFrame, people: DataFrame) -> DataFrame:
    table = orders.transform(as_changelog(by=["order"], order="place", deleted="customer = 'none'"))
    return table.transform(join_tables(people, foreign_key={"customer": "id"}, how="full"))


OF_SALES: tuple[list[Added], ...] = (
    [(0, 0, [("tea", 100, "10:00"), ("rum", 200, "10:01")]), (1, 0, [("tea", 7, "09:00")])],
    [(0, 1, [("tea", 110, "11:00")]), (1, 0, [("tea", 19, "11:00"), ("rum", 30, "10:30")])],
    [(0, 0, [("rum", 210, "11:30"), ("tea", 90, "09:30")]), (1, 0, [("tea", None, "12:00"), ("rum", 31, "12:00")])],
    [(0, 1, [("tea", 120, "12:10"), ("rum", 220, "12:00")]), (1, 0, [("tea", 5, "12:20")])],
    [(0, 0, [("tea", 130, "12:30")]), (1, 0, [("gin", 1, "13:00")])],
)
OF_ORDERS: tuple[list[Added], ...] = (
    [(0, 0, [(1, "a", 0), (2, "c", 1)]), (1, 0, [("+I", 0, "a", "Ada"), ("+I", 1, "b", "Bob")])],
    [(0, 1, [(1, "b", 2), (3, "a", 3)]), (1, 1, [("-U", -1, "b", "Bob"), ("+U", 0, "b", "Bo")])],
    [(0, 0, [(1, "none", 4)]), (1, 0, [("-D", -1, "a", "Ada"), ("+I", 0, "c", "Cy")])],
    [(0, 1, [(1, "c", 5), (2, None, 6)])],
    [(1, 1, [("-U", -1, "c", "Cy"), ("+U", 0, "c", "Cyd"), ("+I", 1, "a", "Ann")])],
)
ORDERS = ("order bigint, customer string, place bigint", "_op string, _seq bigint, id string, name string")

CASES = {
    "tumbling, corrected": of_clicks(
        tumbling(
            "1 minute", by="user", aggregates=COUNTS, late="correct", allowed_lateness="3 minutes", beyond="side_output"
        )
    ),
    "tumbling, diverted": of_clicks(tumbling("1 minute", by="user", aggregates=COUNTS, late="side_output")),
    "tumbling, early": of_clicks(tumbling("5 minutes", by="user", aggregates=COUNTS, early="1 minute")),
    "hopping, always": of_clicks(
        hopping("2 minutes", every="1 minute", by="user", aggregates=COUNTS, emit="always", keys=["ada", "dora"])
    ),
    "session": of_clicks(
        session("1 minute", by="user", aggregates=COUNTS, late="correct", allowed_lateness="3 minutes")
    ),
    "sliding": of_clicks(sliding("2 minutes", by="user", aggregates=COUNTS)),
    "deduplicate": of_clicks(deduplicate("user", within="2 minutes")),
    "changes": of_clicks(changes("price", by="user", at_least=2)),
    "compare_with_earlier": of_clicks(
        tumbling("1 minute", by="user", aggregates=COUNTS),
        compare_with_earlier("2 minutes", by="user", columns=["clicks", "paid"]),
    ),
    "enrich": Case(
        taxed,
        ("product string, cents int, sold_at timestamp", "product string, percent int, since timestamp"),
        OF_SALES,
    ),
    "join_tables": Case(named, ORDERS, OF_ORDERS),
}


def put_out(run: PipelineRun) -> list[str]:
    """By content: which of two buckets came first in a micro-batch says nothing."""
    return sorted(map(repr, run.output))


def counted(run: PipelineRun) -> list[tuple[str, dict[str, int], int]]:
    return [(state.fold, dict(state.counts), len(state.rows)) for state in run.fold_states()]


@proves("P1", "P7", "P8", "P9", "P2", "F1", "F2")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.story if name == STORY else ()) for name in CASES]
)
def test_a_crash_at_each_point_of_a_micro_batch_changes_nothing(tidelog_pipeline: PipelineDriver, name: str) -> None:
    case = CASES[name]
    inputs = [
        tidelog_pipeline.input(f"input {number}", schema, partitions=2) for number, schema in enumerate(case.inputs)
    ]
    crashing, steady = (tidelog_pipeline.run(case.pipeline, *inputs) for _ in range(2))
    for point, added in zip((None, *CRASH_POINTS), case.rounds, strict=True):
        for place, partition, rows in added:
            inputs[place].add(rows, partition=partition)
        if point is None:
            crashing.step(settle=False)
        else:
            crashing.crash(point)
            crashing.restart()
        steady.step(settle=False)
        assert put_out(crashing) == put_out(steady), f"after a crash {point}"
    for run in (crashing, steady):
        run.advance_watermark(END)
        run.step()
    assert put_out(crashing) == put_out(steady) != []
    assert counted(crashing) == counted(steady)
