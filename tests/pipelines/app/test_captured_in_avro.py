"""Captured tables whose schemas are in a registry, in an app: every kind of change, Avro and JSON Schema."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelog
from capture.conftest import logical_server
from capture.databases import PostgresShop
from gateway.serving import GatewayProcess
from pipelines.app.driven import Driven
from pipelines.app.test_captured_tables import made, ours, shop, view
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.errors import UsageError
from tidelog.pipelines.app import App
from tidelog.testing.broker import TestBroker

__all__ = ["logical_server", "ours", "shop"]


@proves("D1", "P1", "cdc.10", "cdc.11", "cdc.13")
@pytest.mark.full
@pytest.mark.parametrize("format", ["avro", pytest.param("json-schema", marks=pytest.mark.full)])
def test_a_view_of_a_table_captured_with_a_registry_follows_every_kind_of_change(
    spark: SparkSession,
    tidelog_broker: TestBroker,
    ours: Cluster,
    tmp_path: Path,
    shop: PostgresShop,
    format: str,
) -> None:
    gateway = GatewayProcess(tidelog_broker.bootstrap, tmp_path / "log")
    registry = f"http://127.0.0.1:{gateway.client.port}"
    writer = made(shop)
    writer.run("ALTER TABLE customers ADD COLUMN level smallint DEFAULT 3, ADD COLUMN seen timestamptz")
    writer.run("UPDATE customers SET seen = '2025-03-01 10:00+02' WHERE id = 1")
    app = App("shop")
    app.table("customers", captured="shop.public.customers", registry=registry)
    app.table("orders", captured="shop.public.orders", registry=registry)

    @app.view("people", key="id")
    def people(customers: DataFrame) -> DataFrame:
        return customers

    @app.view("bought", key="id")
    def bought(orders: DataFrame) -> DataFrame:
        return orders

    def captured() -> None:
        shop.capture(tidelog_broker.bootstrap, registry=registry, format=format).catch_up()

    captured()
    run = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)
    run.step()
    rows = view(run, "people")
    assert {key: (row["name"], row["level"]) for key, row in rows.items()} == {1: ("ann", 3), 2: ("bob", 3)}
    assert rows[1]["seen"].isoformat() == "2025-03-01T08:00:00+00:00"
    paid = {key: (str(row["price"]), str(row["day"])) for key, row in view(run, "bought").items()}
    assert paid == {10: ("-2.50", "2025-03-01"), 11: ("12345678.90", "None")}

    writer.run(
        "UPDATE customers SET name = 'anna' WHERE id = 1",  # its large value is not told again
        "UPDATE customers SET id = 3 WHERE id = 2",
        "DELETE FROM orders WHERE id = 11",
    )
    gateway.client("PUT", "/config", {"compatibility": "NONE"})  # a JSON Schema takes no new column otherwise
    writer.run("ALTER TABLE customers ADD COLUMN age int", "INSERT INTO customers VALUES (4, 'zoe', '', 1, NULL, 30)")
    captured()
    run.step()
    rows = view(run, "people")
    assert {key: row["name"] for key, row in rows.items()} == {1: "anna", 3: "bob", 4: "zoe"}
    assert len(rows[1]["bio"]) == 12001, "the value that the row had"
    assert set(view(run, "bought")) == {10}
    writer.run("TRUNCATE customers", "INSERT INTO customers VALUES (1, 'new', '', 1, NULL, NULL)")
    captured()
    again = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)  # a run that is started anew
    again.step()
    assert {key: row["name"] for key, row in view(again, "people").items()} == {1: "new"}
    batch = {key[0]: row["name"] for key, row in again.batch("people").items()}
    assert batch == {1: "new"}, "as history has it"
    assert gateway.stop() == 0


@proves("D1", "P1")
@pytest.mark.slow
def test_a_table_captured_with_a_registry_is_not_read_without_one(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    gateway = GatewayProcess(tidelog_broker.bootstrap, tmp_path / "log")
    registry = f"http://127.0.0.1:{gateway.client.port}"
    database = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
    tidelog.capture(
        f"sqlite:///{tmp_path}/t.db", prefix="a", bootstrap=tidelog_broker.bootstrap, registry=registry
    ).catch_up()
    tidelog.capture(f"sqlite:///{tmp_path}/t.db", prefix="b", bootstrap=tidelog_broker.bootstrap).catch_up()
    database.close()
    for topic, given, said in (
        (
            "a.main.t",
            {},
            f"a.main.t is written as avro, with schemas in a registry at {registry}; name it by registry=",
        ),
        ("b.main.t", {"registry": registry}, "b.main.t is written as plain JSON; leave registry= out"),
    ):
        app = App("refused")
        app.table("t", captured=topic, **given)

        @app.view("all", key="id")
        def everything(t: DataFrame) -> DataFrame:
            return t

        with pytest.raises(UsageError) as refused:
            Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path).step()
        assert said in str(refused.value)
    assert gateway.stop() == 0
