"""Captured tables in an app: a view of them, joined, after every kind of change; types, large values, other writers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from capture.conftest import logical_server
from capture.databases import PostgresShop, Writer
from pipelines.app.driven import Driven
from postgres_server import PostgresServer
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.errors import UsageError
from tidelog.operators import join_tables
from tidelog.pipelines.app import App
from tidelog.testing.broker import TestBroker
from tidelog.testing.pipeline import PipelineDriver
from tidelog.testing.pipeline_app import AppRun, assert_rows

__all__ = ["logical_server"]


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


@pytest.fixture
def shop(logical_server: PostgresServer) -> Iterator[PostgresShop]:
    made = PostgresShop(logical_server)
    yield made
    made.close()


def view(run: Driven, name: str) -> dict[Any, Any]:
    return {key[0] if len(key) == 1 else key: row for key, row in run.view(name).items()}


def made(shop: PostgresShop) -> Writer:
    """Two tables with rows; Ann's biography is one of the values that PostgreSQL keeps aside."""
    writer = shop.writer()
    writer.run(
        "CREATE TABLE customers (id int PRIMARY KEY, name text, bio text)",
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer int, price numeric(10,2), day date, at timestamptz)",
        f"INSERT INTO customers VALUES (1, 'ann', repeat('{'abcdefghij' * 30}', 40)), (2, 'bob', 'short')",
        "ALTER TABLE customers ALTER COLUMN bio SET STORAGE EXTERNAL",
        "UPDATE customers SET bio = bio || '!'",
        "INSERT INTO orders VALUES (10, 1, -2.50, '2025-03-01', '2025-03-01 10:00+02')",
        "INSERT INTO orders VALUES (11, 2, 12345678.90, NULL, NULL)",
    )
    return writer


@proves("D1", "P1", "cdc.10", "cdc.11", "cdc.13")
@pytest.mark.slow
@pytest.mark.story
def test_a_view_of_captured_tables_follows_every_kind_of_change(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path, shop: PostgresShop
) -> None:
    writer = made(shop)
    app = App("shop")
    app.table("customers", captured="shop.public.customers")
    app.table("orders", captured="shop.public.orders")

    @app.view("named", key="id")
    def named(orders: DataFrame, customers: DataFrame) -> DataFrame:
        people = customers.selectExpr("_op", "_seq", "id AS customer", "name", "bio")
        return orders.transform(join_tables(people, on="customer"))

    @app.view("people", key="id")
    def people(customers: DataFrame) -> DataFrame:
        return customers

    def captured() -> None:
        shop.capture(tidelog_broker.bootstrap).catch_up()

    captured()
    run = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)
    run.step("named")
    rows = view(run, "named")
    assert {key: (row["name"], str(row["price"]), str(row["day"])) for key, row in rows.items()} == {
        10: ("ann", "-2.50", "2025-03-01"),
        11: ("bob", "12345678.90", "None"),
    }
    assert rows[10]["at"].isoformat() == "2025-03-01T08:00:00+00:00"

    writer.run(
        "UPDATE customers SET name = 'anna' WHERE id = 1",  # its large value is not told again
        "UPDATE customers SET id = 3 WHERE id = 2",
        "DELETE FROM orders WHERE id = 11",
        "INSERT INTO orders VALUES (12, 3, 1, NULL, NULL)",
    )
    captured()
    run.step()
    rows = view(run, "named")
    assert {key: row["name"] for key, row in rows.items()} == {10: "anna", 12: "bob"}
    assert len(rows[10]["bio"]) == 12001, "the value that the row had"
    assert set(view(run, "people")) == {1, 3}

    writer.run("TRUNCATE customers", "INSERT INTO customers VALUES (1, 'new', '')")
    writer.run("ALTER TABLE customers ADD COLUMN age int DEFAULT 7", "INSERT INTO customers VALUES (4, 'zoe', '', 30)")
    captured()
    again = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)  # a run that is started anew
    again.step()
    assert {key: row["name"] for key, row in view(again, "people").items()} == {1: "new", 4: "zoe"}
    assert {key: row["name"] for key, row in view(again, "named").items()} == {10: "new"}
    for name in ("named", "people"):
        batch = {key[0]: (row["name"], row["bio"]) for key, row in again.batch(name).items()}
        assert {key: (row["name"], row["bio"]) for key, row in view(again, name).items()} == batch, "as history has it"


def told(op: str, row: dict[str, Any] | None, before: dict[str, Any] | None = None) -> str:
    return json.dumps({"before": before, "after": row, "op": op, "source": {}, "ts_ms": 0})


@proves("D1", "P1")
@pytest.mark.full
def test_a_captured_table_is_tried_in_the_driver_with_records_as_they_stand_in_its_topic(
    tidelog_pipeline: PipelineDriver,
) -> None:
    app, topic = App("shop"), "shop.public.people"
    app.table("people", captured=topic, key="id", value="id int, name string, bio string, born date, paid decimal(5,2)")

    @app.view("all", key="id")
    def everybody(people: DataFrame) -> DataFrame:
        return people

    run = AppRun(tidelog_pipeline, app, "all")
    ann = {"id": 1, "name": "ann", "bio": "long", "born": 10957, "paid": "/zg="}
    run.add(topic, told("r", ann), key='{"id":1}')
    run.add(topic, told("c", {**ann, "id": 2, "name": "bob", "born": None}), key='{"id":2}')
    first = {"_op": "+I", "id": 1, "name": "ann", "bio": "long", "born": "2000-01-01", "paid": "-2.00"}
    assert_rows(run.step(), [first, {**first, "id": 2, "name": "bob", "born": None}])
    run.add(topic, told("u", {**ann, "name": "anna", "bio": "__debezium_unavailable_value"}), key='{"id":1}')
    run.add(topic, told("d", None, {"id": 2}), key='{"id":2}')
    run.add(topic, None, key='{"id":2}')
    gone = {**first, "_op": "-D", "id": 2, "name": "bob", "born": None}
    assert_rows(run.step(), [{**first, "_op": "-U"}, {**first, "_op": "+U", "name": "anna"}, gone])
    run.add(topic, told("t", None))
    run.add(topic, told("c", {**ann, "id": 3}), key='{"id":3}')
    assert_rows(run.step(), [{**first, "_op": "-D", "name": "anna"}, {**first, "id": 3}])


@proves("P1")
def test_a_captured_table_is_declared_by_its_topic_alone() -> None:
    app = App("shop")
    made = app.table("people", captured="shop.public.people")
    assert (made.topic, made.key, made.captured) == ("shop.public.people", (), True)
    for wrong in ({"topic": "x"}, {"versions": True, "event_time": "at"}, {"registry": "http://r", "subject": "s"}):
        with pytest.raises(UsageError, match="is captured: its topic and its format are the capture's"):
            app.table("others", captured="shop.public.others", **wrong)  # type: ignore[arg-type]
