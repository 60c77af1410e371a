"""The check of a view against its batch query: a planted difference is found, whatever kind it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelog
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.control.marks import Mark, Sources
from tidelog.demo.checking import QUERIES, Checked, DemoRecord, check, minutes, read_log
from tidelog.demo.events import ShopEvent
from tidelog.demo.feeding import make_topics
from tidelog.demo.shop import DELIVERIES, ORDERS
from tidelog.demo.summary import Summary, figures, lines_of
from tidelog.errors import NotShown
from tidelog.schema.declaration import declare
from tidelog.views.changes import Change, Stretch
from tidelog.views.stores.opening import open_store

TOPIC = TopicPartition("stock.v1", 0)
DECLARED = declare({"product": "string", "quantity": "long"}, ("product",))
EVENTS = [
    ShopEvent(0.0, DELIVERIES, 0, "tea", 200),
    ShopEvent(0.1, DELIVERIES, 1, "cup", 200),
    ShopEvent(0.2, ORDERS, 2, "tea", 3, 1350),
    ShopEvent(0.3, ORDERS, 3, "tea", 1, 450),
]
RIGHT = {"tea": 196, "cup": 200}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tidelog.Broker() as broker, Cluster(broker.bootstrap) as cluster:
        assert make_topics(cluster) == 0
        with Producer(cluster) as producer:
            for one in EVENTS:
                producer.send(one.topic, one.value(0), key=one.key, timestamp=one.timestamp_ms(0))
        assert make_topics(cluster) == len(EVENTS)
        yield cluster


def ends(**counts: int) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, index): count for topic, count in counts.items() for index in range(2)}


def checked(cluster: Cluster, folder: Path, rows: dict[str, int], read: dict[TopicPartition, int]) -> Checked:
    url = f"sqlite:///{folder / 'views.db'}"
    store = open_store(url, "stock")
    store.prepare(1, DECLARED)
    changes = [
        Change((name,), {"product": name, "quantity": count}, None, TOPIC, offset, 0)
        for offset, (name, count) in enumerate(rows.items())
    ]
    mark = Mark("stock.v1", "q", 0, Sources(read), {TOPIC: len(rows)}, 0, 1)
    store.apply(1, Stretch(changes, {TOPIC: len(rows)}, mark), before={}, show=True)
    store.close()
    return check(cluster, "stock", url)


def all_read(cluster: Cluster) -> dict[TopicPartition, int]:
    from tidelog.client.offsets import LATEST, list_offsets

    return {
        at: found.offset
        for at, found in list_offsets(cluster, dict.fromkeys(ends(orders=0, deliveries=0), LATEST)).items()
    }


@proves("demo", "D6")
def test_a_view_that_is_its_batch_query_is_equal(cluster: Cluster, tmp_path: Path) -> None:
    found = checked(cluster, tmp_path, RIGHT, all_read(cluster))
    assert found == Checked("stock", 2, 4, ())
    assert Summary(1.0, {}, (figures(found, 0, [0.1]),)).equal


@proves("demo", "D6")
@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ({"tea": 195, "cup": 200}, ("tea", 195, 196)),
        ({"tea": 196}, ("cup", None, 200)),
        ({"tea": 196, "cup": 200, "rum": 0}, ("rum", 0, None)),
    ],
)
def test_a_wrong_a_missing_and_a_needless_row_are_found(
    cluster: Cluster, tmp_path: Path, rows: dict[str, int], wrong: tuple[str, int | None, int | None]
) -> None:
    def row(count: int | None) -> Any:
        return None if count is None else {"product": wrong[0], "quantity": count}

    found = checked(cluster, tmp_path, rows, all_read(cluster))
    (difference,) = found.differences
    assert difference == (f'["{wrong[0]}"]', row(wrong[1]), row(wrong[2]))
    summary = Summary(1.0, {ORDERS: 2}, (figures(found, 0, []),))
    assert not summary.equal
    said = lines_of(summary)
    assert said[-1] == "equal: no" and any(f'stock ["{wrong[0]}"]: the view has' in line for line in said)


@proves("demo")
def test_only_what_the_view_says_it_has_read_counts(cluster: Cluster, tmp_path: Path) -> None:
    read = {**all_read(cluster), **ends(orders=0)}
    assert checked(cluster, tmp_path, {"tea": 200, "cup": 200}, read).equal
    assert len(read_log(cluster, all_read(cluster), (ORDERS,))) == 2


@proves("demo")
def test_a_view_that_nothing_was_applied_to_is_not_compared(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(NotShown, match="stock is not shown"):
        check(cluster, "stock", f"sqlite:///{tmp_path / 'views.db'}")


@proves("demo")
def test_an_order_counts_in_the_minute_in_which_it_happened() -> None:
    def order(at: str, sent_ms: int) -> DemoRecord:
        return DemoRecord(ORDERS, {"product": "tea", "cents": 5, "at": at}, sent_ms)

    found = minutes([order("1970-01-01T00:01:59.999Z", 119_999), order("1970-01-01T00:01:00.000Z", 70_001)])
    assert found == [{"minute": "1970-01-01T00:01:00.000000Z", "cents": 10, "orders": 2, "late": 1}]


@proves("demo")
def test_every_view_of_the_shop_has_its_batch_query_over_the_topics_that_it_reads() -> None:
    from tidelog.demo.shop import app
    from tidelog.pipelines.graph import graph_of

    reads = {node.name: tuple(one.name for one in node.reads) for node in graph_of(app).nodes}
    assert reads == {view: query.topics for view, query in QUERIES.items()}
