"""A table that is a view starts from the view's store: the same in the end as from the start of its topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.app.driven import Driven, committed
from pipelines.app.run_in_thread import Running, rebuilt
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import Mark, end_of_marks, read_marks
from tidelog.control.status import read_status
from tidelog.errors import UsageError
from tidelog.pipelines.app import App
from tidelog.pipelines.graph import graph_of
from tidelog.pipelines.seeding import Seed, begin_of, parse_start, read_whole
from tidelog.testing.broker import TestBroker
from tidelog.views import lifecycle
from tidelog.views.changes import Change, Stretch
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import Place
from views.applying import applying, shown, until
from views.writing import REVENUE, Pipeline, declare_view, row_of


def copying(name: str, start_from: str) -> App:
    app = App(name)
    app.table("revenue", key="product", value="product string, revenue long", start_from=start_from)
    app.view(f"{name}-copy", key="product")(lambda revenue: revenue)
    return app


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


def half_applied(cluster: Cluster, bootstrap: str, url: str) -> tuple[Pipeline, Mark]:
    """A view whose store is two micro-batches behind its topic, and the mark that the store is at."""
    topics.create(cluster, "revenue.v1", partitions=2, configs={"cleanup.policy": "compact,delete"})
    pipeline = Pipeline(cluster, declare_view(cluster, "revenue", partitions=2).generations[-1])
    pipeline.batch({"tea": 1, "cup": 2, "pot": 3})
    place = pipeline.batch({"tea": 4})
    with applying(bootstrap, url):
        until(lambda: (shown(url) or ({},))[0] == {"tea": 4, "cup": 2, "pot": 3})
    pipeline.batch({"cup": None, "mug": 9})
    pipeline.batch({"tea": 5})
    return pipeline, place


def rows(**numbers: int) -> dict[tuple[str, ...], Any]:
    return {(name,): row_of(name, number) for name, number in numbers.items()}


@pytest.mark.full
@proves("F4")
def test_a_table_from_a_store_equals_one_from_zero_and_needs_nothing_of_before(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    _, place = half_applied(ours, tidelog_broker.bootstrap, url)

    def driven(name: str) -> Driven:
        return Driven(copying(name, f"{url}#revenue"), spark, ours, tidelog_broker.bootstrap, tmp_path)

    zero = driven("zero")
    zero.reader = replace(zero.reader, seed_of=None)
    zero.step()
    topics.delete_records(ours, {at: end for at, end in place.ends.items() if end})
    seeded = driven("seeded")
    seeded.step()
    assert seeded.view("seeded-copy") == zero.view("zero-copy") == rows(tea=5, pot=3, mug=9)


@pytest.mark.full
@proves("F4")
def test_a_query_that_is_started_again_has_the_same_seed(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    pipeline, place = half_applied(ours, tidelog_broker.bootstrap, url)
    for number in range(2):
        again = Driven(copying("seeded", f"{url}#revenue"), spark, ours, tidelog_broker.bootstrap, tmp_path)
        again.step()
        if number == 0:
            again.forget_commits("seeded-copy")  # the driver dies
            pipeline.batch({"pot": None, "jar": 1})
    assert again.view("seeded-copy") == rows(tea=5, mug=9, jar=1)
    sink = "seed.seeded-copy.v1.revenue"
    marks = read_marks(ours, sink, end_of_marks(ours, sink))
    assert [mark.sources.offsets for mark in marks] == [place.ends], "it is written once, at the store's place"
    assert len(committed(ours, "__tidelog.seed.seeded-copy.v1.revenue")) == 3


@pytest.mark.full
@proves("F4", "E3", "eo.26")
def test_a_query_that_a_rebuild_has_handed_over_reads_the_seed_of_its_own_generation(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    pipeline, _ = half_applied(ours, tidelog_broker.bootstrap, url)

    def driven() -> Driven:
        return Driven(copying("seeded", f"{url}#revenue"), spark, ours, tidelog_broker.bootstrap, tmp_path)

    def report() -> dict[str, Any]:
        return next((one.figures for one in read_status(ours) if one.name == "seeded.seeded-copy"), {})

    old = driven()
    running = Running(old)
    try:
        until(lambda: old.view("seeded-copy") == rows(tea=5, pot=3, mug=9))
        with applying(tidelog_broker.bootstrap, url):
            until(lambda: (shown(url) or ({},))[0] == {"tea": 5, "pot": 3, "mug": 9})  # no cup, as the first seed had
        rebuilt(driven(), "seeded-copy")
        until(lambda: report().get("generation") == 2 and report().get("state") == "running")
        pipeline.batch({"mug": None, "jar": 1})
        new = driven()
        until(lambda: ("jar",) in new.view("seeded-copy") or report().get("error") is not None)
        assert report().get("error") is None
        assert new.view("seeded-copy") == rows(tea=5, pot=3, jar=1), "and no row of the other seed"
    finally:
        code = running.stop()
    assert code == 0


@proves("F4")
def test_a_store_that_goes_on_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.pipelines.seeding.PAGE_ROWS_MAX", 2)
    url, at = f"sqlite:///{tmp_path}/shop.db", TopicPartition("revenue.v1", 0)
    store, other = open_store(url, "revenue"), open_store(url, "revenue")
    store.prepare(1, REVENUE)

    def apply(before: int, **numbers: int) -> None:
        changes = [
            Change((name,), row_of(name, number), None, at, before + index, 0)
            for index, (name, number) in enumerate(numbers.items())
        ]
        stretch = Stretch(changes, {at: before + len(changes)}, None)
        store.apply(1, stretch, before={at: before} if before else {}, show=True)

    apply(0, a=1, b=2, c=3)
    pages = 0
    read = other.read

    def slow(ask: Any) -> Any:
        nonlocal pages
        pages += 1
        page = read(ask)
        if pages == 1:
            apply(3, a=10, d=4)
        return page

    monkeypatch.setattr(other, "read", slow)
    declared, found, place = read_whole(other)
    assert [row["revenue"] for row in found] == [10, 2, 3, 4] and place.ends == {at: 5} and declared == REVENUE
    store.close()
    other.close()


@proves("F4")
def test_where_a_query_begins_is_the_whole_seed_and_the_topic_from_the_stores_place() -> None:
    generation = lifecycle.begin(
        lifecycle.new_view("revenue", app="shop", inputs=["orders"], stores=[]), REVENUE, "f", 2
    ).generations[0]
    first, second = TopicPartition("revenue.v1", 0), TopicPartition("revenue.v1", 1)
    begin = begin_of(Place(1, {first: 7}, None), generation)
    assert begin == {first: 7, second: 0}, "a partition that the store knows nothing of is read whole"
    assert Seed("__tidelog.seed.a.b", "revenue.v1", begin).options == {
        "subscribe": "__tidelog.seed.a.b,revenue.v1",
        "startingOffsets": '{"__tidelog.seed.a.b":{"0":0},"revenue.v1":{"0":7,"1":0}}',
        "maxOffsetsPerTrigger": "unlimited",
    }
    assert parse_start("sqlite:///shop.db#revenue", "table") == ("sqlite:///shop.db", "revenue")
    assert parse_start("sqlite:///shop.db", "table") == ("sqlite:///shop.db", "table")


@proves("F4", "eo.26")
def test_where_a_table_starts_is_no_other_view_and_a_table_that_is_a_view_has_no_topic_of_its_own() -> None:
    codes = {graph_of(copying("a", f"sqlite:///{one}.db#revenue")).node("a-copy").fingerprint for one in ("x", "y")}
    assert len(codes) == 1
    with pytest.raises(UsageError, match=r"test_seeding.py:\d+: start_from says that the table is a view"):
        App("b").table("t", key="k", value="k string", topic="other", start_from="sqlite:///shop.db#revenue")
