"""What OpenSearch stores have of their own: search, versions instead of transactions, and a node that is killed."""

from __future__ import annotations

from typing import Any

import pytest
from opensearchpy import OpenSearch
from opensearchpy.exceptions import RequestError

from proving import proves
from tidelog.errors import AnotherApplier, Disconnected, StorageError, UsageError
from tidelog.schema.declaration import declare
from tidelog.schema.expression.parser import parse
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.opensearch import Found, OpenSearchStore
from tidelog.views.stores.opensearch_rows import field_of
from tidelog.views.stores.store import Ask, Place
from views.stores.applied import REVENUE, Applied, gone, put, row, stretch
from views.stores.contract.test_crash import applier, end_of, is_whole, told_by
from views.stores.endless_applier import AT as NUMBERS_AT
from views.stores.endless_applier import stretch_of
from views.stores.opensearch_node import OpenSearchNode, OpenSearchPlace

pytestmark = pytest.mark.external
TEXTS = declare({"id": "long", "title": "string", "body": "string"}, ("id",))


def opened(url: str, view: str = "revenue") -> OpenSearchStore:
    store = open_store(url, view)
    assert isinstance(store, OpenSearchStore)
    return store


def other_program(node: OpenSearchPlace) -> OpenSearch:
    return OpenSearch(hosts=[{"host": "127.0.0.1", "port": node.port}], timeout=60)


@proves("P3")
@pytest.mark.story
def test_match_is_a_search_for_words_that_follows_changes(opensearch_url: str) -> None:
    one = Applied(opened(opensearch_url, "texts"), TEXTS)
    one.put(
        {"id": 1, "title": "Green tea", "body": "Steamed, never roasted"},
        {"id": 2, "title": "Black tea", "body": "Withered and ROASTED"},
        {"id": 3, "title": "Rum", "body": 'a "quoted" (thing) AND OR *'},
    )
    ids = lambda **ask: [found["id"] for found in one.store.read(Ask(**ask)).rows]  # noqa: E731
    assert ids(match="tea") == [1, 2]
    assert ids(match="roasted tea") == [1, 2]
    assert ids(match="green steamed") == [1]
    assert ids(match="tea", where=parse("id > 1")) == [2]
    assert ids(match="tea", after=(1,)) == [2]
    assert ids(match='"(*') == []
    one.put({"id": 2, "title": "Coffee", "body": None})
    one.delete((1,))
    assert ids(match="tea") == []
    with pytest.raises(UsageError, match="no column of text"):
        Applied(opened(opensearch_url, "bare"), declare({"id": "long"}, ("id",))).put({"id": 1})
        opened(opensearch_url, "bare").read(Ask(match="tea"))


@proves("P3", "eo.17", "eo.21")
def test_what_an_overtaken_applier_still_sends_replaces_nothing_newer(opensearch_url: str) -> None:
    """Stopped behind the comparison, woken in the middle of its bulk: versions are what is left to stop it."""
    late = opened(opensearch_url)
    one = Applied(opened(opensearch_url))
    one.put(row("tea"), row("rum"), row("gin"))
    stale = stretch([put(REVENUE, row("tea", -1.0), 0), gone(("rum",), 1), put(REVENUE, row("gin", -1.0), 2)], 3)
    one.put(row("tea", 2.0), row("rum", 2.0))
    one.delete(("gin",))
    late._write_rows(1, REVENUE, stale)
    late._client.indices.refresh(index="*")
    one.is_equal()
    one.apply({})
    one.is_equal()


@proves("P3", "eo.24")
def test_the_alias_is_moved_only_from_the_generation_that_had_it(opensearch_url: str) -> None:
    store = opened(opensearch_url)
    for generation in (1, 2, 3):
        Applied(store, generation=generation).put(row("tea"))
    with pytest.raises(AnotherApplier):
        store._point([1], 2)
    assert store.shown() == 3


def overtake(monkeypatch: pytest.MonkeyPatch, slow: Any, new: Applied) -> None:
    """When it is about to show what it has applied, the later generation is shown before it."""
    point = slow._point

    def late(*told: Any) -> None:
        new.put(row("rum"))
        point(*told)

    monkeypatch.setattr(slow, "_point", late)


@proves("P3", "eo.17", "eo.24")
def test_who_is_stopped_before_it_shows_the_first_generation_leaves_the_alias_with_a_later_one(
    opensearch_url: str, opensearch_node: OpenSearchPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = opened(opensearch_url)
    old, new = Applied(stopped, generation=1), Applied(opened(opensearch_url), generation=2)
    overtake(monkeypatch, stopped, new)
    old.put(row("tea"))
    assert stopped.shown() == 2
    new.is_equal()
    alias = f"{opensearch_url.partition('prefix=')[2]}.revenue"
    assert list(other_program(opensearch_node).indices.get_alias(name=alias)) == [f"{alias}.v2"]


@proves("P3", "eo.24", "F2")
def test_an_alias_on_two_generations_is_left_to_the_later_one_by_who_opens_next(
    opensearch_url: str, opensearch_node: OpenSearchPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was stopped before it showed the first generation, woke up, and was killed before it looked again."""
    killed = opened(opensearch_url)
    old, new = Applied(killed, generation=1), Applied(opened(opensearch_url), generation=2)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    overtake(monkeypatch, killed, new)
    monkeypatch.setattr(killed, "_leave_latest", die)
    with pytest.raises(KeyboardInterrupt):
        old.put(row("tea"))
    alias = f"{opensearch_url.partition('prefix=')[2]}.revenue"
    assert len(other_program(opensearch_node).indices.get_alias(name=alias)) == 2
    opened(opensearch_url).prepare(2, REVENUE)
    assert list(other_program(opensearch_node).indices.get_alias(name=alias)) == [f"{alias}.v2"]
    new.is_equal()


@proves("P3", "hostile")
def test_indexes_of_somebody_else_that_are_called_alike_or_have_the_alias_are_not_ours(
    opensearch_url: str, opensearch_node: OpenSearchPlace
) -> None:
    one = Applied(opened(opensearch_url))
    one.put(row("tea"))
    alias, other = f"{opensearch_url.partition('prefix=')[2]}.revenue", other_program(opensearch_node)
    for name in (f"{alias}.vold", f"{alias}-copy"):
        other.indices.create(index=name, body={"aliases": {alias: {}}})
    assert (one.store.shown(), list(one.store.generations())) == (1, [1])
    one.put(row("rum"))
    one.is_equal()


@proves("P3")
def test_other_programs_search_the_alias_and_find_no_row_that_is_gone(
    opensearch_url: str, opensearch_node: OpenSearchPlace
) -> None:
    one = Applied(opened(opensearch_url))
    one.put(row("green tea", 4.0, 2), row("black tea", 9.0, 3), row("rum"))
    one.delete(("rum",))
    alias = f"{opensearch_url.partition('prefix=')[2]}.revenue"
    found = other_program(opensearch_node).search(
        index=alias, body={"query": {"match": {"product": "tea"}}, "aggs": {"all": {"sum": {"field": "revenue"}}}}
    )
    assert (found["hits"]["total"]["value"], found["aggregations"]["all"]["value"]) == (2, 13.0)
    assert other_program(opensearch_node).count(index=alias)["count"] == 2


@proves("P3", "F2", "eo.21")
def test_a_killed_node_leads_to_the_same_rows_once_the_stretch_is_applied_again(
    own_opensearch_node: OpenSearchNode,
) -> None:
    store = opened(own_opensearch_node.url, "numbers")
    with applier(own_opensearch_node.url) as child:
        told = told_by(child, 3)
        own_opensearch_node.kill()
        child.wait()
        assert child.stderr is not None and "Disconnected" in child.stderr.read()
    with pytest.raises(Disconnected):
        store.place(1)
    own_opensearch_node.start()
    end = end_of(store)
    assert end >= told
    store.apply(1, stretch_of(end + 1), before={NUMBERS_AT: end}, show=True)
    assert is_whole(store) == end + 1


@proves("P3")
def test_fields_of_columns_are_never_one_and_never_opensearchs_own() -> None:
    names = ["a.b", "a%2Eb", "a b", "_id", "%5Fid", "*", "id", "a_b", "日本語", "\U0001f375"]
    assert len({field_of(name) for name in names}) == len(names)
    assert [field_of(name) for name in ("a_b", "日本語", "_id", "a.b")] == ["a_b", "日本語", "%5Fid", "a%2Eb"]


@proves("P3", "D7")
def test_a_question_that_is_refused_is_no_fault_of_the_store_and_what_is_written_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refusing:
        def search(self, **_: Any) -> Any:
            raise RequestError(400, refusal, {})

        get_alias = search

    store = opened("opensearch+http://127.0.0.1:1/")
    monkeypatch.setattr(store, "_shown", lambda: Found(REVENUE, Place(1, {}, None), {}))
    store._opened = refusing = Refusing()
    refusing.indices = refusing  # type: ignore[attr-defined]
    refusal = "search_phase_execution_exception"
    with pytest.raises(UsageError, match=r"refuses: .*search_phase_execution_exception"):
        store.read(Ask())
    with pytest.raises(StorageError):
        store.prepare(1, REVENUE)
    refusal = "index_closed_exception"
    with pytest.raises(StorageError, match="index_closed_exception"):
        store.read(Ask())
