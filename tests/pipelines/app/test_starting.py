"""The start of a run's queries: what was looked at is what runs, and those that can be are started side by side."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.app.driven import Driven, make_topic, produce
from pipelines.app.run_in_thread import Running
from pipelines.app.test_running import until
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.control.marks import read_mark
from tidelog.control.status import send_command
from tidelog.operators import deduplicate
from tidelog.pipelines import parts
from tidelog.pipelines.app import App
from tidelog.spark.providers import PROVIDER, state_store
from tidelog.testing.broker import TestBroker

PATIENCE_S = 240.0


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


def shop(called: Counter[str]) -> App:
    app = App("shop")
    value = "id long, product string, at timestamp"
    app.stream("orders", value=value, event_time="at", watermark_delay="10 seconds")

    @app.topic("big", key="id")
    def big(orders: DataFrame) -> DataFrame:
        called["big"] += 1
        return orders.where("id > 1")

    @app.view("counts", key="product")
    def counts(orders: DataFrame) -> DataFrame:
        called["counts"] += 1
        return orders.groupBy("product").count()

    @app.view("kept", key="id")
    def kept(orders: DataFrame) -> DataFrame:
        called["kept"] += 1
        return orders.transform(deduplicate("id"))

    return app


@proves("P3", "F1")
@pytest.mark.slow
def test_queries_of_views_start_side_by_side_with_what_was_looked_at(
    spark: SparkSession,
    tidelog_broker: TestBroker,
    ours: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: Counter[str] = Counter()
    begun, start_query = threading.Barrier(2), parts.start_query

    def started_with_the_other(frame: DataFrame, target: Any, *given: Any, **how: Any) -> Any:
        if target.declared is not None and called["again"] == 0:
            begun.wait(PATIENCE_S)
            assert SparkSession.getActiveSession() is not None, "what Spark looks up in a thread is there"
        return start_query(frame, target, *given, **how)

    monkeypatch.setattr(parts, "start_query", started_with_the_other)
    make_topic(ours, "orders", 1)
    timed = [{"id": n, "product": f"p{n}", "at": f"2026-01-01T10:00:0{n}Z"} for n in range(3)]
    produce(ours, "orders", [*timed, {"id": 3}])
    driven = Driven(shop(called), spark, ours, tidelog_broker.bootstrap, tmp_path)
    running = Running(driven)
    try:
        until(lambda: len(driven.view("counts")) == 3 and len(driven.view("kept")) == 3, "the views are filled")
        before = dict(called)
        called["again"] = 1
        send_command(ours, "query", "shop.counts", "pause")
        until(lambda: running.run.watches["query", "shop.counts"].state == "paused", "it is paused")
        send_command(ours, "query", "shop.counts", "resume")
        until(lambda: called["counts"] > before["counts"], "its function is called again: something may be new")
    finally:
        running.stop()
    # The derived topic is looked at, and then made for its query; and views once more by this test, to fold them.
    assert before == {"big": 3, "counts": 2, "kept": 2}
    told = read_mark(ours, "kept.v1")
    assert told is not None and told.counts["operators"]["deduplicate"]["without_time"] == 1, "it was observed"


@proves("P1")
def test_a_query_is_not_started_with_the_state_store_of_another(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
    before, seen = spark.conf.get(PROVIDER), []

    def start() -> None:
        with state_store(stream):
            seen.append(spark.conf.get(PROVIDER))

    other = threading.Thread(target=start)
    with state_store(stream, "rocksdb"):
        other.start()
        other.join(0.3)  # it waits for its turn; if it did not, it would see what is meant for this one
    other.join()
    assert seen == [before]
