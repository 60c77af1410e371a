"""The catalog: one record is a view, one editor writes it, and a switch is one append."""

from __future__ import annotations

import json
from threading import Timer

import pytest

from contract import TIMEOUT_S
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.transactions import Transactions
from tidelog.control import catalog
from tidelog.control.catalog import CATALOG, Editor, View, read_catalog
from tidelog.control.derived import Derived
from tidelog.errors import ProducerFenced, UsageError, ViewChanged
from tidelog.schema.declaration import declare
from tidelog.testing.broker import TestBroker
from tidelog.views import lifecycle
from views.writing import REVENUE

GROWN = declare({"product": "string", "revenue": "long", "note": "string"}, ("product",))
AT = TopicPartition("revenue.v2", 0)


def first() -> View:
    made = lifecycle.new_view("revenue", app="shop", inputs=["orders"], stores=["sqlite:///shop.db"])
    return lifecycle.begin(made, REVENUE, "f1", 2)


@proves("eo.14")
def test_generations_are_begun_switched_to_and_forgotten() -> None:
    view = first()
    assert (view.live, view.building, view.generations[0].live) == (1, None, {})
    both = lifecycle.begin(view, GROWN, "f2", 1)
    assert (both.live, both.building, both.generations[1].topic) == (1, both.generations[1], "revenue.v2")
    with pytest.raises(UsageError, match=r"generation 2 of view revenue is being built.*forget revenue --generation 2"):
        lifecycle.begin(both, GROWN, "f3", 1)
    switched = lifecycle.switch(both, 2, {AT: 5})
    assert (switched.live, switched.building, switched.current) == (2, None, switched.generations[1])
    with pytest.raises(UsageError, match="not being built"):
        lifecycle.switch(switched, 2, {AT: 6})
    with pytest.raises(UsageError, match="is live; it cannot be forgotten"):
        lifecycle.forget(switched, 2)
    alone = lifecycle.forget(switched, 1)
    assert [one.number for one in alone.generations] == [2]
    assert lifecycle.begin(alone, REVENUE, "f", 1).generations[-1].number == 3, "no number comes twice"


@proves("eo.26")
def test_a_view_goes_on_if_it_only_grew_and_else_the_error_names_the_rebuild() -> None:
    view = first()
    assert lifecycle.go_on(view, REVENUE, "f1") is view
    grown = lifecycle.go_on(view, GROWN, "f2")
    assert (grown.generations[0].declared, grown.generations[0].number) == (GROWN, 1)
    other = declare({"product": "string", "revenue": "double"}, ("product",))
    for declared, fingerprint, why in (
        (REVENUE, "f2", "what computes it has changed"),
        (other, "f1", "its columns were product string, revenue long and are product string, revenue double"),
        (declare({"product": "string", "revenue": "long"}, ("revenue",)), "f1", "its key was product and is revenue"),
    ):
        with pytest.raises(ViewChanged, match=rf"{why}.*`tidelog rebuild revenue --app FILE`"):
            lifecycle.go_on(view, declared, fingerprint)


@proves("eo.14", "hostile")
@pytest.mark.parametrize("url", ["redis://:hunter2@db/0", "redis://db/0?password=hunter2", "redis://:${A}hunter2@db/0"])
def test_a_password_in_clear_gets_into_no_catalog(url: str) -> None:
    for make in (
        lambda: lifecycle.new_view("v", app="shop", inputs=(), stores=["sqlite:///v.db", url]),
        lambda: lifecycle.of_topic("v", "t", GROWN, 1, [url]),
    ):
        with pytest.raises(UsageError, match=r"has a password in clear.*write \${NAME}") as told:
            make()
        assert "hunter2" not in str(told.value)
    fine = ["redis://:${PASSWORD}@db/0", "redis://:@db/0", "postgresql://me@db/shop?sslmode=require"]
    assert lifecycle.new_view("v", app="shop", inputs=(), stores=fine).stores == tuple(fine)


@proves("eo.14")
def test_entries_come_back_from_their_bytes_and_newer_ones_are_refused_by_name() -> None:
    view = lifecycle.switch(lifecycle.begin(first(), GROWN, "f2", 1), 2, {AT: 5})
    for entry in (view, Derived("big", "shop", "big-orders", "shop.big", ("orders",), 7)):
        key, value = catalog.encode(entry)
        assert catalog.decode(key, value) == entry
    key, value = catalog.encode(view)
    with pytest.raises(UsageError, match="view revenue is written in format 2, and this Tidelog knows 1"):
        catalog.decode(json.dumps({**json.loads(key), "v": 2}).encode(), value)
    assert catalog.decode(json.dumps({**json.loads(key), "kind": "dream"}).encode(), value) is None
    found: catalog.Catalog = {}
    catalog.note(found, key, value)
    catalog.note(found, key, None)
    assert found == {}


@proves("eo.14", "hostile")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b"x"),
        (b"hello", b"x"),
        (b"hello", None),
        (b"\xff", None),
        (b"[]", b"[]"),
        (b'{"kind":[],"name":"x"}', None),
        (b'{"v":"1","kind":"view","name":"x"}', b"{}"),
        (b'{"v":1,"kind":"view","name":"revenue"}', b"{}"),
        (b'{"v":1,"kind":"topic","name":"x"}', b"[" * 50_000),
        (
            b'{"v":1,"kind":"view","name":"x"}',
            b'{"app":"","inputs":[],"at_ms":0,"stores":[],"generations":[],"live":3}',
        ),
    ],
)
def test_what_is_no_entry_is_passed_over_with_a_warning(key: bytes, value: bytes | None) -> None:
    found: catalog.Catalog = {}
    catalog.note(found, *catalog.encode(first()))
    with pytest.warns(UserWarning, match="not an entry of the catalog.*passed over"):
        catalog.note(found, key, value)
    assert found == {("view", "revenue"): first()}


@proves("eo.14", "hostile")
def test_a_declaration_that_nobody_could_have_made_is_passed_over() -> None:
    found: catalog.Catalog = {}
    key, value = catalog.encode(first())
    with pytest.warns(UserWarning, match="not an entry of the catalog"):
        catalog.note(found, key, value.replace(b'"long"', b'"dream"'))
    assert found == {}


@proves("eo.14", "F3")
def test_of_two_editors_of_a_view_the_later_one_writes(tidelog_broker: TestBroker, cluster: Cluster) -> None:
    old = Editor(cluster, "revenue")
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as mine:
        new = Editor(mine, "revenue")
        assert new.view() is None
        new.write(first())
    with pytest.raises(ProducerFenced):
        old.write(lifecycle.begin(first(), GROWN, "f2", 1))
    found = Editor(cluster, "revenue").view()
    assert found is not None and [one.number for one in found.generations] == [1]


@proves("eo.14")
def test_what_lies_behind_somebodys_open_transaction_is_not_missed(
    tidelog_broker: TestBroker, cluster: Cluster
) -> None:
    """Of an editor of another view, who takes its time: it would hide what this view's last editor wrote."""
    Editor(cluster, "other").write(Derived("other", "shop", "t", "s", ()))
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as mine:
        slow = Transactions(mine, "tidelog.view.slow")
        slow.start()
        slow.begin()
        slow.producer.send(CATALOG.topic, b"{}", key=b'{"v":1,"kind":"view","name":"slow"}', partition=0)
        slow.producer.flush()
        Editor(cluster, "revenue").write(first())
        with pytest.warns(UserWarning, match="a transaction is open there"):
            assert ("view", "revenue") not in read_catalog(cluster, patience_s=0.1)
        ending = Timer(0.3, slow.abort)
        ending.start()
        found = Editor(cluster, "revenue").view()
        ending.join()
    assert found is not None and found.live == 1
    assert set(read_catalog(cluster)) == {("view", "revenue"), ("topic", "other")}


@proves("eo.14")
def test_a_view_that_was_taken_out_is_no_view_and_only_its_last_number_counts(cluster: Cluster) -> None:
    editor = Editor(cluster, "revenue")
    editor.write(lifecycle.begin(first(), REVENUE, "f2", 1))
    editor.write(lifecycle.take_out(first()))
    editor.write(Derived("revenue", "shop", "t", "s", ()))
    assert ("view", "revenue") not in read_catalog(cluster) and ("topic", "revenue") in read_catalog(cluster)
    with pytest.raises(UsageError, match="no view 'revenue'; there are: none"):
        catalog.find_view(cluster, "revenue")
    left = editor.view()
    assert left is not None and (left.newest, left.generations, left.app) == (1, (), "")
    editor.write(lifecycle.begin(left, REVENUE, "f1", 1))
    again = catalog.find_view(cluster, "revenue")
    assert [one.topic for one in again.generations] == ["revenue.v2"] and again.live == 2
    assert len(read_catalog(cluster)) == 2, "nothing is left of the record that it was"


@proves("eo.14")
def test_a_null_takes_away_also_what_is_left_of_a_view_and_no_topic_of_its_name() -> None:
    found: catalog.Catalog = {}
    key, value = catalog.encode(lifecycle.take_out(first()))
    catalog.note(found, *catalog.encode(Derived("revenue", "shop", "t", "s", ())))
    catalog.note(found, key, value)
    assert len(found) == 2
    catalog.note(found, key, None)
    assert set(found) == {("topic", "revenue")}


@proves("eo.14")
def test_a_number_is_never_given_twice_also_not_after_it_was_forgotten() -> None:
    given_up = lifecycle.forget(lifecycle.begin(first(), REVENUE, "f2", 1), 2)
    key, value = catalog.encode(given_up)
    assert catalog.decode(key, value) == given_up
    assert [one.number for one in lifecycle.begin(given_up, REVENUE, "f2", 1).generations] == [1, 3]
    before = {name: one for name, one in json.loads(value).items() if name != "newest"}
    older = catalog.decode(key, json.dumps(before).encode())
    assert isinstance(older, View) and older.newest == 1, "a record that has no such field has its highest number"
