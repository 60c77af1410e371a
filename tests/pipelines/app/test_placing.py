"""Where outputs go, decided without a broker: begun, gone on with, or refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.control.catalog import Catalog, Editor, Generation, View, read_catalog
from tidelog.control.derived import Derived, TopicGeneration, begin, new_topic, switch
from tidelog.control.status import Reporter, read_status
from tidelog.errors import UsageError, ViewChanged
from tidelog.pipelines.app import App
from tidelog.pipelines.graph import Graph, graph_of
from tidelog.pipelines.placing import (
    place_view,
    settings_of_view,
    stays_elsewhere,
    topic_target,
    view_now,
    view_target,
)
from tidelog.pipelines.placing_topics import check_topic
from tidelog.schema.declaration import Declaration, declare
from tidelog.spark.ddl import is_ddl
from tidelog.testing.broker import TestBroker
from tidelog.views.lifecycle import new_view, take_out, with_current
from tidelog.views.stores.opening import name_of
from views.writing import REVENUE, Pipeline

COLUMNS = {"product": "string", "revenue": "double"}


def shop(name: str = "shop", **options: Any) -> Graph:
    app = App(name)
    app.stream("orders", topic="orders.eu")
    app.view("revenue", key="product", **options)(lambda orders: orders)
    app.topic("big")(lambda orders: orders)
    return graph_of(app)


def declared(**more: str) -> Declaration:
    return declare({**COLUMNS, **more}, ("product",))


@proves("P1", "eo.14")
def test_a_view_is_begun_once_and_then_gone_on_with() -> None:
    graph = shop()
    node = graph.node("revenue")
    first = view_now(graph, node, None, declared(), 3, None)
    assert first.current is not None
    assert (first.inputs, first.stores, first.live) == (("orders.eu",), ("sqlite:///tidelog-views/shop.db",), 1)
    assert (first.current.topic, first.current.partitions) == ("revenue.v1", 3)
    assert view_now(graph, node, first, declared(), 3, None) == first
    target = view_target(graph, node, first, first.current, "/checkpoints")
    assert (target.sink, target.checkpoint) == ("revenue.v1", "/checkpoints/shop/revenue.v1")


@proves("eo.1")
def test_a_derived_topic_has_its_own_name_and_a_sink_with_the_apps() -> None:
    graph = shop()
    target = topic_target(graph, graph.node("big"), "/checkpoints")
    assert (target.topic, target.sink, target.checkpoint) == ("big", "shop.big", "/checkpoints/shop/big")


@proves("eo.26")
def test_only_columns_may_be_added_without_a_rebuild() -> None:
    graph = shop()
    node = graph.node("revenue")
    first = view_now(graph, node, None, declared(), 1, None)
    grown = view_now(graph, node, first, declared(orders="long"), 1, None)
    assert grown.live == 1 and grown.current is not None and len(grown.current.declared.columns) == 3
    with pytest.raises(
        ViewChanged, match=r"test_placing.py:\d+: .*its columns were .*`tidelog rebuild revenue --app FILE`"
    ):
        view_now(graph, node, grown, declared(), 1, None)
    app = App("shop")
    app.stream("orders", topic="orders.eu")
    app.view("revenue", key="product")(lambda orders: orders.where("amount > 0"))
    other = graph_of(app)
    with pytest.raises(ViewChanged, match="what computes it has changed"):
        view_now(other, other.node("revenue"), first, declared(), 1, None)


@proves("dt.1", "dt.12", "eo.26")
def test_a_view_of_a_version_that_kept_no_parts_goes_on_and_its_parts_are_entered() -> None:
    graph = shop()
    node = graph.node("revenue")
    first = view_now(graph, node, None, declared(), 1, None)
    assert first.current is not None and first.current.code == node.parts
    before = with_current(first, replace(first.current, code={}))
    assert view_now(graph, node, before, declared(), 1, None) == first
    later = with_current(first, replace(first.current, fingerprint="of rows that may come later"))
    assert view_now(graph, node, later, declared(), 1, None) == first, "its parts are the same"
    changed = with_current(first, replace(first.current, fingerprint="other", code={**node.parts, "key": "other"}))
    with pytest.raises(ViewChanged, match="what computes it has changed: changed: key"):
        view_now(graph, node, changed, declared(), 1, None)


@proves("P1")
def test_a_view_belongs_to_one_app_and_its_stores_may_change() -> None:
    graph = shop()
    first = view_now(graph, graph.node("revenue"), None, declared(), 1, "redis://default")
    assert first.stores == ("redis://default",)
    with pytest.raises(UsageError, match="view 'revenue' belongs to app shop"):
        other = shop("office")
        view_now(other, other.node("revenue"), first, declared(), 1, None)
    moved = shop(stores=["sqlite:///a.db", "redis://b"])
    assert view_now(moved, moved.node("revenue"), first, declared(), 1, None).stores == ("sqlite:///a.db", "redis://b")


@proves("P1", "eo.14")
def test_a_view_that_was_taken_out_of_the_catalog_goes_on_after_its_last_number() -> None:
    graph = shop()
    node = graph.node("revenue")
    first = view_now(graph, node, None, declared(), 1, "redis://default")
    again = view_now(graph, node, take_out(first), declared(), 1, "redis://default")
    assert (again.live, [one.sink for one in again.generations], again.app) == (2, ["revenue.v2"], "shop")


@proves("P1", "E1")
def test_an_app_that_is_started_from_another_folder_leaves_its_views_in_their_stores(
    tidelog_broker: TestBroker,
) -> None:
    """Its default store is another file then, which is empty, and the one that readers know would stand still."""
    here, elsewhere = "sqlite:////srv/tidelog-views/shop.db", "sqlite:////elsewhere/tidelog-views/shop.db"
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "orders.eu", partitions=1)

        def placed(default: str, *, stays: bool = True, **options: Any) -> tuple[str, ...]:
            graph = shop(**options)
            node = graph.node("revenue")
            target = place_view(cluster, graph, node, declared(), "/checkpoints", default, stays=stays)
            view = read_catalog(cluster)["view", "revenue"]
            assert isinstance(view, View) and view.stores == target.stores, "the catalog has what the run applies to"
            assert stays_elsewhere(graph, target, default) == (target.stores == (here,) and default == elsewhere)
            return target.stores

        assert placed(here) == (here,), "a new one has the default"
        assert placed(elsewhere) == (here,)
        assert placed(elsewhere, stays=False) == (elsewhere,), "somebody has named it"
        assert placed(elsewhere, stores=["redis://b"]) == ("redis://b",), "the view names its own"


@proves("P1", "P3")
def test_a_store_that_a_view_has_left_leaves_no_applier_behind_that_is_gone(tidelog_broker: TestBroker) -> None:
    """As after a restore into another folder: the backup has reports of the old app's appliers."""
    old, new = "sqlite:////srv/tidelog-views/shop.db", "sqlite:////srv/new/tidelog-views/shop.db"
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "orders.eu", partitions=1)
        graph = shop()

        def applying_to(url: str) -> list[str]:
            place_view(cluster, graph, graph.node("revenue"), declared(), "/checkpoints", url)
            return sorted(one.name for one in read_status(cluster))

        applying_to(old)
        for name in (f"revenue.{name_of(old)}", "other.store"):
            Reporter(cluster, "applier", name).tell({"generations": []}, at_once=True)
        assert applying_to(old) == ["other.store", f"revenue.{name_of(old)}"], "it is the view's own"
        assert applying_to(new) == ["other.store"]


@proves("eo.15")
def test_a_views_topic_is_compacted_after_its_horizon() -> None:
    assert settings_of_view(declare(COLUMNS, ("product",), 5000)) == {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": "5000",
        "delete.retention.ms": "5000",
    }


@proves("P1")
@pytest.mark.parametrize(
    ("text", "ddl"),
    [
        ("id long, at timestamp", True),
        ("id: long", True),
        ("amount decimal(10,2)", True),
        ('{"type":"record","name":"x","fields":[]}', False),
        ('"string"', False),
        ('syntax = "proto3"; message X { int64 id = 1; }', False),
        ("message X { int64 id = 1; }", False),
    ],
)
def test_columns_are_told_from_schemas(text: str, ddl: bool) -> None:
    assert is_ddl(text) is ddl


@proves("P1", "eo.14")
def test_a_view_is_never_written_to_a_topic_that_is_somebody_elses(tidelog_broker: TestBroker) -> None:
    def over(topic: str) -> Graph:
        app = App("shop")
        app.stream("raw", topic=topic)
        app.view("orders", key="product")(lambda raw: raw)
        return graph_of(app)

    def place(graph: Graph) -> str:
        return place_view(cluster, graph, graph.node("orders"), declared(), "/checkpoints", None).topic

    with Cluster(tidelog_broker.bootstrap) as cluster:
        for name in ("orders.v1", "others"):
            topics.create(cluster, name, partitions=1)
        with pytest.raises(
            UsageError, match=r"test_placing.py:\d+: view 'orders' .* topic orders.v1, which stream 'raw'"
        ):
            place(over("orders.v1"))
        with Producer(cluster) as producer:
            producer.send("orders.v1", b"somebody's", key=None, partition=0)
        with pytest.raises(UsageError, match=r"orders.v1, .* is there and has records"):
            place(over("others"))
        assert not read_catalog(cluster)
        topics.delete(cluster, "orders.v1")
        assert place(over("others")) == "orders.v1"
        with Producer(cluster) as producer:
            producer.send("orders.v1", b"the view's own", key=b"a", partition=0)
        assert place(over("others")) == "orders.v1", "it goes on"


def is_refused(name: str, known: Catalog, make: Callable[[App], None], match: str, *, app: str = "shop") -> None:
    made = App(app)
    made.stream("orders", topic="orders.eu")
    make(made)
    graph = graph_of(made)
    node = graph.node(name)
    with pytest.raises(UsageError, match=match):
        check_topic(graph, node, topic_target(graph, node, "/checkpoints"), known, is_there=True)


@proves("P1", "eo.1")
def test_a_derived_topic_has_no_name_that_is_anothers() -> None:
    def topic(name: str) -> Callable[[App], None]:
        return lambda app: app.topic(name)(lambda orders: orders) and None

    view = new_view("revenue", app="office", inputs=(), stores=())
    views: Catalog = {("view", "revenue"): view}
    is_refused("revenue.v2", views, topic("revenue.v2"), "revenue.v2 is the name of a generation of view 'revenue'")
    is_refused("v1", views, topic("v1"), "revenue.v1 is the name of a generation", app="revenue")
    is_refused("__tidelog.views", {}, topic("__tidelog.views"), "begins with __tidelog.")
    is_refused("orders.eu", {}, topic("orders.eu"), "is read by its own function")
    taken: Catalog = {("topic", "big"): Derived("big", "office", "big", "office.big", ())}
    is_refused("big", taken, topic("big"), "topic 'big' belongs to app office")


@proves("P1", "eo.14")
def test_a_view_whose_topic_has_less_than_its_last_mark_says_is_not_gone_on_with(tidelog_broker: TestBroker) -> None:
    graph = shop()
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "orders.eu", partitions=1)

        def place() -> str:
            return place_view(cluster, graph, graph.node("revenue"), REVENUE, "/checkpoints", None).topic

        place()
        view = read_catalog(cluster)["view", "revenue"]
        assert isinstance(view, View)
        pipeline = Pipeline(cluster, view.generations[0])
        assert place() == "revenue.v1", "nothing is written yet"
        pipeline.batch({"tea": 1, "cup": 2})
        assert place() == "revenue.v1"
        topics.delete(cluster, "revenue.v1")
        with pytest.raises(
            ViewChanged, match=r"revenue.v1\[0\] is not there, and its last mark says 2.*tidelog rebuild"
        ):
            place()
        assert "revenue.v1" not in topics.names(cluster)
        topics.create(cluster, "revenue.v1", partitions=1)
        with pytest.raises(ViewChanged, match=r"revenue.v1\[0\] ends at 0, and its last mark says 2"):
            place()


@proves("dt.4", "eo.26")
def test_a_view_that_has_read_nothing_begins_with_the_generation_of_its_topic_that_is_live_now(
    tidelog_broker: TestBroker,
) -> None:
    app = App("shop")
    app.stream("orders", topic="orders.eu")
    app.topic("big")(lambda orders: orders)
    app.view("revenue", key="product")(lambda big: big)
    graph = graph_of(app)
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "orders.eu", partitions=1)

        def begun_with(entry: Derived) -> Generation:
            topics.create(cluster, entry.topic, partitions=1)
            Editor(cluster, "big").write(entry)
            place_view(cluster, graph, graph.node("revenue"), REVENUE, "/checkpoints", None)
            view = read_catalog(cluster)["view", "revenue"]
            assert isinstance(view, View) and view.current is not None
            return view.current

        first = new_topic("big", "shop", ("orders.eu",), TopicGeneration(1, "big", "shop.big"))
        second = switch(begin(first, first.current), 2, {}, 0)
        third = switch(begin(second, second.current), 3, {}, 0)
        assert begun_with(first).reads == {"big": 1}
        now = begun_with(second)
        assert now.reads == {"big": 2}
        Pipeline(cluster, now).batch({"tea": 1})
        assert begun_with(third).reads == {"big": 2}, "rows of that one are in it"
