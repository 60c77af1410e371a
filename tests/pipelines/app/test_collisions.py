"""Two plain rows of one key in one micro-batch: the one that was read later counts, or the view is not begun."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from pipelines.app.driven import Driven, make_topic, produce
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.control.catalog import read_catalog
from tidelog.errors import UsageError
from tidelog.operators import aggregates as agg
from tidelog.operators import deduplicate, event_time, tumbling
from tidelog.pipelines.app import App
from tidelog.pipelines.collisions import LAST_READ, ONE_ROW, settlement_of
from tidelog.pipelines.view_texts import DRIVER, STAGED
from tidelog.testing.broker import TestBroker

VALUE = "id long, number long, parts array<long>"


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


# Plans ----------------------------------------------------------------------------------------------------------------

Make = Callable[[DataFrame], DataFrame]


def batches(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from found


@F.udf(LongType())
def one_more(number: int) -> int:
    return number + 1


def timed(rows: DataFrame) -> DataFrame:
    return rows.transform(event_time("timestamp", "1 second"))


COUNTED = {"rows": agg.count()}
SETTLED: dict[str, tuple[Make, str]] = {
    "as they are": (lambda rows: rows, LAST_READ),
    "renamed": (lambda rows: rows.where("value > 3").selectExpr("value % 7 as id", "value"), LAST_READ),
    "exploded": (lambda rows: rows.select("id", F.explode(F.array("value", "id")).alias("each")), LAST_READ),
    "with time": (lambda rows: timed(rows).observe("seen", F.count(F.lit(1))), LAST_READ),
    "once by the key": (lambda rows: timed(rows).transform(deduplicate("id")).drop("value"), ONE_ROW),
    "once by part of the key": (lambda rows: rows.withColumnRenamed("id", "x").dropDuplicates(["x"]), ONE_ROW),
    "windows of ours": (
        lambda rows: timed(rows).transform(tumbling("1 minute", by="id", aggregates=COUNTED, late="side_output")),
        ONE_ROW,
    ),
}
KEYS = {"once by part of the key": ["x", "value"], "windows of ours": ["id", "window_start"]}


@pytest.mark.parametrize("name", SETTLED)
@proves("P1", "eo.12")
def test_a_plan_tells_which_of_two_rows_counts_or_that_there_are_no_two(spark: SparkSession, name: str) -> None:
    make, how = SETTLED[name]
    assert settlement_of(make(read(spark)), KEYS.get(name, ["id"])).how == how


UNSETTLED: dict[str, tuple[Make, str]] = {
    "joined": (lambda rows: rows.join(rows.select("id").distinct(), "id"), "a join"),
    "united": (lambda rows: rows.unionByName(rows), "a union"),
    "shuffled": (lambda rows: rows.repartition(3), "a shuffle"),
    "by a udf": (lambda rows: rows.withColumn("more", one_more("value")), "a Python stage (a UDF)"),
    "over arrow": (lambda rows: rows.mapInArrow(batches, rows.schema), "a Python stage"),
    "sampled": (lambda rows: rows.sample(0.5), "Sample, an operator of Spark's"),
    "once by another column": (
        lambda rows: rows.dropDuplicates(["value"]),
        "a deduplication by other columns than its key",
    ),
    "once and then exploded": (
        lambda rows: rows.dropDuplicates(["id"]).select("id", F.explode(F.array("value", "id")).alias("each")),
        "a deduplication by other columns than its key",
    ),
    "once by what the key is computed from": (
        lambda rows: rows.dropDuplicates(["id"]).withColumn("id", F.col("id") % 2),
        "a deduplication by other columns than its key",
    ),
}


@pytest.mark.parametrize("name", UNSETTLED)
@proves("P1", "eo.12")
def test_behind_a_join_a_union_a_shuffle_or_python_nobody_can_tell(spark: SparkSession, name: str) -> None:
    make, behind = UNSETTLED[name]
    assert settlement_of(make(read(spark)), ["id"]) == (None, behind)


def read(spark: SparkSession) -> DataFrame:
    """A stream that no query is started of."""
    return spark.readStream.format("rate").load().selectExpr("value % 10 as id", "value", "timestamp")


# Begun, or not --------------------------------------------------------------------------------------------------------


def shop(make: Make, **how: Any) -> App:
    app = App("shop")
    app.stream("orders", value=VALUE, **how)
    app.view("latest", key="id")(reading(make))
    return app


@pytest.mark.slow
@proves("P1", "eo.12")
def test_a_view_whose_plan_cannot_tell_is_refused_before_anything_is_made(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    make_topic(ours, "orders")
    run = Driven(shop(lambda rows: rows.repartition(2)), spark, ours, tidelog_broker.bootstrap, tmp_path)
    with pytest.raises(UsageError, match=r"test_collisions.py:\d+: view 'latest' .* a shuffle: .*order=.*as_changelog"):
        run.step()
    assert "latest.v1" not in topics.names(ours) and not read_catalog(ours)


@pytest.mark.full
@proves("P1", "eo.12")
def test_a_view_that_was_built_before_goes_on_with_a_word(
    spark: SparkSession,
    tidelog_broker: TestBroker,
    ours: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make_topic(ours, "orders")
    app = shop(lambda rows: rows.repartition(2))
    with monkeypatch.context() as before:
        before.setattr("tidelog.pipelines.analysing.check_settled", lambda *_, **__: None)
        assert Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path).targets
    with caplog.at_level(logging.WARNING):
        assert Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path).targets
    (told,) = [one.getMessage() for one in caplog.records if "latest" in one.getMessage()]
    assert told.endswith("it goes on as it was, and fails when two such rows come")


# On Spark -------------------------------------------------------------------------------------------------------------

Rows = Sequence[dict[str, Any]]


def some_orders(chance: random.Random, count: int) -> Rows:
    return [
        {"id": chance.randrange(6), "number": n, "parts": [n, -n] if chance.random() < 0.8 else []}
        for n in range(count)
    ]


MADE: dict[str, tuple[Make, Callable[[dict[str, Any]], list[Any]]]] = {
    "filtered": (
        lambda rows: rows.where("number % 3 > 0").select("id", "number"),
        lambda one: [{"number": one["number"]}] if one["number"] % 3 else [],
    ),
    "exploded": (
        lambda rows: rows.select("id", F.explode("parts").alias("part")),
        lambda one: [{"part": each} for each in one["parts"]],
    ),
    "deleted": (
        lambda rows: rows.selectExpr("id", "number", "number % 4 = 0 as _deleted"),
        lambda one: [None if one["number"] % 4 == 0 else {"number": one["number"]}],
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("road", [DRIVER, STAGED])
@proves("P1", "B1", "eo.12")
def test_the_row_that_was_read_later_counts_whatever_was_selected(
    spark: SparkSession,
    tidelog_broker: TestBroker,
    ours: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    road: str,
) -> None:
    """Keys stay in their partitions. Tasks get pieces of these, and a record that cannot be decoded is left out by a
    stage of ours."""
    monkeypatch.setattr("tidelog.pipelines.queries.road_of", lambda *_, **__: road)
    app = App("shop")
    app.stream("orders", value=VALUE, on_error="null")
    for name, (make, _) in MADE.items():
        app.view(name, key="id")(reading(make))
    app.topic("deleted-topic", key="id")(reading(MADE["deleted"][0]))
    make_topic(ours, "orders", 3)
    run = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)
    run.reader = replace(run.reader, options={**run.reader.options, "minPartitions": "5"})
    made = some_orders(random.Random(road), 60)
    expected: dict[str, dict[Any, Any]] = {name: {} for name in MADE}
    for begin in range(0, 60, 30):
        produce(ours, "orders", made[begin : begin + 30], key=[str(one["id"]) for one in made[begin : begin + 30]])
        with Producer(ours) as producer:
            producer.send("orders", b"no order")
        run.step()
        for name, (_, rows_of) in MADE.items():
            keep_last(expected[name], made[begin : begin + 30], rows_of)
            assert run.view(name) == expected[name]
    assert {name: run.batch(name) for name in MADE} == expected
    deleted = {row.key: row.value for _, row in run.records("deleted-topic")}
    assert {int(key) for key, value in deleted.items() if value is not None} == {key for (key,) in expected["deleted"]}


def reading(make: Make) -> Make:
    return lambda orders: make(orders)


def keep_last(found: dict[Any, Any], made: Rows, rows_of: Callable[[dict[str, Any]], list[Any]]) -> None:
    """The oracle: plain Python, row by row."""
    for one in made:
        for row in rows_of(one):
            found.pop((one["id"],), None)
            if row is not None:
                found[(one["id"],)] = {"id": one["id"], **row}
