"""Views as tables, out of their stores."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from proving import proves
from sql.asking import Ask, write
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control.catalog import Editor, View
from tidelog.errors import NotShown, UsageError
from tidelog.schema.column_types import TYPES
from tidelog.schema.declaration import Declaration, declare
from tidelog.sql import view as sql_view
from tidelog.sql.view import view_table
from tidelog.views.changes import Change, Stretch
from tidelog.views.lifecycle import begin, new_view, switch
from tidelog.views.stores.opening import open_store

EVERY = declare({"id": "long", **{f"a_{kind}": kind for kind in TYPES}}, ("id",))
SOLD = {"product": "tea", "revenue": 7}
ROW = {
    "a_boolean": True,
    "a_long": -(2**63),
    "a_double": 1.5,
    "a_decimal": Decimal("-12.50"),
    "a_string": "é",
    "a_binary": b"\xff\x00",
    "a_date": date(1969, 12, 31),
    "a_timestamp": datetime(2026, 1, 31, 23, 59, 59, 5, tzinfo=UTC),
    "a_json": {"x": [1]},
}


@pytest.fixture
def ask(tidelog_broker: Any) -> Ask:
    return Ask(tidelog_broker.bootstrap)


@pytest.fixture
def cluster(ask: Ask) -> Any:
    with Cluster(ask.bootstrap) as connected:
        yield connected


def made(
    cluster: Cluster, folder: Path, declared: Declaration, rows: list[dict[str, Any]], name: str = "revenue"
) -> View:
    url = f"sqlite:///{folder}/views.db"
    view = begin(new_view(name, app="shop", inputs=["orders"], stores=[url]), declared, "plan", 1)
    Editor(cluster, name).write(view)
    topics.create(cluster, f"{name}.v1")
    at = TopicPartition(f"{name}.v1", 0)
    store = open_store(url, name)
    store.prepare(1, declared)
    changes = [Change(declared.key_of(row), row, None, at, offset, 0) for offset, row in enumerate(rows)]
    store.apply(1, Stretch(changes, {at: len(rows)}, None), before={}, show=True)
    store.close()
    return view


@proves("sql", "P3")
def test_every_type_of_a_view_is_a_column(ask: Ask, cluster: Cluster, tmp_path: Path) -> None:
    made(cluster, tmp_path, EVERY, [{"id": 1, **ROW}, {"id": 2, **dict.fromkeys(ROW)}])
    first, second = ask("select * from revenue order by id")
    expected = {**ROW, "a_timestamp": ROW["a_timestamp"].replace(tzinfo=None), "a_json": '{"x":[1]}'}  # type: ignore[attr-defined]
    assert first == (1, *expected.values())
    assert second == (2, *[None] * len(ROW))


@proves("sql", "P3")
def test_a_view_of_many_pages_joins_a_topic(ask: Ask, cluster: Cluster, tmp_path: Path) -> None:
    declared = declare({"product": "string", "revenue": "double"}, ("product",))
    made(cluster, tmp_path, declared, [{"product": f"p{n:05}", "revenue": n / 2} for n in range(25_000)])
    topics.create(cluster, "orders")
    write(cluster, "orders", [{"product": "p00002"}, {"product": "p24999"}])
    assert ask.one("select count(*), count(distinct product), sum(revenue) from revenue") == (
        *(25_000, 25_000),
        sum(range(25_000)) / 2,
    )
    assert ask("select revenue from orders join revenue using (product) order by 1") == [(1.0,), (12499.5,)]


@proves("sql", "P3")
def test_a_view_and_a_topic_of_one_name_are_told_apart(ask: Ask, cluster: Cluster, tmp_path: Path) -> None:
    declared = declare({"product": "string"}, ("product",))
    made(cluster, tmp_path, declared, [{"product": "of the view"}])
    topics.create(cluster, "revenue")
    write(cluster, "revenue", [{"product": "of the topic"}])
    assert ask("select product from views.revenue") == [("of the view",)]
    assert ask("select product from topics.revenue") == [("of the topic",)]
    with pytest.raises(UsageError, match=r'could be topics."revenue" or views."revenue"'):
        ask("select product from revenue")


@proves("sql", "P3", "eo.24")
def test_a_store_that_does_not_show_what_is_live_yet_is_read_by_the_columns_that_it_shows(
    ask: Ask, cluster: Cluster, tmp_path: Path
) -> None:
    view = made(cluster, tmp_path, declare({"product": "string", "revenue": "long"}, ("product",)), [SOLD])
    new = declare({"city": "string", "cents": "double"}, ("city",))
    Editor(cluster, "revenue").write(switch(begin(view, new, "other", 1), 2, {}))
    topics.create(cluster, "revenue.v2")
    assert ask("select * from revenue") == [("tea", 7)]
    assert ask("select sum(revenue) from revenue") == [(7,)]


@proves("sql", "P3", "eo.24")
def test_a_view_that_is_switched_between_two_pages_is_not_read_half_and_half(
    ask: Ask, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = declare({"product": "string", "revenue": "long"}, ("product",))
    view = made(cluster, tmp_path, declared, [SOLD, {"product": "rum", "revenue": 1}])
    monkeypatch.setattr(sql_view, "PAGE_ROWS_MAX", 1)
    batches = view_table(view, None).scan()
    next(batches)
    store = open_store(view.stores[0], "revenue")
    store.prepare(2, declare({"city": "string", "cents": "double"}, ("city",)))
    store.apply(2, Stretch([], {TopicPartition("revenue.v2", 0): 1}, None), before={}, show=True)
    store.close()
    with pytest.raises(UsageError, match="switched to another generation while it was read; ask again"):
        next(batches)


@proves("sql", "P3")
def test_a_view_without_a_store_here_says_so(ask: Ask, cluster: Cluster, tmp_path: Path) -> None:
    declared = declare({"product": "string"}, ("product",))
    view = new_view("revenue", app="shop", inputs=[], stores=[f"sqlite:///{tmp_path}/none.db"])
    Editor(cluster, "revenue").write(begin(view, declared, "plan", 1))
    topics.create(cluster, "revenue.v1")
    with pytest.raises(NotShown, match=r"no store that can be read here .* try again in 2 s"):
        ask("select * from revenue")


@proves("sql", "P3")
def test_json_with_half_a_character_is_text_all_the_same(ask: Ask, cluster: Cluster, tmp_path: Path) -> None:
    made(cluster, tmp_path, declare({"id": "long", "said": "json"}, ("id",)), [{"id": 1, "said": ["\ud800", "é"]}])
    assert ask("select said from revenue") == [('["\\ud800","\\u00e9"]',)]


@proves("sql", "P3", "F3")
def test_a_store_that_is_not_reached_leaves_the_question_to_the_next_one(
    ask: Ask, cluster: Cluster, tmp_path: Path
) -> None:
    view = made(cluster, tmp_path, declare({"product": "string"}, ("product",)), [{"product": "tea"}])
    Editor(cluster, "revenue").write(replace(view, stores=("redis://127.0.0.1:1/0", *view.stores)))
    assert ask("select product from revenue") == [("tea",)]
    Editor(cluster, "revenue").write(replace(view, stores=("redis://127.0.0.1:1/0",)))
    with pytest.raises(Exception, match=r"no store that can be read here \(redis://127.0.0.1:1/0: redis://"):
        ask("select product from revenue")
