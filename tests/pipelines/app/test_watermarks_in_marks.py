"""What marks say of time: the watermark of a micro-batch, those of inputs that can hold it, and how many rows wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.app.driven import Driven, make_topic, produce
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.control.counts import held_in
from tidelog.control.marks import NOTHING_HELD, Mark, read_mark
from tidelog.pipelines.app import App
from tidelog.pipelines.operators.joins.enrich import enrich
from tidelog.testing.broker import TestBroker

NOON = 1_767_614_400_000  # 2026-01-05T12:00Z


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


def shop() -> App:
    app = App("shop")
    late: dict[str, Any] = {"watermark_delay": "10 seconds"}
    app.stream("sales", value="id long, item string, amount long, at timestamp", event_time="at", **late)
    rates: dict[str, Any] = {"value": "item string, rate long, since timestamp", "event_time": "since", **late}
    app.table("rates", key="item", versions=True, **rates)

    @app.view("by-minute", key=("item", "minute"), mode="append")
    def by_minute(sales: DataFrame) -> DataFrame:
        minutes = sales.groupBy("item", F.window("at", "1 minute")).agg(F.sum("amount").alias("amount"))
        return minutes.select("item", F.col("window.start").alias("minute"), "amount")

    @app.view("rated", key="id", order="at")
    def rated(sales: DataFrame, rates: DataFrame) -> DataFrame:
        met = sales.transform(enrich(rates, on="item", deleted="_deleted", horizon="1 day"))
        return met.select("id", "item", "rate", "at")

    @app.view("large", key="id")
    def large(sales: DataFrame) -> DataFrame:
        return sales.where("amount > 5").select("id", "amount")

    return app


def sold(second: int, number: int = 0) -> dict[str, Any]:
    return {"id": number or second, "item": "tea", "amount": 7, "at": _at(second)}


def rate(second: int) -> dict[str, Any]:
    return {"item": "tea", "rate": second, "since": _at(second)}


def _at(second: int) -> str:
    return f"2026-01-05T12:{second // 60:02d}:{second % 60:02d}Z"


def last(run: Driven, name: str) -> Mark:
    found = read_mark(run.cluster, run.targets[name].sink)
    assert found is not None
    return found


@proves("P3", "D8")
@pytest.mark.slow
def test_marks_tell_the_watermark_those_of_silent_inputs_and_what_is_held(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    make_topic(ours, "sales", 1)
    make_topic(ours, "rates", 1, {"retention.ms": "-1"})
    run = Driven(shop(), spark, ours, tidelog_broker.bootstrap, tmp_path)
    produce(ours, "sales", [sold(5), sold(30), sold(61)])
    produce(ours, "rates", [rate(1)], key=["tea"])
    run.step()
    windows, rated, large = (last(run, name) for name in ("by-minute", "rated", "large"))
    assert (windows.watermark_ms, windows.watermarks) == (NOON + 51_000, {"sales": NOON + 51_000})
    assert windows.sources.offsets and not run.view("by-minute"), "it is read, and the window is open"
    silent = {"sales": NOON + 51_000, "rates": NOON - 9_000}
    assert (rated.watermark_ms, rated.watermarks, held_in(rated.counts)) == (
        *(NOON - 9_000, silent),
        {"enrich as of event time": 3},
    )
    assert (large.watermark_ms, large.watermarks) == (NOTHING_HELD, {}), "what it has read it has put out"

    produce(ours, "rates", [rate(40)], key=["tea"])
    run.step("rated")
    rated = last(run, "rated")
    silent = {"sales": NOON - 9_000, "rates": NOON + 30_000}
    assert (rated.watermark_ms, rated.watermarks) == (NOON - 9_000, silent), "a query that was started again forgets"

    produce(ours, "sales", [sold(62)])
    produce(ours, "rates", [rate(50)], key=["tea"])
    run.step("rated")
    rated = last(run, "rated")
    assert (rated.watermark_ms, held_in(rated.counts)) == (NOON + 40_000, {"enrich as of event time": 2})
    assert {key: row["rate"] for key, row in run.view("rated").items()} == {(5,): 1, (30,): 1}

    produce(ours, "sales", [sold(75)])
    before = last(run, "by-minute").batch_id
    run.step("by-minute")
    windows = last(run, "by-minute")
    assert windows.watermark_ms == NOON + 65_000 and windows.batch_id == before + 2, "of a batch without records"
    assert [row["amount"] for row in run.view("by-minute").values()] == [14]
