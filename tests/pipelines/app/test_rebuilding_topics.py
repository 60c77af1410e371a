"""Derived topics that change: named, rebuilt beside or in place, gone on with; and what becomes of their readers."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.app.driven import Driven, committed, make_topic, produce
from pipelines.app.run_in_thread import Running, rebuilt, rebuilt_topic
from pipelines.app.test_running import ORDERS, orders, status, until
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.control.catalog import find_derived, read_catalog
from tidelog.control.derived import GENERATION_HEADER, Derived
from tidelog.errors import LostCheckpoint, StateMismatch, UsageError, ViewChanged
from tidelog.pipelines.app import App
from tidelog.pipelines.changed_views import prepare_run
from tidelog.pipelines.rebuilding_topics import RebuildTopic
from tidelog.testing.broker import TestBroker

pytestmark = pytest.mark.full


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        make_topic(cluster, "orders")
        yield cluster


def shop(times: int, *more: str) -> App:
    """Other code for another number."""
    app = App("shop")
    app.stream("orders", value=ORDERS)

    @app.topic("net", key="id")
    def net(orders: DataFrame) -> DataFrame:
        return orders.withColumn("amount", F.col("amount") * times)

    if "sums" in more:

        @app.view("sums", key="product")
        def sums(net: DataFrame) -> DataFrame:
            return net.groupBy("product").agg(F.sum("amount").alias("sum"))

    if "behind" in more:

        @app.topic("behind", key="product")
        def behind(orders: DataFrame) -> DataFrame:
            counted = orders.groupBy("product").agg(F.count("*").alias("count"))
            return counted.select("product", (F.col("count") * times).alias("count"))

    if "totals" in more:

        @app.topic("totals", key="product")
        def totals(orders: DataFrame) -> DataFrame:
            return orders.groupBy("product").agg((F.sum("amount") * times).alias("total"))

        app.view("copies", key="product")(lambda totals: totals)
    return app


def entry_of(cluster: Cluster, name: str = "net") -> Derived:
    found = find_derived(read_catalog(cluster), name)
    assert found is not None
    return found


def amounts(cluster: Cluster, topic: str) -> dict[int, float]:
    rows = [json.loads(row.value or b"null") for _, row in committed(cluster, topic)]
    assert len({row["id"] for row in rows}) == len(rows), "each once"
    return {row["id"]: row["amount"] for row in rows}


def counts(rows: list[dict[str, Any]]) -> list[int]:
    return list(Counter(row["product"] for row in rows).values())


def numbers(cluster: Cluster, topic: str) -> set[bytes | None]:
    return {dict(row.headers).get(GENERATION_HEADER) for _, row in committed(cluster, topic)}


@pytest.mark.story
@proves("dt.2", "dt.3", "dt.4", "dt.10", "P3")
def test_changed_code_of_a_topic_is_named_and_rebuilt_beside_it_with_what_reads_it(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    def driven(times: int) -> Driven:
        return Driven(shop(times, "sums"), spark, ours, tidelog_broker.bootstrap, tmp_path)

    produce(ours, "orders", orders(0, 6))
    driven(1).step()
    before = amounts(ours, "net")
    changed = driven(10)
    told = {one.node.name: str(one.changed) for one in prepare_run_of(driven(10), ours, "net")}
    assert "test_rebuilding_topics.py:" in told["net"] and "changed: constant times" in told["net"]
    assert "`tidelog rebuild net --app " in told["net"] and "--go-on net` goes on from here" in told["net"]
    assert "reads topic net, which has changed and is not run" in told["sums"]
    with pytest.raises(UsageError, match=r"view sums reads topic net, generation 1, .*--with-readers"):
        rebuilt_topic(changed, "net")
    rebuilt_topic(changed, "net", with_readers=True)
    entry = entry_of(ours)
    assert (entry.live, entry.topic, entry.sink) == (2, "net.v2", "shop.net.v2")
    assert amounts(ours, "net") == before, "foreign consumers have the old one until they move"
    assert amounts(ours, "net.v2") == {id: 10 * amount for id, amount in before.items()}
    assert (numbers(ours, "net"), numbers(ours, "net.v2")) == ({None}, {b"2"})
    stopped = {one.node.name: str(one.changed) for one in prepare_run_of(driven(10), ours, "sums")}
    assert "view sums has read net, and generation 2 of topic net is live, in topic net.v2" in stopped["sums"]
    rebuilt(driven(10), "sums")
    produce(ours, "orders", orders(6, 3))
    after = driven(10)
    after.step()
    assert after.targets["net"].topic == "net.v2" and after.targets["sums"].topic == "sums.v2"
    assert len(amounts(ours, "net.v2")) == 9 and after.view("sums") == after.batch("sums")


def prepare_run_of(driven: Driven, cluster: Cluster, changed: str) -> list[Any]:
    """As a run prepares them; where nothing is left to run it says the first reason, so another output is there."""
    app = driven.graph.app
    if "others" not in app.outputs:
        app.view("others", key="product")(lambda orders: orders.groupBy("product").count())
    graph_of = Driven(app, driven.reader.spark, cluster, driven.settings.bootstrap, Path(driven.settings.checkpoints))
    reader = replace(graph_of.reader, options=driven.reader.options)
    found = prepare_run(cluster, reader, driven.settings)
    assert next(one for one in found if one.node.name == changed).changed is not None
    return found


@proves("dt.10", "dt.12")
def test_new_code_goes_on_from_here_where_that_is_asked_for_and_no_state_rests_on_it(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    def driven(times: int, *going: str) -> Driven:
        made = Driven(shop(times, "behind", "totals"), spark, ours, tidelog_broker.bootstrap, tmp_path)
        made.settings = replace(made.settings, go_on=going)
        return made

    produce(ours, "orders", orders(0, 6))
    driven(1).step()
    with pytest.raises(ViewChanged, match=r"topic net is declared otherwise than generation 1 was written \(changed"):
        driven(10).step()
    with pytest.raises(ViewChanged, match=r"topic totals .*; it cannot go on from here: its query keeps state"):
        driven(10, "net", "behind", "totals").step()
    produce(ours, "orders", orders(6, 3))
    app = shop(10, "behind")
    going = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)
    going.settings = replace(going.settings, go_on=("net", "behind"))
    going.step()
    found = amounts(ours, "net")
    was = {row["id"]: row["amount"] for row in orders(0, 9)}
    assert found == {id: amount * (1 if id < 6 else 10) for id, amount in was.items()}
    change = entry_of(ours).current.changes[-1]
    assert sum(change.ends.values()) >= 6 and change.code != entry_of(ours).current.code
    Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path).step()  # it is the code now: nobody asks again
    last = {str(row.key): json.loads(row.value or b"null")["count"] for _, row in committed(ours, "behind")}
    assert sorted(last.values()) == sorted(10 * n for n in counts(orders(0, 9))), (
        "state goes on behind which code changed"
    )


@proves("dt.10")
def test_code_that_reads_its_inputs_in_another_order_does_not_go_on_and_the_old_code_still_does(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    """Spark knows a source by its place alone, and would give each how far the other one was read."""

    def driven(first: str, second: str) -> Driven:
        app = App("shop")
        app.stream("orders", value=ORDERS)
        app.stream("returns", value=ORDERS)

        @app.topic("both", key="id")
        def both(orders: DataFrame, returns: DataFrame) -> DataFrame:
            read = {"orders": orders, "returns": returns}
            twice = read[first].where("id < 4").union(read[first].where("id >= 4"))
            return twice.union(read[second])

        made = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)
        made.settings = replace(made.settings, go_on=("both",))
        return made

    make_topic(ours, "returns")
    produce(ours, "orders", orders(0, 6))
    produce(ours, "returns", orders(100, 2))
    driven("orders", "returns").step()
    produce(ours, "orders", orders(6, 3))
    with pytest.raises(
        StateMismatch, match=r"topic 'both' reads returns where its checkpoint has read orders: .*rebuild"
    ):
        driven("returns", "orders").step()
    driven("orders", "returns").step()
    assert set(amounts(ours, "both")) == {*range(9), 100, 101}


@proves("dt.5", "dt.7", "dt.3")
def test_in_place_every_row_comes_again_and_readers_are_rebuilt_from_these(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    def driven(times: int) -> Driven:
        return Driven(shop(times, "sums"), spark, ours, tidelog_broker.bootstrap, tmp_path)

    produce(ours, "orders", orders(0, 6))
    driven(1).step()
    rebuilt_topic(driven(10), "net", with_readers=True, is_in_place=True)
    entry = entry_of(ours)
    assert (entry.live, entry.topic, entry.sink, entry.current.aside) == (2, "net", "shop.net.v2", "")
    assert "net.v2" not in topics.names(ours) and numbers(ours, "net") == {b"2"}
    assert amounts(ours, "net") == {row["id"]: 10 * row["amount"] for row in orders(0, 6)}
    told = {one.node.name: str(one.changed) for one in prepare_run_of(driven(10), ours, "sums")}
    assert "view sums has read an older generation of topic net, and generation 2 of topic net is live" in told["sums"]
    rebuilt(driven(10), "sums")
    produce(ours, "orders", orders(6, 3))
    after = driven(10)
    after.step()
    assert (after.targets["net"].topic, after.targets["net"].sink) == ("net", "shop.net.v2")
    assert len(amounts(ours, "net")) == 9 and after.view("sums") == after.batch("sums")
    assert rebuilt_topic(driven(10), "net", with_readers=True).drop_old(at_once=True) == [1, 2]
    assert {"net.v3"} == {name for name in topics.names(ours) if name.startswith("net")}


@proves("dt.6")
def test_in_place_a_topic_by_key_gets_the_difference_and_readers_go_on(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    def driven(times: int) -> Driven:
        return Driven(shop(times, "totals"), spark, ours, tidelog_broker.bootstrap, tmp_path)

    produce(ours, "orders", orders(0, 6))
    driven(1).step()
    before = len(committed(ours, "totals"))
    rebuilt_topic(driven(10), "totals", is_in_place=True)
    assert len(committed(ours, "totals")) == 2 * before and numbers(ours, "totals") == {None, b"2"}
    produce(ours, "orders", orders(6, 3))
    after = driven(10)
    after.settings = replace(after.settings, go_on=("net",))
    after.step()
    assert after.targets["copies"].generation == 1, "as a table it was changed, and nothing came again"
    assert after.view("copies") == after.batch("copies")


@proves("dt.8", "F4")
@pytest.mark.parametrize("point", ["switched", "put", "deleted"])
def test_a_rebuild_in_place_that_was_killed_at_any_step_is_ended_by_the_same_command(
    spark: SparkSession,
    tidelog_broker: TestBroker,
    ours: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    from tidelog.pipelines import in_place

    def driven(times: int = 10) -> Driven:
        return Driven(shop(times), spark, ours, tidelog_broker.bootstrap, tmp_path)

    produce(ours, "orders", orders(0, 6))
    driven(1).step()
    times = 20 if point == "switched" else 10  # other code ends it, too, and then begins with its own

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    step = {"switched": "put", "put": "delete_before", "deleted": "delete_aside"}[point]
    with monkeypatch.context() as patch:
        patch.setattr(in_place, step, killed)
        with pytest.raises(KeyboardInterrupt):
            rebuilt_topic(driven(), "net", is_in_place=True)
    if point != "deleted":
        with pytest.raises(ViewChanged, match=r"generation 2 of topic net is being put in place; .*--in-place ends it"):
            driven().step()
        with pytest.raises(UsageError, match="is not whole; end that first"):
            rebuilt_topic(driven(), "net")
        rebuilt_topic(driven(times), "net", is_in_place=True)
    assert amounts(ours, "net") == {row["id"]: times * row["amount"] for row in orders(0, 6)}
    assert numbers(ours, "net") == {b"3" if point == "switched" else b"2"}
    produce(ours, "orders", orders(6, 3))
    driven(times).step()
    assert len(amounts(ours, "net")) == 9


@proves("dt.2", "F4", "eo.6")
def test_a_lost_checkpoint_of_a_topic_is_mended_by_a_rebuild_and_a_run_goes_on_with_it(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    def driven() -> Driven:
        return Driven(shop(1, "behind"), spark, ours, tidelog_broker.bootstrap, tmp_path)

    produce(ours, "orders", orders(0, 6))
    first = driven()
    first.step()
    shutil.rmtree(first.targets["net"].checkpoint)
    with pytest.raises(LostCheckpoint, match=r"topic net: its checkpoint .* was lost.*`tidelog rebuild net "):
        driven().step()
    running = Running(driven())  # it has another output, or it would end with its only one
    try:
        until(lambda: status(ours).get("shop.net", {}).get("state") == "failed", "its checkpoint is lost")
        rebuilt_topic(driven(), "net")
        until(lambda: status(ours)["shop.net"].get("generation") == 2, "the run goes on with what was rebuilt")
        produce(ours, "orders", orders(6, 3))
        until(lambda: len(amounts(ours, "net.v2")) == 9, "and it has what came since")
    finally:
        code = running.stop()
    assert code == 0 and entry_of(ours).live == 2


@proves("dt.2")
def test_a_rebuild_of_a_topic_that_was_ended_goes_on_and_one_of_other_code_is_given_up_when_told(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    def rebuild(times: int) -> RebuildTopic:
        made = Driven(shop(times), spark, ours, tidelog_broker.bootstrap, tmp_path)
        how = {"say": lambda *_, **__: None, "tell": lambda _: None}
        return RebuildTopic(ours, made.reader, made.graph.node("net"), made.settings, **how)

    Driven(shop(1), spark, ours, tidelog_broker.bootstrap, tmp_path).step()
    make_topic(ours, "net.v2")
    produce(ours, "net.v2", [{"somebody": "else's"}])
    assert rebuild(10).begin().target.topic == "net.v3", "a number whose topic is somebody else's is passed over"
    assert rebuild(10).begin().target.topic == "net.v3"
    with pytest.raises(UsageError, match=r"generation 3 of topic net is being built by other code; .*--again"):
        rebuild(20).begin()
    with pytest.raises(UsageError, match="is being built beside the old one; go on in that way"):
        rebuild(10).begin(is_in_place=True)
    assert rebuild(20).begin(again=True).target.topic == "net.v4" and "net.v3" not in topics.names(ours)
    assert entry_of(ours).topic == "net", "until the switch"


@proves("dt.11", "P3")
def test_how_late_rows_may_come_needs_a_restart_only_and_counts_from_then_on(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    def driven(delay: str) -> Driven:
        app = App("shop")
        how = {"event_time": "at", "watermark_delay": delay}
        app.stream("visits", value="user string, at timestamp", **how)

        @app.view("visits-by-minute", key=("user", "start"))
        def by_minute(visits: DataFrame) -> DataFrame:
            counted = visits.groupBy("user", F.window("at", "1 minute")).count()
            return counted.select("user", F.col("window.start").alias("start"), "count")

        return Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)

    def visit(minute: int) -> dict[str, Any]:
        return {"user": "ann", "at": f"2026-01-31T12:{minute:02}:30Z"}

    def counted(one: Driven) -> dict[int, Any]:
        return {key[1].minute: row["count"] for key, row in one.view("visits-by-minute").items()}  # type: ignore[union-attr]

    make_topic(ours, "visits", partitions=1)
    for rows in ([visit(1), visit(9)], [visit(1), visit(10)]):
        produce(ours, "visits", rows)
        driven("1 minute").step()
    assert counted(driven("1 minute")) == {1: 1, 9: 1, 10: 1}, "one of them is late"
    for rows in ([visit(20)], [visit(15)]):
        produce(ours, "visits", rows)
        driven("10 minutes").step()
    after = driven("10 minutes")
    assert counted(after) == {1: 1, 9: 1, 10: 1, 15: 1, 20: 1}, "it is no longer late"
    assert after.targets["visits-by-minute"].generation == 1
