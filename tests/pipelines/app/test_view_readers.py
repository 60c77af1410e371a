"""Who reads a view that is rebuilt: rebuilt after it, in order, or stopped by name; never gone on with in silence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.app.driven import Driven, make_topic, produce
from pipelines.app.noting_query import NotingQuery
from pipelines.app.run_in_thread import Running, rebuilt
from pipelines.app.test_running import ORDERS, orders, status
from pipelines.app.test_running import until as until_so
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control import catalog, derived
from tidelog.control.catalog import Catalog, View, find_view
from tidelog.control.derived import Derived
from tidelog.control.marks import Mark, Sources
from tidelog.errors import UsageError
from tidelog.pipelines import generations
from tidelog.pipelines.app import App
from tidelog.pipelines.changed_views import prepare_run
from tidelog.pipelines.graph import Graph, graph_of
from tidelog.pipelines.handover import Handover
from tidelog.pipelines.placing import topic_target, view_target
from tidelog.pipelines.rebuilding import BegunView, begin
from tidelog.pipelines.running import Run, Settings
from tidelog.pipelines.view_readers import chain_of, check_readers, left_behind, of_others, reads_rebuilt
from tidelog.testing.broker import TestBroker
from tidelog.views import lifecycle
from views.applying import until
from views.writing import REVENUE, Pipeline, declare_view


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        make_topic(cluster, "orders", partitions=1)
        yield cluster


def shop(*more: str) -> Graph:
    """`revenue`, what reads it, and what reads that."""
    app = App("shop")
    if "table" in more:
        app.view("sums", key="product")(lambda rows, ranking: rows)
        app.table("rows", key="product", value="product string, revenue long", start_from="sqlite:///a.db#copies")
        app.view("copies", key="product")(lambda revenue: revenue)
    app.stream("orders", value="product string, revenue long")
    app.view("top", key="product")(lambda ranking: ranking)
    app.view("ranking", key="product")(lambda revenue: revenue)
    app.view("revenue", key="product")(lambda orders: orders)
    if "topic" in more:
        app.topic("loud", key="product")(lambda ranking: ranking)
    return graph_of(app)


def view(name: str, *inputs: str, app: str = "shop", generation: int = 1) -> View:
    made = lifecycle.begin(lifecycle.new_view(name, app=app, inputs=inputs, stores=[]), REVENUE, "f", 1)
    for number in range(1, generation):
        made = lifecycle.switch(lifecycle.begin(made, REVENUE, "f", 1), number + 1, {})
    return made


def known(*entries: View | Derived) -> Catalog:
    return {("view" if isinstance(one, View) else "topic", one.name): one for one in entries}


# Decisions ------------------------------------------------------------------------------------------------------------


@proves("eo.25", "E3")
def test_views_that_read_a_view_or_each_other_are_rebuilt_after_it_in_order() -> None:
    graph = shop("table")
    every = [view("revenue"), view("ranking"), view("top"), view("copies"), view("sums")]
    names = [one.name for one in chain_of(known(*every), graph, graph.node("revenue"))]
    assert names[0] == "revenue" and sorted(names) == sorted(one.name for one in every)
    assert names.index("ranking") < names.index("top")
    assert max(names.index("ranking"), names.index("copies")) < names.index("sums"), "by its table, too"
    assert [one.name for one in chain_of(known(*every[:2]), graph, graph.node("revenue"))] == ["revenue", "ranking"]
    assert [one.name for one in chain_of(known(*every), graph, graph.node("top"))] == ["top"]


@proves("eo.25", "dt.4", "E3")
def test_a_derived_topic_is_rebuilt_after_what_it_reads_and_before_what_reads_it() -> None:
    app = App("shop")
    app.stream("orders", value="product string, revenue long")
    app.view("top", key="product")(lambda loud: loud)
    app.topic("loud", key="product")(lambda big: big)
    app.topic("big", key="product")(lambda orders: orders)
    graph = graph_of(app)
    loud, big = Derived("loud", "shop", "loud", "shop.loud", ("big",)), Derived("big", "shop", "big", "shop.big", ())
    every = known(view("top"), loud, big)
    assert [one.name for one in chain_of(every, graph, graph.node("big"))] == ["big", "loud", "top"]
    assert [one.name for one in chain_of(every, graph, graph.node("loud"))] == ["loud", "top"]
    with pytest.raises(UsageError, match=r"topic loud reads topic big, generation 1, and could not .*--with-readers"):
        check_readers(every, big, app="shop", outputs=["loud", "big", "top"], rebuilt=False)


@proves("eo.25", "E3")
def test_readers_of_other_apps_are_named_and_in_the_way_only_until_it_is_said_that_they_are_known() -> None:
    revenue = view("revenue")
    every = known(revenue, view("margin", "revenue", app="books"))
    with pytest.raises(UsageError, match=r"view margin of app books reads view revenue, .*; --with-readers"):
        check_readers(every, revenue, app="shop", outputs=["revenue"], rebuilt=False)
    check_readers(every, revenue, app="shop", outputs=["revenue"], rebuilt=True)
    assert of_others(every, revenue, "shop") == ["view margin of app books"]


def mark(*topics: str) -> Mark:
    return Mark("any", "q", 0, Sources({TopicPartition(one, 0): 1 for one in topics}), {}, 0)


@proves("eo.25", "eo.26")
def test_what_has_read_another_generation_than_the_live_one_is_told_so_with_what_mends_it() -> None:
    graph = shop("topic", "table")
    every = known(view("revenue", generation=2), view("ranking"), view("copies", generation=2), view("sums"))
    ranking: Any = every["view", "ranking"]
    target = view_target(graph, graph.node("ranking"), ranking, ranking.current, "/checkpoints")
    assert left_behind(target, None, every) is left_behind(target, mark("revenue.v2"), every) is None
    told = str(left_behind(target, mark("revenue.v1"), every))
    assert "view ranking has read revenue.v1, and generation 2 of view revenue is live; `tidelog rebuild " in told
    sums: Any = every["view", "sums"]
    seeded = view_target(graph, graph.node("sums"), sums, sums.current, "/checkpoints")
    assert left_behind(seeded, mark("__tidelog.seed.sums.v1.rows", "copies.v1"), every) is not None
    every |= known(view("ranking", generation=3))
    loud = topic_target(graph, graph.node("loud"), "/checkpoints")
    assert "`tidelog rebuild loud " in str(left_behind(loud, mark("ranking.v2"), every))
    assert left_behind(loud, mark("ranking.v3", "orders.v1"), every) is None


def switched(entry: Derived, put: str = "") -> Derived:
    made = derived.begin(entry, replace(entry.current, in_place=put))
    return derived.switch(made, made.newest, {}, 1)


@proves("dt.4", "dt.6", "dt.7")
def test_who_has_read_a_derived_topic_is_told_of_its_switch_unless_it_was_put_in_place_by_key() -> None:
    app = App("shop")
    app.stream("orders", value="product string, revenue long")
    app.topic("big", key="product")(lambda orders: orders)
    app.view("top", key="product")(lambda big: big)
    graph, big = graph_of(app), Derived("big", "shop", "big", "shop.big", ("orders",))
    top = topic_target(graph, graph.node("top"), "/checkpoints")
    assert left_behind(top, mark("big"), known(big)) is None
    told = str(left_behind(top, mark("big"), known(switched(big))))
    assert "view top has read big, and generation 2 of topic big is live, in topic big.v2; `tidelog rebuild top" in told
    assert (
        left_behind(top, None, known(switched(big))) is left_behind(top, mark("big.v2"), known(switched(big))) is None
    )
    told = str(left_behind(top, mark("big"), known(switched(big, derived.ROWS))))
    assert "has read an older generation of topic big, and generation 2 of topic big is live, whose rows came" in told
    anew = replace(top, reads={"big": 2})
    assert left_behind(anew, mark("big"), known(switched(big, derived.ROWS))) is None, "it began with these"
    assert left_behind(top, mark("big"), known(switched(big, derived.DIFFERENCE))) is None
    twice = switched(switched(big, derived.ROWS), derived.ROWS)
    assert left_behind(anew, mark("big"), known(derived.forget(twice, 2))) is not None


@proves("dt.4")
def test_another_app_that_names_a_topic_nobody_writes_any_more_is_told_the_new_name() -> None:
    app = App("books")
    app.stream("sold", topic="big", value="product string, revenue long")
    app.view("margin", key="product")(lambda sold: sold)
    graph, big = graph_of(app), Derived("big", "shop", "big", "shop.big", ("orders",))
    margin = topic_target(graph, graph.node("margin"), "/checkpoints")
    assert not reads_rebuilt(margin, known(big))
    every = known(switched(big))
    assert reads_rebuilt(margin, every)
    told = str(left_behind(margin, mark("big"), every))
    assert "view margin reads topic big by stream 'sold'" in told and "generation 2 of topic big of app shop is" in told
    assert "declare topic='big.v2', then `tidelog rebuild margin " in told
    app.inputs["sold"] = replace(app.inputs["sold"], topic="big.v2")
    moved = topic_target(graph_of(app), graph_of(app).node("margin"), "/checkpoints")
    assert left_behind(moved, mark("big.v2"), every) is None


# A run ----------------------------------------------------------------------------------------------------------------


@proves("eo.25", "E3")
def test_a_run_stops_who_reads_a_view_that_was_switched_and_goes_on_once_that_is_rebuilt(
    ours: Cluster, tmp_path: Path
) -> None:
    graph = shop()
    declare_view(ours, "revenue")
    reads = Pipeline(ours, declare_view(ours, "ranking", inputs=("revenue",)).generations[0])
    reads.batch({"tea": 1}, sources=Sources({TopicPartition("revenue.v1", 0): 1}))
    ranking = find_view(ours, "ranking")
    part = NotingQuery(view_target(graph, graph.node("ranking"), ranking, ranking.generations[0], str(tmp_path)))
    run = Run("shop", [part], ours, lambda *_, **__: None, handover=Handover(ours, graph, str(tmp_path)))

    def turn() -> int:
        run._due = dict.fromkeys(run._due, 0.0)
        run._follow(1.0)
        run.step(("query", "shop.ranking"), 1.0)
        return len(part.calls)

    def rebuild(name: str) -> BegunView:
        settings = Settings("", str(tmp_path), store=f"sqlite:///{tmp_path}/views.db")
        return begin(ours, graph, graph.node(name), REVENUE, settings, again=False, with_readers=True)

    assert turn() == 1
    begun = rebuild("revenue")
    mark = Pipeline(ours, begun.view.generations[-1]).batch({"tea": 1})
    assert turn() == 1, "the old one is the view until the switch"
    generations.switch(ours, "revenue", 2, mark.ends)
    until(lambda: turn() > 1)
    assert part.calls == ["start ranking.v1", "stop ranking.v1"]
    watch = run.watches["query", "shop.ranking"]
    assert watch.state == "failed" and "`tidelog rebuild ranking" in str(watch.fault)
    new = Pipeline(ours, rebuild("ranking").view.generations[-1])
    ends = new.batch({"tea": 1}, sources=Sources({TopicPartition("revenue.v2", 0): 1})).ends
    generations.switch(ours, "ranking", 2, ends)
    until(lambda: turn() > 2)
    turn()
    assert part.calls[2:] == ["start ranking.v2"]


# With Spark -----------------------------------------------------------------------------------------------------------


def sums(times: int, *more: str) -> App:
    """Other code for another number."""
    app = App("shop")
    app.stream("orders", value=ORDERS)

    @app.view("sums", key="product")
    def sums(orders: DataFrame) -> DataFrame:
        return orders.where(F.col("id") > times).groupBy("product").agg(F.sum(F.col("amount") * times).alias("sum"))

    if "copies" in more:
        app.view("copies", key="product")(lambda sums: sums)
    return app


@pytest.mark.full
@proves("eo.25", "E3", "P3")
def test_a_reader_that_was_taken_out_for_a_rebuild_and_put_back_is_rebuilt_and_not_gone_on_with(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    def driven(times: int, *more: str) -> Driven:
        return Driven(sums(times, *more), spark, ours, tidelog_broker.bootstrap, tmp_path)

    produce(ours, "orders", orders(0, 9))
    driven(1, "copies").step()
    rebuilt(driven(10), "sums")
    back = driven(10, "copies")
    targets = {one.node.name: one.changed for one in prepare_run(ours, back.reader, back.settings)}
    assert targets["sums"] is None
    assert "view copies has read sums.v1, and generation 2 of view sums is live" in str(targets["copies"])
    rebuilt(back, "copies")
    produce(ours, "orders", orders(9, 9))
    after = driven(10, "copies")
    after.step()
    assert after.view("copies") == after.view("sums") == after.batch("sums")


@pytest.mark.full
@proves("eo.25", "E3", "P3")
def test_a_chain_of_views_is_rebuilt_while_the_run_of_its_code_goes_on(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    def driven(times: int) -> Driven:
        return Driven(sums(times, "copies"), spark, ours, tidelog_broker.bootstrap, tmp_path)

    def state(name: str) -> tuple[Any, Any]:
        told = status(ours).get(f"shop.{name}", {})
        return told.get("state"), told.get("generation")

    produce(ours, "orders", orders(0, 9))
    driven(1).step()
    made = driven(1)
    running = Running(made)
    try:
        until_so(lambda: state("copies") == ("running", 1), "it runs")
        for one in chain_of(catalog.read_catalog(ours), made.graph, made.graph.node("sums")):
            rebuilt(made, one.name, with_readers=True)
        for name in ("sums", "copies"):
            until_so(lambda name=name: state(name) == ("running", 2), f"the run goes on with {name}")
        produce(ours, "orders", orders(9, 9))
        after = driven(1)
        until_so(lambda: after.view("copies") == after.batch("sums"), "and the last of them has what came since")
    finally:
        code = running.stop()
    assert code == 0
