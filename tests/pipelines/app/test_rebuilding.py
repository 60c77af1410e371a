"""`tidelog rebuild` with Spark: while the old view serves under load, by new code, and after a lost checkpoint."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.app.driven import Driven, make_topic, produce
from pipelines.app.run_in_thread import Running, rebuilt
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.control.catalog import find_view
from tidelog.control.status import read_status
from tidelog.errors import LostCheckpoint, NotShown
from tidelog.pipelines.app import App
from tidelog.pipelines.catching_up import Done
from tidelog.pipelines.loading import load_app
from tidelog.pipelines.rebuilding import Rebuild
from tidelog.testing.broker import TestBroker
from tidelog.views.feed_reading import FeedReader, Piece, Switched, find, newest
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import Ask, generation_of

PATIENCE_S = 900.0
PRODUCTS = 3
PROGRAM = """
from tidelog import App

app = App("shop")
app.stream("orders", value="id long, product string, amount double")


@app.view("revenue", key="product")
def revenue(orders):
    from pyspark.sql import functions as F

    return orders.groupBy("product").agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))
"""
NEW_CODE = PROGRAM.replace('F.sum("amount")', '(-F.sum("amount"))')


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


def until(is_so: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"not so after {PATIENCE_S:g} s: {what}"
        time.sleep(0.1)
    return found


def order(number: int) -> dict[str, Any]:
    return {"id": number, "product": f"p{number % PRODUCTS}", "amount": float(number)}


def expected(count: int, sign: int) -> dict[str, tuple[float, int]]:
    """The view over the first `count` orders."""
    of = {f"p{n}": list(range(n, count, PRODUCTS)) for n in range(min(count, PRODUCTS))}
    return {name: (float(sign * sum(numbers)), len(numbers)) for name, numbers in of.items()}


# Within this process ----------------------------------------------------------------------------------------------


@pytest.mark.full
@proves("F4", "E3", "eo.6")
@pytest.mark.story
def test_a_deleted_checkpoint_is_refused_by_a_run_and_a_rebuild_gives_the_same_view_from_the_log(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    app = App("shop")
    app.stream("orders", value="id long, product string, amount double")

    @app.view("revenue", key="product")
    def revenue(orders: DataFrame) -> DataFrame:
        return orders.groupBy("product").agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))

    make_topic(ours, "orders")
    produce(ours, "orders", [order(n) for n in range(20)])
    driven = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)
    driven.step()
    before = driven.view("revenue")
    shutil.rmtree(driven.targets["revenue"].checkpoint)
    with pytest.raises(LostCheckpoint, match=r"revenue: its checkpoint in .* was lost, or .*`tidelog rebuild revenue "):
        driven.step()
    told: list[Done] = []
    node = driven.graph.node("revenue")
    rebuild = Rebuild(ours, driven.reader, node, driven.settings, say=lambda *_, **__: None, tell=told.append)
    begun = rebuild.begin()
    ends = rebuild.build(begun)
    assert ends is not None and told[-1].records == told[-1].of == 20
    view = rebuild.switch(begun, ends)
    assert rebuild.show(begun, view, PATIENCE_S) == [], "nobody else applies it: the rebuild has done so"
    assert (view.live, rebuild.is_run()) == (2, False)
    store = open_store(view.stores[0], "revenue")
    page = store.read(Ask())
    store.close()
    assert generation_of(page.place.generation) == 2
    assert {(row["product"],): row for row in page.rows} == before == driven.batch("revenue")
    produce(ours, "orders", [order(n) for n in range(20, 26)])
    after = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)
    after.step()
    assert after.targets["revenue"].topic == "revenue.v2", "a run goes on with the new one, and its checkpoint"
    assert after.view("revenue") == after.batch("revenue")
    assert rebuild.drop_old(at_once=False) == [], "the old one stays for the horizon"
    assert rebuild.drop_old(at_once=True) == [1] and "revenue.v1" not in topics.names(ours)


# As users do it -------------------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    generation: int
    orders: int


class Watcher:
    """Threads that write orders, read the store and follow the feed, until `stop`; each notes what is wrong."""

    def __init__(self, bootstrap: str, url: str, written: int) -> None:
        self.bootstrap, self.url, self.written = bootstrap, url, written
        self.seen: list[Seen] = []
        self.fired: list[tuple[str, int]] = []
        self.switches = 0
        self.faults: list[str] = []
        self.signs = {1: 1, 2: 1, 3: -1}  # by generation
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self._guard, args=[one], daemon=True) for one in self._all()]
        for thread in self.threads:
            thread.start()

    def _all(self) -> list[Callable[[Cluster], None]]:
        return [self._write, self._read, self._follow]

    def _guard(self, body: Callable[[Cluster], None]) -> None:
        try:
            with Cluster(self.bootstrap) as cluster:
                body(cluster)
        except Exception as error:
            self.faults.append(f"{body.__name__}: {error!r}")

    def _write(self, cluster: Cluster) -> None:
        with Producer(cluster) as producer:
            while not self.ended.wait(0.5):
                for number in range(self.written, self.written + 10):
                    producer.send("orders", json.dumps(order(number)).encode())
                producer.flush()
                self.written += 10

    def _read(self, cluster: Cluster) -> None:
        store = open_store(self.url, "revenue")
        while not self.ended.wait(0.05):
            page: Any = store.read(Ask())
            generation = generation_of(page.place.generation)
            rows = {row["product"]: (row["revenue"], row["orders"]) for row in page.rows}
            count = sum(orders for _, orders in rows.values())
            if rows != expected(count, self.signs[generation]):
                self.faults.append(f"generation {generation} showed {rows}, which no micro-batch ends with")
            if self.seen and (generation, count) < self.seen[-1]:
                self.faults.append(f"went back from {self.seen[-1]} to {(generation, count)}")
            if self.seen and count < self.seen[-1].orders:
                self.faults.append(f"rows went back from {self.seen[-1]} to {(generation, count)}")
            self.seen.append(Seen(generation, count))
        store.close()

    def _follow(self, cluster: Cluster) -> None:
        view, position = find(cluster, "revenue")
        reader = FeedReader(cluster, view, newest(cluster, view), catalog_from=position, wait_ms=100)
        while not self.ended.is_set():
            piece = reader.step()
            if isinstance(piece, Piece):
                rows: list[Any] = [(one.key[0], one.after) for one in piece.changes]
                self.fired += [(key, row["orders"]) for key, row in rows]
            self.switches += isinstance(piece, Switched)

    @property
    def last(self) -> Seen:
        assert not self.faults, self.faults[:5]
        return self.seen[-1] if self.seen else Seen(0, 0)

    def stop(self) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join(PATIENCE_S)


def query_report(cluster: Cluster) -> dict[str, Any]:
    return next((one.figures for one in read_status(cluster) if (one.kind, one.name) == ("query", "shop.revenue")), {})


def shows(url: str) -> bool:
    try:
        store = open_store(url, "revenue")
        try:
            return len(store.read(Ask()).rows) == PRODUCTS
        finally:
            store.close()
    except NotShown:
        return False


def load(text: str, file: Path) -> App:
    file.write_text(text)
    return load_app(str(file))


@pytest.mark.full
@proves("E3", "F4", "eo.24", "eo.25", "eo.26")
def test_a_view_is_rebuilt_under_load_and_readers_see_whole_micro_batches_that_never_go_back(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/views.db"
    make_topic(ours, "orders", 1)
    produce(ours, "orders", [order(n) for n in range(300)])
    old = Driven(load(PROGRAM, tmp_path / "shop.py"), spark, ours, tidelog_broker.bootstrap, tmp_path)
    new = Driven(load(NEW_CODE, tmp_path / "shop_new.py"), spark, ours, tidelog_broker.bootstrap, tmp_path)
    run = Running(old, appliers=True)
    watcher: Watcher | None = None
    try:
        until(lambda: shows(url), "the store has the view")
        watcher = Watcher(tidelog_broker.bootstrap, url, 300)
        assert rebuilt(old, "revenue", shown_within_s=PATIENCE_S).is_run()
        until(lambda: query_report(ours).get("generation") == 2, "the run goes on with the new one")
        before = watcher.last.orders
        until(lambda: watcher.last.generation == 2 and watcher.last.orders > before, "it is kept up to date")
        assert rebuilt(new, "revenue", shown_within_s=PATIENCE_S).is_run()
        until(lambda: query_report(ours).get("state") == "failed", "a run of the old code ends its query")
        assert "start `tidelog run` with the new code" in query_report(ours)["error"]["message"]
        until(lambda: watcher.last.generation == 3, "readers have the new code's rows")
        until(lambda: watcher.switches == 2, "the feed has told of both")
    finally:
        if watcher is not None:
            watcher.stop()
        code = run.stop()
    assert watcher.last and not watcher.faults
    assert code == 1, "a part has failed for good"
    assert len(set(watcher.fired)) == len(watcher.fired) > 0, "no change was told twice"
    assert [one.number for one in find_view(ours, "revenue").generations] == [1, 2, 3]
