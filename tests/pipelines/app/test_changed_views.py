"""A run in which a view has changed since it was built: that one is failed with what mends it, and the others run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.app.driven import Driven, make_topic, produce
from pipelines.app.run_in_thread import Running, rebuilt
from pipelines.app.test_running import ORDERS, orders, status, until
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.control.catalog import read_catalog
from tidelog.control.health import reason_of
from tidelog.control.status import read_status
from tidelog.errors import ViewChanged
from tidelog.pipelines.app import App
from tidelog.pipelines.changed_views import prepare_run
from tidelog.testing.broker import TestBroker

pytestmark = pytest.mark.full


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


def shop(times: int, *more: str) -> App:
    """Other code for another number."""
    app = App("shop")
    app.stream("orders", value=ORDERS)

    @app.view("sums", key="product")
    def sums(orders: DataFrame) -> DataFrame:
        amount = F.col("amount") * times
        return orders.groupBy("product").agg(F.sum(amount).alias("sum"))

    if "read-sums" in more:
        app.topic("read-sums", key="product")(lambda sums: sums.select("_op", "_seq", "product", "sum"))
    if "copies" in more:
        app.view("copies", key="product")(lambda sums: sums)
        app.topic("of-copies", key="product")(lambda copies: copies.select("_op", "_seq", "product", "sum"))
    if "counts" in more:
        app.view("counts", key="product")(lambda orders: orders.groupBy("product").count())
    return app


def counted(driven: Driven) -> int:
    found: Any = driven.view("counts").values()
    return sum(row["count"] for row in found)


@proves("eo.26", "P3", "F1")
def test_a_changed_view_and_who_reads_it_are_failed_with_the_reason_and_the_others_run(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    make_topic(ours, "orders")
    produce(ours, "orders", orders(0, 6))
    before = Driven(shop(1, "counts", "read-sums"), spark, ours, tidelog_broker.bootstrap, tmp_path)
    before.step()
    produce(ours, "orders", orders(6, 3))
    driven = Driven(shop(10, "counts", "read-sums"), spark, ours, tidelog_broker.bootstrap, tmp_path)
    running = Running(driven)
    try:
        until(lambda: counted(before) == 9, "the one that has not changed runs")
    finally:
        code = running.stop()
    assert code == 1
    told = {one.name: one for one in read_status(ours)}
    assert told["shop.counts"].figures["state"] == "stopped"
    for name in ("shop.sums", "shop.read-sums"):
        assert told[name].figures["state"] == "failed", "and it stays so when the run has ended"
    why = str(reason_of(told["shop.sums"].figures))
    assert "test_changed_views.py:" in why and "`tidelog rebuild sums --app " in why and "--app FILE" not in why
    why = str(reason_of(told["shop.read-sums"].figures))
    assert "which has changed and is not run; `tidelog rebuild sums " in why and "--with-readers` rebuilds both" in why


@proves("eo.26", "P3", "F1")
def test_a_run_goes_on_with_a_changed_view_once_it_is_rebuilt(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    make_topic(ours, "orders")
    produce(ours, "orders", orders(0, 6))
    Driven(shop(1, "counts"), spark, ours, tidelog_broker.bootstrap, tmp_path).step()
    driven = Driven(shop(10, "counts"), spark, ours, tidelog_broker.bootstrap, tmp_path)
    running = Running(driven)
    try:
        until(lambda: status(ours).get("shop.sums", {}).get("state") == "failed", "it has changed")
        rebuilt(driven, "sums")
        until(lambda: status(ours)["shop.sums"]["state"] == "running", "the run goes on with what was rebuilt")
        produce(ours, "orders", orders(6, 3))
        until(lambda: driven.view("sums") == driven.batch("sums"), "and it has what came since")
    finally:
        code = running.stop()
    assert code == 0


@proves("eo.26", "P3")
def test_where_nothing_is_left_to_run_the_reason_ends_the_run(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    make_topic(ours, "orders")
    Driven(shop(1), spark, ours, tidelog_broker.bootstrap, tmp_path).step()
    driven = Driven(shop(10), spark, ours, tidelog_broker.bootstrap, tmp_path)
    with pytest.raises(ViewChanged, match="`tidelog rebuild sums --app "):
        prepare_run(ours, driven.reader, driven.settings)


@proves("eo.26", "P3", "E3")
def test_a_reader_that_is_new_is_not_in_the_way_of_the_changed_views_rebuild(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    def driven(times: int, *more: str) -> Driven:
        return Driven(shop(times, "counts", *more), spark, ours, tidelog_broker.bootstrap, tmp_path)

    make_topic(ours, "orders")
    produce(ours, "orders", orders(0, 6))
    driven(1).step()
    before = {name for name in topics.names(ours) if not name.startswith("__")}
    changed = driven(10, "read-sums", "copies")
    targets = {one.node.name: one for one in prepare_run(ours, changed.reader, changed.settings)}
    assert {name for _, name in read_catalog(ours)} == {"sums", "counts"}, "nothing is placed for who waits"
    assert {name for name in topics.names(ours) if not name.startswith("__")} == before
    assert targets["copies"].stores == (), "nor is a view applied that nobody has built"
    told = {name: (one.changed or "").partition(" reads ")[2] for name, one in targets.items()}
    assert targets["counts"].changed is None and "`tidelog rebuild sums" in str(targets["sums"].changed)
    for name in ("read-sums", "copies"):
        assert told[name] == "view sums, which has changed and is not run; rebuild sums, then start this run again"
    assert told["of-copies"].startswith("view copies, which waits itself and is not run; mend that first")
    rebuilt(changed, "sums")
    after = driven(10, "read-sums", "copies")
    assert [one.changed for one in prepare_run(ours, after.reader, after.settings)] == [None] * 5
    after.step()
    assert after.view("copies") == after.view("sums") == after.batch("sums")
    assert len(after.records("of-copies")) == len(after.records("read-sums")) == 3
