"""Topics that an app has written and that are lost: deleted, or with the broker's data. What is left of them, or of the
checkpoints beside them, is not taken for whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.app.driven import Driven, make_topic, produce
from pipelines.app.run_in_thread import rebuilt, rebuilt_topic
from pipelines.app.test_running import ORDERS, orders
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.errors import DataLoss, LostCheckpoint, ViewChanged
from tidelog.pipelines.app import App
from tidelog.testing.broker import TestBroker

pytestmark = pytest.mark.full


def shop() -> App:
    app = App("shop")
    app.stream("orders", value=ORDERS)
    app.topic("big", key="id")(lambda orders: orders.where("amount > 3"))

    @app.view("counts", key="product")
    def counts(orders: DataFrame) -> DataFrame:
        return orders.groupBy("product").count()

    return app


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        make_topic(cluster, "orders", partitions=1)
        yield cluster


@proves("F4", "eo.6")
def test_a_checkpoint_that_is_older_than_the_brokers_data_is_refused_and_leaves_nothing_out(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    before = Driven(shop(), spark, ours, tidelog_broker.bootstrap, tmp_path)
    for start in (0, 6):
        produce(ours, "orders", orders(start, 6))
        before.step()
    with TestBroker(tmp_path / "another") as another, Cluster(another.bootstrap) as cluster:
        make_topic(cluster, "orders", partitions=1)
        produce(cluster, "orders", orders(100, 20))  # more than had been read of the other one
        driven = Driven(shop(), spark, cluster, another.bootstrap, tmp_path)
        for name, target in driven.targets.items():
            with pytest.raises(
                LostCheckpoint, match=r"has no mark, and this is micro-batch 2: .*delete the checkpoint"
            ):
                driven.step(name)
            assert driven.records(target.topic) == []
            shutil.rmtree(target.checkpoint)
        driven.step()
        assert driven.view("counts") == driven.batch("counts") and len(driven.records("big")) == 20


@proves("F4", "eo.3")
def test_an_input_that_was_made_anew_while_nobody_ran_is_told_from_the_one_that_was_read(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    """Its offsets are as good as the old one's, and the query would begin in the middle."""
    produce(ours, "orders", orders(0, 6))
    Driven(shop(), spark, ours, tidelog_broker.bootstrap, tmp_path).step()
    topics.delete(ours, "orders")
    make_topic(ours, "orders", partitions=1)
    produce(ours, "orders", orders(100, 20))
    driven = Driven(shop(), spark, ours, tidelog_broker.bootstrap, tmp_path)
    before = driven.view("counts")
    for name in driven.targets:
        with pytest.raises(DataLoss, match="topic orders was deleted and created again after micro-batch 0 had read"):
            driven.step(name)
    assert driven.view("counts") == before
    rebuilt(driven, "counts")
    last = Driven(shop(), spark, ours, tidelog_broker.bootstrap, tmp_path)
    assert last.view("counts") == last.batch("counts"), "what the log has is the view"


@proves("eo.14", "P1")
def test_a_topic_that_was_deleted_is_not_made_again_as_if_all_were_in_it(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    def again() -> Driven:
        return Driven(shop(), spark, ours, tidelog_broker.bootstrap, tmp_path)

    produce(ours, "orders", orders(0, 6))
    first = again()
    first.step()
    topics.delete(ours, "big")
    told = r"test_lost_topics.py:\d+: topic big: big\[0\] is not there, and its last mark says 2.*`tidelog rebuild big "
    with pytest.raises(ViewChanged, match=told):
        again().step()
    assert "big" not in topics.names(ours)
    rebuilt_topic(again(), "big")
    assert len(first.records("big.v2")) == 2, "as the error says: written anew from the log"
    topics.delete(ours, "counts.v1")
    with pytest.raises(ViewChanged, match=r"counts.v1\[0\] is not there, .*`tidelog rebuild counts --app FILE`"):
        again().step()
    make_topic(ours, "counts.v1", partitions=1)
    with pytest.raises(ViewChanged, match=r"view counts: counts.v1\[0\] ends at 0, and its last mark says 3"):
        again().step()
    rebuilt(again(), "counts")
    produce(ours, "orders", orders(6, 3))
    last = again()
    last.step()
    assert last.view("counts") == last.batch("counts"), "what the log has is the view again"
