"""What `tidelog plan --analyse` says, and a run refuses before anything is made: by Spark's plan, without a query."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.app.driven import Driven, make_topic
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.control.catalog import read_catalog
from tidelog.errors import UsageError
from tidelog.operators import aggregates as agg
from tidelog.operators import deduplicate, tumbling
from tidelog.pipelines.analysing import Analysed, analyse, without_broker
from tidelog.pipelines.app import App
from tidelog.pipelines.graph import graph_of
from tidelog.testing.broker import TestBroker


def shop() -> App:
    app = App("shop")
    app.stream("orders", value="id long, product string, at timestamp", event_time="at", watermark_delay="1 second")
    app.view("counts", key="product")(lambda orders: orders.groupBy("product").count())
    app.view("latest", key="id")(lambda orders: orders)
    app.view("newest", key="id", order="at")(lambda orders: orders)
    app.topic("plain", key="id")(lambda orders: orders)
    app.topic("of-counts", key="product")(lambda counts: counts)

    @app.view("minutes", key=("window_start", "product"))
    def minutes(orders: DataFrame) -> DataFrame:
        late = {"late": "correct", "allowed_lateness": "1 hour"}
        found = tumbling("1 minute", by="product", aggregates={"orders": agg.count()}, **late)
        return orders.transform(deduplicate("id")).transform(found)

    return app


@pytest.mark.slow
@proves("P1", "command_line")
def test_columns_order_and_lateness_are_told_without_a_broker_and_before_any_view_is_built(spark: SparkSession) -> None:
    found = {one.node.name: one for one in analyse(without_broker(spark, graph_of(shop())), {})}
    assert found["counts"].columns == (("product", "string"), ("count", "bigint"))
    assert {name: (said_of(one), one.state) for name, one in found.items()} == {
        "counts": ("an aggregate", True),
        "latest": ("plain rows: of a key's the one that was read last counts", False),
        "newest": ("plain rows: of a key's the one with the largest at counts, of all rows", True),
        "plain": ("plain rows, each written as it is", False),
        "of-counts": ("a changelog", True),
        "minutes": ("a changelog", True),
    }
    (warning,) = found["minutes"].warnings
    assert "deduplicate drops rows that are behind the watermark" in warning
    assert not any(one.warnings for name, one in found.items() if name != "minutes")


def said_of(one: Analysed) -> str:
    return one.rows.removesuffix(": each row replaces the one before of its key")


@pytest.mark.slow
@proves("P1", "command_line")
def test_one_mistake_in_the_last_output_and_nothing_is_made(
    spark: SparkSession, tidelog_broker: TestBroker, tmp_path: Path
) -> None:
    app = shop()
    app.view("wrong", key="city")(lambda orders: orders.select("id", F.upper("product").alias("name")))
    with Cluster(tidelog_broker.bootstrap) as cluster:
        make_topic(cluster, "orders")
        run = Driven(app, spark, cluster, tidelog_broker.bootstrap, tmp_path)
        with pytest.raises(UsageError, match="view 'wrong' has no column 'city'; columns are id, name"):
            run.step()
        assert topics.names(cluster) == ["orders"] and not read_catalog(cluster)
