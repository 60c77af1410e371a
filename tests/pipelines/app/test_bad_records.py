"""Records that cannot be decoded, and such as are passed: rows, letters and counts, by the app's own queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from against.patience import eventually
from pipelines.app.driven import Driven, committed, make_topic
from pipelines.app.run_in_thread import rebuilt
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.control.marks import read_mark
from tidelog.control.passed import RecordPlace, pass_record, passed_by
from tidelog.pipelines import history
from tidelog.pipelines.app import App
from tidelog.pipelines.inputs import Span
from tidelog.pipelines.operators.aggregates import count
from tidelog.pipelines.operators.dedup import deduplicate
from tidelog.pipelines.operators.windows.tumbling import tumbling
from tidelog.testing.broker import TestBroker

NOT_JSON = "it is not JSON"
ERRORS = "__connect.errors."


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


def shop(on_error: str | None) -> App:
    """A stream behind an aggregate, and a table, whose bad records are the same."""
    app = App("shop")
    given: dict[str, Any] = {} if on_error is None else {"on_error": on_error}
    app.stream("orders", value="product string, amount long", **given)
    app.table("prices", key="product", value="product string, price long", **given)

    @app.view("revenue", key="product")
    def revenue(orders: DataFrame) -> DataFrame:
        return orders.groupBy("product").agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))

    @app.view("latest", key="product")
    def latest(prices: DataFrame) -> DataFrame:
        return prices

    return app


def send(cluster: Cluster, topic: str, *records: tuple[str | None, bytes | None], time_ms: int = 1_000) -> None:
    with Producer(cluster) as producer:
        for number, (key, value) in enumerate(records):
            name = None if key is None else key.encode()
            headers = [("trace", f"t{number}".encode())]
            producer.send(topic, value, key=name, headers=headers, partition=0, timestamp=time_ms + number)


def order(product: str, amount: int) -> tuple[None, bytes]:
    return None, json.dumps({"product": product, "amount": amount}).encode()


def price(product: str, price: int) -> tuple[str, bytes]:
    return product, json.dumps({"product": product, "price": price}).encode()


def letters_of(cluster: Cluster, topic: str) -> list[tuple[bytes | None, bytes | None, int, dict[str, str]]]:
    found = []
    for _, row in committed(cluster, topic):
        headers = {name: (value or b"").decode() for name, value in row.headers}
        found.append((row.key, row.value, row.timestamp, headers))
    return found


def counted(cluster: Cluster, sink: str) -> dict[str, dict[str, int]]:
    mark = read_mark(cluster, sink)
    assert mark is not None
    return {name: dict(sums) for name, sums in mark.counts.get("records", {}).items()}


@proves("P1")
@pytest.mark.slow
def test_a_bad_record_is_a_letter_in_the_transaction_of_its_micro_batch_also_behind_an_aggregate(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    make_topic(ours, "orders", 1)
    make_topic(ours, "prices", 1)
    run = Driven(shop("dead_letter"), spark, ours, tidelog_broker.bootstrap, tmp_path)
    send(ours, "orders", order("tea", 1), ("k", b"{broken"), order("tea", 2), (None, b'{"amount": "many"}'))
    send(ours, "prices", price("tea", 5), price("cup", 7), ("tea", b"nonsense"), ("cup", None))
    run.step()
    assert run.view("revenue") == {("tea",): {"product": "tea", "revenue": 3, "orders": 2}}
    assert run.view("latest") == {("tea",): {"product": "tea", "price": 5}}, "a bad record is not a tombstone"
    (first, second) = letters_of(ours, "revenue.v1.dead")
    assert first[:3] == (b"k", b"{broken", 1_001)
    place = {f"{ERRORS}topic": "orders", f"{ERRORS}partition": "0", f"{ERRORS}offset": "1"}
    assert first[3].items() >= {"trace": "t1", f"{ERRORS}connector.name": "revenue.v1", **place}.items()
    assert first[3][f"{ERRORS}exception.message"].startswith(NOT_JSON)
    assert second[3][f"{ERRORS}offset"] == "3" and second[:2] == (None, b'{"amount": "many"}')
    assert counted(ours, "revenue.v1") == {"orders": {NOT_JSON: 1, "amount: the value is of another type": 1}}
    assert [one[:2] for one in letters_of(ours, "latest.v1.dead")] == [(b"tea", b"nonsense")]
    again = _run_again(run, ours)
    assert again == (2, {"orders": {NOT_JSON: 1, "amount: the value is of another type": 1}}), "exactly once"
    assert _times_read(run, "revenue") == 1, "letters and rows are of one reading"
    send(ours, "orders", (None, b"{broken"))
    run.step("revenue")
    assert counted(ours, "revenue.v1")["orders"][NOT_JSON] == 2, "counts go on from the mark"


def _times_read(run: Driven, name: str) -> int:
    """How often a micro-batch reads the source, and so decodes what it has read."""
    plan = run.reader.result(run.targets[name].node)._jdf.queryExecution().logical()
    return int(plan.collectLeaves().size())


def _run_again(run: Driven, cluster: Cluster) -> tuple[int, dict[str, dict[str, int]]]:
    run.forget_commits("revenue")
    run.step("revenue")
    return len(letters_of(cluster, "revenue.v1.dead")), counted(cluster, "revenue.v1")


@proves("P1")
@pytest.mark.full
def test_null_leaves_a_bad_record_out_and_counts_it_and_a_tables_key_keeps_its_row(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    make_topic(ours, "orders", 1)
    make_topic(ours, "prices", 1)
    run = Driven(shop("null"), spark, ours, tidelog_broker.bootstrap, tmp_path)
    send(ours, "orders", order("tea", 1), (None, b"{broken"))
    send(ours, "prices", price("tea", 5), ("tea", b"nonsense"))
    run.step()
    assert run.view("latest") == {("tea",): {"product": "tea", "price": 5}}
    assert run.view("revenue")["tea",]["orders"] == 1
    assert counted(ours, "latest.v1") == {"prices": {NOT_JSON: 1}}
    assert not ours.ask_metadata(["latest.v1.dead"]).topics["latest.v1.dead"].led, "nobody asked for letters"


@proves("P1")
@pytest.mark.slow
def test_a_record_that_is_passed_is_left_out_by_the_query_by_its_rebuild_and_by_a_batch(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    make_topic(ours, "orders", 1)
    make_topic(ours, "prices", 1)
    run = Driven(shop(None), spark, ours, tidelog_broker.bootstrap, tmp_path)
    send(ours, "orders", order("tea", 1), (None, b"{broken"), order("cup", 2))
    with pytest.raises(Exception, match="offset 1 cannot be decoded"):
        run.step("revenue")
    assert pass_record(ours, "revenue", "shop", RecordPlace("orders", 0, 1))
    assert not pass_record(ours, "revenue", "shop", RecordPlace("orders", 0, 1)), "it is passed already"
    assert passed_by(ours, "revenue") == {RecordPlace("orders", 0, 1)}
    run.step("revenue")
    assert {key: row["revenue"] for key, row in run.view("revenue").items()} == {("tea",): 1, ("cup",): 2}
    assert {key: row["revenue"] for key, row in run.batch("revenue").items()} == {("tea",): 1, ("cup",): 2}
    assert counted(ours, "revenue.v1") == {"orders": {"passed": 1}}
    rebuilt(run, "revenue")
    assert counted(ours, "revenue.v2") == {"orders": {"passed": 1}}
    assert [one[1] for one in letters_of(ours, "revenue.v2.dead")] == [b"{broken"]
    assert len(letters_of(ours, "revenue.v1.dead")) == 1, "letters of a rebuild belong to its generation"


@proves("P1", "F1")
@pytest.mark.full
def test_rows_that_are_late_or_have_no_time_or_no_key_are_counted_by_the_operator_that_drops_them(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    app = App("rides")
    app.stream("rides", value="id long, city string, at timestamp", event_time="at", watermark_delay="10 seconds")
    app.table("cities", key="city", value="city string, name string")

    @app.view("by-minute", key=("window_start", "city"))
    def by_minute(rides: DataFrame) -> DataFrame:
        corrected = tumbling(
            "1 minute", by="city", aggregates={"rides": count()}, late="correct", allowed_lateness="1 second"
        )
        return rides.transform(corrected)

    @app.view("once", key="id")
    def once(rides: DataFrame) -> DataFrame:
        return rides.transform(deduplicate("id"))

    @app.view("named", key="city")
    def named(cities: DataFrame) -> DataFrame:
        return cities

    make_topic(ours, "rides", 1)
    make_topic(ours, "cities", 1)
    run = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)
    send(ours, "rides", ride(1, "10:00:00"), ride(1, "10:00:01"), ride(2, None), ride(3, "11:00:00"))
    send(ours, "cities", ("a", b'{"city": "a", "name": "A"}'), (None, b'{"name": "nowhere"}'))
    run.step()
    send(ours, "rides", ride(4, "09:00:00"), ride(None, "11:00:01"), ride(5, "11:00:02"))
    run.step("by-minute", "once")
    windows = operators(ours, "by-minute.v1")["windows on a grid"]
    assert windows.items() >= {"in": 7, "late": 1, "without_time": 1}.items(), windows
    assert operators(ours, "once.v1") == {"deduplicate": {"without_time": 1}, "view": {"without_key": 1}}
    assert operators(ours, "named.v1")["as_changelog"]["without_key"] == 1


def ride(number: int | None, at: str | None) -> tuple[None, bytes]:
    time = None if at is None else f"2026-01-01T{at}Z"
    return None, json.dumps({"id": number, "city": "a", "at": time}).encode()


def operators(cluster: Cluster, sink: str) -> dict[str, dict[str, int]]:
    mark = read_mark(cluster, sink)
    assert mark is not None
    return {name: dict(sums) for name, sums in mark.counts.get("operators", {}).items()}


@proves("P1")
@pytest.mark.full
def test_a_batch_that_is_written_has_its_letters_and_counts_in_the_same_transaction_and_once(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    app = App("past")
    app.stream("orders", value="product string, amount long", on_error="dead_letter")

    @app.topic("large", key="product")
    def large(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 1")

    make_topic(ours, "orders", 1)
    run = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)
    send(ours, "orders", order("tea", 1), (None, b"{broken"), order("cup", 2), order("pot", 3))
    assert pass_record(ours, "large", "past", RecordPlace("orders", 0, 3))
    wanted = ([b'{"product":"cup","amount":2}'], ["1", "3"], {"orders": {NOT_JSON: 1, "passed": 1}})
    for _ in range(2):
        list(history.write_all(ours, replace(run.reader, span=Span()), run.settings))
        eventually(lambda: written_in_the_end(run), lambda seen: seen == wanted)  # a commit is answered before it shows


def written_in_the_end(run: Driven) -> tuple[object, ...]:
    offsets = [one[3][f"{ERRORS}offset"] for one in letters_of(run.cluster, "large.dead")]
    return [row.value for _, row in run.records("large")], offsets, counted(run.cluster, "past.large")
