"""What declared functions get: rows, tables, versions, event time, schemas, and the outputs of others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from pipelines.app.driven import Driven, make_topic, produce
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.pipelines.app import App
from tidelog.pipelines.inputs import _key_column
from tidelog.pipelines.operators.joins.enrich import enrich
from tidelog.pipelines.operators.time import event_time_column
from tidelog.testing.broker import TestBroker

KEEP = {"cleanup.policy": "delete", "retention.ms": "-1"}
SCHEMA = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": "string"}],
}


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


@pytest.mark.full
@proves("P1", "B1")
def test_rows_meet_the_version_of_a_table_that_held_at_their_time(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    app = App("tax")
    late: dict[str, Any] = {"watermark_delay": "1 hour"}
    rate = "kind string, percent long, since timestamp"
    app.stream("sales", value="sale long, kind string, at timestamp", event_time="at", **late)
    kept = ("offset", "timestamp")
    app.table("rates", key="kind", value=rate, versions=True, event_time="since", record=kept, **late)

    @app.view("taxed", key="sale", order="at")
    def taxed(sales: DataFrame, rates: DataFrame) -> DataFrame:
        assert rates.columns == ["kind", "percent", "since", "_deleted", *kept, "_place"]
        met = sales.transform(enrich(rates, on="kind", deleted="_deleted", horizon="730 days"))
        return met.select("sale", "percent", "at", "offset").where("sale is not null")

    make_topic(ours, "sales", 1, KEEP)
    make_topic(ours, "rates", 1, KEEP)
    run = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)
    rates = [("food", 7, "2025-01-01"), ("food", 5, "2025-07-01"), ("none", 0, "2025-12-31")]
    sales = [(1, "food", "2025-06-30"), (2, "food", "2025-07-02"), (3, "none", "2025-12-31")]
    said = [{"kind": kind, "percent": percent, "since": f"{day}T00:00:00Z"} for kind, percent, day in rates]
    produce(ours, "rates", said, key=[kind for kind, _, _ in rates])
    produce(ours, "sales", [{"sale": sale, "kind": kind, "at": f"{day}T00:00:00Z"} for sale, kind, day in sales])
    run.step()
    found = {key[0]: (row["percent"], row["offset"]) for key, row in run.view("taxed").items()}
    assert found == {1: (7, 0), 2: (5, 1)}, "the last one waits for its hour"
    assert {key[0]: row["percent"] for key, row in run.batch("taxed").items()} == {1: 7, 2: 5, 3: 0}


@proves("P1")
@pytest.mark.slow
def test_event_time_is_declared_and_columns_of_the_record_are_kept_where_asked_for(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    app = App("clicks")
    seen: dict[str, Any] = {}
    options: dict[str, Any] = {"event_time": "at", "watermark_delay": "1 minute", "idle_after": "10 seconds"}
    app.stream("clicks", value="user string, at timestamp", record=("offset", "key"), **options)
    app.stream("raw", topic="clicks")
    app.stream("logged", topic="clicks", value="user string", event_time="timestamp", watermark_delay="1 minute")

    @app.view("by-minute", key=("begin", "user"))
    def by_minute(clicks: DataFrame, raw: DataFrame, logged: DataFrame) -> DataFrame:
        seen.update(clicks=clicks.columns, raw=raw.columns, logged=logged.columns, time=event_time_column(clicks))
        counts = clicks.groupBy(F.window("at", "1 minute"), "user").count()
        return counts.select(F.col("window.start").alias("begin"), "user", "count")

    make_topic(ours, "clicks")
    run = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)
    produce(ours, "clicks", [{"user": "ada", "at": f"2026-01-01T00:00:{second:02}Z"} for second in (1, 2, 3)])
    run.step()
    assert seen["clicks"] == ["user", "at", "offset", "key"] and seen["time"] == "at"
    assert {"key", "value", "offset", "timestamp"} <= set(seen["raw"])
    assert seen["logged"] == ["user", "timestamp"]
    assert [row["count"] for row in run.view("by-minute").values()] == [3], (
        "told before its minute is over: update mode"
    )


@pytest.mark.full
@proves("P1")
def test_values_in_avro_and_views_are_read_by_others(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    app = App("avro")
    app.stream("orders", value=json.dumps(SCHEMA))
    app.view("days", key="day")(lambda orders: orders.groupBy(F.substring("at", 1, 10).alias("day")).count())
    app.view("busy", key="day")(lambda days: days.where("count > 1"))
    make_topic(ours, "orders")
    run = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)
    with Producer(ours) as producer:
        for number, day in enumerate(("2026-01-01", "2026-01-01", "2026-01-02")):
            written = BytesIO()
            fastavro.schemaless_writer(written, fastavro.parse_schema(SCHEMA), {"id": number, "at": f"{day}T00"})
            producer.send("orders", written.getvalue())
    run.step()
    assert run.view("busy") == run.batch("busy") == {("2026-01-01",): {"day": "2026-01-01", "count": 2}}


@proves("P1", "eo.12")
@pytest.mark.slow
def test_a_key_of_bytes_in_a_views_tombstone_is_the_key_of_its_rows(spark: SparkSession) -> None:
    said = [('{"k":"AP8="}', b"\x00\xff"), ('{"k":"no base64!"}', None)]
    rows = spark.createDataFrame([(key.encode(), None) for key, _ in said], "key binary, value struct<k: binary>")
    found = rows.select(_key_column("k", BinaryType(), alone=False)).collect()
    assert [None if row.k is None else bytes(row.k) for row in found] == [key for _, key in said]
