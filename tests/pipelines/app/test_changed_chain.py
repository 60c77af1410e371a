"""A chain of two derived topics and three views, whose first one is changed while everything is read and written."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.app.driven import Driven, make_topic
from pipelines.app.run_in_thread import Running, rebuilt, rebuilt_topic
from pipelines.app.test_running import until
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.control.catalog import find_derived, read_catalog
from tidelog.control.derived import GENERATION_HEADER
from tidelog.errors import NotShown
from tidelog.pipelines.app import App
from tidelog.testing.broker import TestBroker
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import Ask, generation_of

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

PRODUCTS, PARTITIONS, AT_FIRST = 5, 2, 200
VIEWS = ("sums", "counts", "top")
SHOWN_WITHIN_S = 300.0


def shop(times: int) -> App:
    """Other code of the first topic for another number; the rest is the same."""
    app = App("shop")
    app.stream("orders", value="id long, product string, amount double")

    @app.topic("net", key="id")
    def net(orders: DataFrame) -> DataFrame:
        return orders.withColumn("amount", F.col("amount") * times)

    @app.topic("dear", key="id")
    def dear(net: DataFrame) -> DataFrame:
        return net.where("amount > 50")

    @app.view("sums", key="product")
    def sums(net: DataFrame) -> DataFrame:
        return net.groupBy("product").agg(F.sum("amount").alias("sum"))

    @app.view("counts", key="product")
    def counts(dear: DataFrame) -> DataFrame:
        return dear.groupBy("product").count()

    @app.view("top", key="product")
    def top(dear: DataFrame) -> DataFrame:
        return dear.groupBy("product").agg(F.max("amount").alias("top"))

    return app


def order(number: int) -> dict[str, Any]:
    return {"id": number, "product": f"p{number % PRODUCTS}", "amount": float(number % 97)}


class Got(NamedTuple):
    offset: int
    generation: int
    id: int
    amount: float


@dataclass
class Beside:
    """Threads that write orders, consume `net` as a foreign program does, and read the views, until they are told."""

    bootstrap: str
    store: str
    written: int = 0
    got: dict[tuple[str, int], list[Got]] = field(default_factory=dict)
    shown: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in VIEWS})
    faults: list[str] = field(default_factory=list)
    topics: set[str] = field(default_factory=lambda: {"net"})

    def __post_init__(self) -> None:
        self.stopping, self.written_all = threading.Event(), threading.Event()
        bodies = [self._write, self._consume, *(lambda name=name: self._look_at(name) for name in VIEWS)]
        self.threads = [threading.Thread(target=self._guard, args=(body,), daemon=True) for body in bodies]
        for one in self.threads:
            one.start()

    def _guard(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Exception as error:
            self.faults.append(repr(error))

    def _write(self) -> None:
        with Cluster(self.bootstrap) as cluster, Producer(cluster) as producer:
            while not self.written_all.is_set():
                for number in range(self.written, self.written + 5):
                    producer.send("orders", json.dumps(order(number)).encode(), key=str(number).encode())
                producer.flush()
                self.written += 5
                self.written_all.wait(0.1 if self.written > AT_FIRST else 0.0)

    def _consume(self) -> None:
        settings = {"group.id": "foreign", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "enable.auto.commit": False, **settings})
        assigned: set[str] = set()
        try:
            while not self.stopping.is_set():
                if assigned != self.topics:
                    new = self.topics - assigned
                    consumer.incremental_assign([TopicPartition(t, p, 0) for t in new for p in range(PARTITIONS)])
                    assigned |= new
                if (message := consumer.poll(0.2)) is None:
                    continue
                assert message.error() is None, message.error()
                row, said = json.loads(message.value()), dict(message.headers() or ()).get(GENERATION_HEADER)
                one = Got(message.offset(), 1 if said is None else int(said), row["id"], row["amount"])
                self.got.setdefault((message.topic(), message.partition()), []).append(one)
        finally:
            consumer.close()

    def _look_at(self, view: str) -> None:
        store = open_store(self.store, view)
        try:
            while not self.stopping.is_set():
                try:
                    page = store.read(Ask())
                except NotShown:
                    assert not self.shown[view], f"{view} was shown, and is no more"
                    time.sleep(0.05)
                    continue
                self.shown[view].append(generation_of(page.place.generation))
                time.sleep(0.05)
        finally:
            store.close()

    def stop(self) -> None:
        self.written_all.set()
        self.stopping.set()
        for one in self.threads:
            one.join(60)

    def rows(self, generation: int) -> dict[int, float]:
        found = [one for every in list(self.got.values()) for one in list(every) if one.generation == generation]
        rows = {one.id: one.amount for one in found}
        assert len(rows) == len(found), f"rows of generation {generation} came twice"
        return rows


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        make_topic(cluster, "orders", PARTITIONS)
        yield cluster


@pytest.mark.parametrize("is_in_place", [True, False], ids=["in place", "by name"])
@proves("dt.2", "dt.3", "dt.4", "dt.5", "dt.7", "eo.25", "P3", "E3")
def test_the_first_topic_of_a_chain_is_changed_while_all_of_it_is_read(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path, is_in_place: bool
) -> None:
    def driven(times: int) -> Driven:
        return Driven(shop(times), spark, ours, tidelog_broker.bootstrap, tmp_path)

    old, new = driven(1), driven(10)
    beside = Beside(tidelog_broker.bootstrap, str(old.settings.store))
    running = Running(old, appliers=True)
    try:
        until(lambda: all(beside.shown.values()) and len(beside.rows(1)) > AT_FIRST, "all of it runs, and is read")
        rebuilt_topic(new, "net", with_readers=True, is_in_place=is_in_place)
        beside.topics |= {topic_of(ours, "net")}
        rebuilt_topic(driven(10), "dear", with_readers=True)
        for name in VIEWS:
            rebuilt(driven(10), name, shown_within_s=SHOWN_WITHIN_S, with_readers=True)
        running.stop()
        last = driven(10)
        running = Running(last, appliers=True)
        beside.written_all.set()
        for name in VIEWS:
            until(lambda name=name: last.view(name) == last.batch(name), f"{name} is what the batch gives")
        until(lambda: len(beside.rows(2)) == beside.written or beside.faults, "the consumer has all rows")
    finally:
        running.stop()
        beside.stop()
    assert beside.faults == []
    wanted = [order(number) for number in range(beside.written)]
    assert beside.rows(2) == {row["id"]: 10 * row["amount"] for row in wanted}, "every row of the new generation, once"
    amounts = {row["id"]: row["amount"] for row in wanted}
    assert beside.rows(1) == {id: amounts[id] for id in beside.rows(1)}, "and rows of the old one are of that"
    for got in beside.got.values():
        assert [one.offset for one in got] == sorted({one.offset for one in got}), "no offset came twice"
        assert [one.generation for one in got] == sorted(one.generation for one in got), "all of one, then of the next"
    by_topic = {topic: {one.generation for one in got} for (topic, _), got in beside.got.items()}
    assert by_topic == ({"net": {1, 2}} if is_in_place else {"net": {1}, "net.v2": {2}})
    for name, seen in beside.shown.items():
        assert seen == sorted(seen) and set(seen) == {1, 2}, f"{name} was shown throughout, and switched once"


def topic_of(cluster: Cluster, name: str) -> str:
    found = find_derived(read_catalog(cluster), name)
    assert found is not None
    return found.topic
