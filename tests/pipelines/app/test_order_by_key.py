"""One order by key, on Spark and a broker: keys that move between partitions, tables as they are now, and `order=`.

Histories by chance are in `operators/joins/test_places.py`, without Spark: here a few go through all of it.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.app.driven import Driven, make_topic, produce
from pipelines.operators.joins.histories import KEYS as LETTERS
from pipelines.operators.joins.histories import Record, last_of, table_of
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.pipelines import queries
from tidelog.pipelines.app import App
from tidelog.pipelines.graph import as_text, graph_of
from tidelog.pipelines.operators.changelog import PLACE, as_changelog, latest_by_key
from tidelog.pipelines.operators.joins.enrich import enrich
from tidelog.pipelines.ordering import notices_of
from tidelog.testing.broker import TestBroker

KEYS = 40
PARTITIONS = 3


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


# Tables ---------------------------------------------------------------------------------------------------------------


def prices_app() -> App:
    app = App("shop")
    app.table("prices", key="item", value="item string, price long")

    @app.view("listed", key="item")
    def listed(prices: DataFrame) -> DataFrame:
        return prices

    return app


def write(cluster: Cluster, price: int, items: range) -> None:
    produce(cluster, "prices", [{"item": f"i{n}", "price": price} for n in items], key=[f"i{n}" for n in items])


@pytest.mark.full
@proves("P1", "P9", "B1")
def test_a_table_follows_keys_whose_partitions_have_become_more(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    make_topic(ours, "prices", 1)
    run = Driven(prices_app(), spark, ours, tidelog_broker.bootstrap, tmp_path)
    for price in (1, 2, 3):  # offsets that are above those of the partitions to come
        write(ours, price, range(KEYS))
    run.step()
    topics.add_partitions(ours, "prices", 4)
    ours.forget()
    write(ours, 4, range(KEYS))
    with Producer(ours) as producer:
        producer.send("prices", None, key=b"i0")
    run.step()
    shown = {key[0]: row["price"] for key, row in run.view("listed").items()}
    assert shown == {f"i{n}": 4 for n in range(1, KEYS)}
    assert run.view("listed") == run.batch("listed")


def some_history(chance: random.Random, count: int) -> list[Record]:
    """In the order in which it is written; times tie and go back."""
    ends, made = [0] * PARTITIONS, []
    for number in range(count):
        partition = chance.randrange(PARTITIONS)
        value = None if chance.random() < 0.25 else number
        made.append(Record(chance.choice(LETTERS), partition, ends[partition], 1000 + chance.randrange(5), value))
        ends[partition] += 1
    return made


def send(cluster: Cluster, topic: str, records: list[Record]) -> None:
    with Producer(cluster) as producer:
        for one in records:
            value = None if one.value is None else b'{"k": "%s", "v": %d}' % (one.key.encode(), one.value)
            producer.send(topic, value, key=one.key.encode(), partition=one.partition, timestamp=one.time)


@pytest.mark.full
@proves("P9", "P10", "B1")
def test_tables_and_versions_of_random_histories_are_those_of_plain_python_on_spark(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    """Each step is a query that is started again."""
    app = App("random")
    app.table("rows", key="k", value="k string, v long")
    app.stream("asked", value="k string, at timestamp", event_time="at", watermark_delay="0 seconds")
    since = {"versions": True, "event_time": "since", "watermark_delay": "0 seconds"}
    app.table("versions", topic="rows", key="k", value="k string, v long, since timestamp", **since)

    @app.view("last", key="k")
    def last(rows: DataFrame) -> DataFrame:
        return rows

    @app.topic("met", key="k")
    def met(asked: DataFrame, versions: DataFrame) -> DataFrame:
        found = enrich(versions, on="k", deleted="_deleted", horizon="0 seconds", as_of="latest")
        return asked.transform(found).drop("_deleted")

    make_topic(ours, "rows", PARTITIONS, {"cleanup.policy": "delete", "retention.ms": "-1"})
    make_topic(ours, "asked", 1)
    run = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)
    history = some_history(random.Random(7), 30)
    for begin in range(0, len(history), 10):
        send(ours, "rows", history[begin : begin + 10])
        produce(ours, "asked", [{"k": key, "at": "2026-01-01T00:00:00Z"} for key in LETTERS])
        run.step()
        read = history[: begin + 10]
        assert {key[0]: row["v"] for key, row in run.view("last").items()} == table_of(read)
        assert run.view("last") == run.batch("last")
        answers = {row.key: json.loads(row.value) for _, row in run.records("met")}  # a key's are in one partition
        assert {one["k"]: one["v"] for one in answers.values() if one.get("v") is not None} == table_of(read)


@pytest.mark.full
@proves("P9", "B1")
def test_a_batch_of_many_histories_has_the_last_record_of_each_key(spark: SparkSession) -> None:
    chance = random.Random(11)
    every = [one._replace(key=f"{n} {one.key}") for n in range(60) for one in some_history(chance, 12)]
    rows = spark.createDataFrame(
        [(one.key, one.value, one.partition, one.offset, one.time) for one in every],
        "k string, v long, partition int, offset long, ms long",
    ).withColumn("timestamp", F.timestamp_millis("ms"))
    told = rows.drop("ms").transform(as_changelog(["k"], order=PLACE, deleted="v is null"))
    assert told.columns == ["_op", "_seq", "k", "v"]
    assert {row.k: row.v for row in told.collect()} == table_of(every)
    found = rows.transform(latest_by_key(["k"], order=PLACE, deleted="v is null"))
    places = {row.k: (row.partition, row.offset) for row in found.collect()}
    assert places == {key: one[1:3] for key, one in last_of(every).items() if one.value is not None}


@proves("P9", "T6")
def test_what_is_told_once_names_the_way_out() -> None:
    node = graph_of(prices_app()).node("listed")
    target: Any = type("Target", (), {"node": node})()
    assert notices_of(target, {"as_changelog": {}}) == {}
    told = notices_of(target, {"as_changelog": {"moved": 3}, "as_changelog 2": {"without_place": 1}})
    assert told.keys() == {"moved", "without_place"}
    assert "may be stale until its next record comes; `tidelog rebuild listed" in told["without_place"]


# Outputs with an order ------------------------------------------------------------------------------------------------


def events_app() -> App:
    app = App("events")
    app.stream("events", value="k string, at long, v double, gone boolean")

    @app.view("newest", key="k", order="at")
    def newest(events: DataFrame) -> DataFrame:
        return events.withColumnRenamed("gone", "_deleted")

    @app.topic("by-value", key="k", order="v")
    def by_value(events: DataFrame) -> DataFrame:
        return events.drop("gone")

    return app


def event(k: str, at: int, *, gone: bool = False) -> dict[str, Any]:
    return {"k": k, "at": at, "v": at / 2, "gone": gone}


STEPS = (
    [event("a", 2), event("b", 1), event("c", 5, gone=True), event("d", 1)],
    [event("a", 1), event("b", 2), event("c", 4), event("b", 0), event("d", 3, gone=True)],
    [event("c", 6), event("a", 2), event("d", 2), event("a", 0)],
)


@pytest.mark.full
@proves("P1", "P9", "B1")
def test_the_order_of_a_view_holds_over_all_micro_batches(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    make_topic(ours, "events", 1)
    run = Driven(events_app(), spark, ours, tidelog_broker.bootstrap, tmp_path)
    for events, shown in zip(
        STEPS, ({"a": 2, "b": 1, "d": 1}, {"a": 2, "b": 2}, {"a": 2, "b": 2, "c": 6}), strict=True
    ):
        produce(ours, "events", events)
        run.step()
        assert {key[0]: row["at"] for key, row in run.view("newest").items()} == shown
        assert run.view("newest") == run.batch("newest")
    last = {row.key.decode(): row.value.decode() for _, row in run.records("by-value")}
    assert {key: value.split('"at":')[1].split(",")[0] for key, value in last.items()} == {
        "a": "2",
        "b": "2",
        "c": "6",
        "d": "3",
    }


@pytest.mark.full
@proves("P1", "F4")
def test_what_began_without_state_for_its_order_goes_on_as_it_was_and_says_so(
    spark: SparkSession,
    tidelog_broker: TestBroker,
    ours: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make_topic(ours, "events", 1)
    with monkeypatch.context() as before:
        before.setattr(queries, "in_order", lambda frame, target: frame)
        produce(ours, "events", STEPS[0])
        Driven(events_app(), spark, ours, tidelog_broker.bootstrap, tmp_path).step()
    run = Driven(events_app(), spark, ours, tidelog_broker.bootstrap, tmp_path)
    produce(ours, "events", STEPS[1])
    with caplog.at_level(logging.WARNING):
        run.step()
    assert {key[0]: row["at"] for key, row in run.view("newest").items()} == {"a": 1, "b": 2, "c": 4}
    said = [one.getMessage() for one in caplog.records if "micro-batch alone" in one.getMessage()]
    assert len(said) == 2 and "`tidelog rebuild newest" in said[0] and "a topic of another name" in said[1]


@proves("P1")
def test_a_plan_says_what_an_order_compares() -> None:
    text = as_text(graph_of(events_app()))
    assert "order at: all rows are compared; where its checkpoint is from before that" in text
    assert "until it is rebuilt" in text and "until it is written by another name" in text
