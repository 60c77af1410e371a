"""Operators that are Spark's own: however rows are split into micro-batches, and ordered within the lateness, with
restarts between, the stream ends at the batch answer, and nothing that was put out is taken back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row

from proving import proves
from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.dedup import deduplicate
from tidelog.pipelines.operators.joins.stream_join import stream_join
from tidelog.pipelines.operators.time import event_time
from tidelog.pipelines.operators.windows.hopping import hopping
from tidelog.pipelines.operators.windows.session import session
from tidelog.pipelines.operators.windows.tumbling import tumbling
from tidelog.testing.pipeline import PipelineDriver

CLICKS = "user string, at timestamp, price int"
LATENESS_S = 60
LATENESS = f"{LATENESS_S} seconds"
BEGIN = datetime(2026, 3, 1, 10, tzinfo=UTC)
ROWS = 40
COUNTS = {"clicks": agg.count(), "paid": agg.sum("price"), "last": agg.last("price")}
WINDOWS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "tumbling": tumbling("1 minute", by="user", aggregates=COUNTS),
    "hopping": hopping("1 minute", every="20 seconds", by="user", aggregates=COUNTS),
    "session": session("30 seconds", by="user", aggregates=COUNTS),
}
Click = tuple[str, datetime, int]


def clicks_of(random: Random) -> list[Click]:
    """In an order in which none is late: each comes less than the lateness after its time."""
    found = [
        (random.choice("abc"), BEGIN + timedelta(seconds=random.randrange(600), milliseconds=number), number)
        for number in range(ROWS)
    ]
    return sorted(found, key=lambda click: click[1] + timedelta(seconds=random.random() * (LATENESS_S - 1)))


def split(random: Random, clicks: list[Click]) -> list[list[Click]]:
    """Into a few micro-batches, of which some are empty."""
    cuts = sorted(random.randrange(ROWS + 1) for _ in range(random.randrange(1, 5)))
    return [clicks[begin:end] for begin, end in zip([0, *cuts], [*cuts, ROWS], strict=True)]


def counted(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in rows)


@pytest.mark.full
@proves("P8", "B1")
@pytest.mark.parametrize("offset", range(3))
@pytest.mark.parametrize("window", WINDOWS)
def test_windows_end_at_the_batch_answer(tidelog_pipeline: PipelineDriver, window: str, offset: int, seed: int) -> None:
    random = Random(f"{seed}/{offset}/{window}")
    clicks = tidelog_pipeline.input("clicks", CLICKS, partitions=2)
    run = tidelog_pipeline.run(
        lambda rows: rows.transform(event_time("at", LATENESS)).transform(WINDOWS[window]), clicks
    )
    for some in split(random, clicks_of(random)):
        clicks.add(some)
        run.step()
        if random.random() < 0.3:
            run.restart()
    run.finish()
    assert counted(run.output) == counted(run.batch())


@pytest.mark.full
@proves("P9", "B1")
@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_stream_joins_end_at_the_batch_answer(tidelog_pipeline: PipelineDriver, how: str, seed: int) -> None:
    random = Random(f"{seed}/{how}")
    searches = tidelog_pipeline.input("searches", "user string, at timestamp, query int", partitions=2)
    clicks = tidelog_pipeline.input("clicks", "user string, clicked_at timestamp, price int", partitions=2)

    def pipeline(searches: DataFrame, clicks: DataFrame) -> DataFrame:
        timed = clicks.transform(event_time("clicked_at", LATENESS))
        join = stream_join(timed, on="user", within=("10 seconds", "30 seconds"), how=how)
        return searches.transform(event_time("at", LATENESS)).transform(join)

    run = tidelog_pipeline.run(pipeline, searches, clicks)
    left, right = split(random, clicks_of(random)), split(random, clicks_of(random))
    for turn in range(max(len(left), len(right))):
        searches.add(left[turn] if turn < len(left) else [])
        clicks.add(right[turn] if turn < len(right) else [])
        run.step()
        if random.random() < 0.3:
            run.restart()
    run.finish()
    assert counted(run.output) == counted(run.batch())


@pytest.mark.full
@proves("P9", "B1")
@pytest.mark.parametrize("offset", range(2))
def test_duplicates_within_the_lateness_come_once(tidelog_pipeline: PipelineDriver, offset: int, seed: int) -> None:
    random = Random(f"{seed}/{offset}")
    clicks = tidelog_pipeline.input("clicks", CLICKS, partitions=2)
    run = tidelog_pipeline.run(
        lambda rows: rows.transform(event_time("at", LATENESS)).transform(deduplicate("price")), clicks
    )
    for some in split(random, clicks_of(random)):
        clicks.add([*some, *random.sample(some, len(some) // 2)])
        run.step()
        clicks.add(some[-1:])
        if random.random() < 0.3:
            run.restart()
    run.step()
    assert sorted(row["price"] for row in run.output) == list(range(ROWS))
    assert sorted(row["price"] for row in run.batch()) == list(range(ROWS))
