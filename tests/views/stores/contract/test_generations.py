"""Generations of a view side by side in one store: made, grown, shown, forgotten."""

from __future__ import annotations

import pytest

from proving import proves
from tidelog.errors import NotShown, TidelogError, UsageError, ViewChanged
from tidelog.schema.declaration import declare
from tidelog.views.stores.store import Ask, Store
from views.stores.applied import REVENUE, Applied, assert_same_rows, pages, row
from views.stores.conftest import Open

OTHERWISE = declare({"city": "string", "product": "string", "orders": "decimal"}, ("city", "product"))


@proves("P3")
def test_a_store_that_nobody_wrote_to_has_nothing(store: Store) -> None:
    assert (store.place(1), store.shown(), dict(store.generations())) == (None, None, {})
    with pytest.raises(NotShown):
        store.read(Ask())
    with pytest.raises(NotShown):
        store.get(("tea",))


@proves("P3", "eo.19")
def test_what_is_prepared_or_aside_is_not_shown(store: Store) -> None:
    aside = Applied(store)
    place = store.place(1)
    assert place is not None
    assert (dict(place.ends), place.mark, store.shown()) == ({}, None, None)
    aside.put(row("tea"), show=False)
    assert store.shown() is None
    with pytest.raises(NotShown):
        store.read(Ask())


@proves("P3", "eo.24")
def test_a_generation_is_shown_in_the_transaction_that_says_so(store: Store) -> None:
    one = Applied(store)
    one.put(row("tea"), show=False)
    one.put(row("coffee"), show=True)
    assert store.shown() == 1
    one.is_equal()


@proves("P3", "eo.24")
def test_a_switch_without_a_change_shows_what_is_there(store: Store) -> None:
    one = Applied(store)
    one.put(row("tea"), show=False)
    one.apply({}, show=True)
    one.is_equal()


@proves("P3", "eo.14", "eo.24")
@pytest.mark.story
def test_a_new_generation_is_built_beside_the_shown_one_and_takes_its_place(store: Store) -> None:
    old = Applied(store, generation=1)
    old.put(row("tea"), row("coffee"))
    new = Applied(store, OTHERWISE, generation=2)
    new.put({"city": "Bonn", "product": "tea", "orders": None}, show=False)
    assert store.shown() == 1
    old.put(row("tea", 3.0))
    old.is_equal()
    assert dict(store.generations()) == {1: REVENUE, 2: OTHERWISE}
    new.put({"city": "Bonn", "product": "rum", "orders": None}, show=True)
    assert store.shown() == 2
    new.is_equal()


@proves("P3", "eo.24")
def test_the_old_generation_is_written_on_after_the_switch_and_seen_by_nobody(store: Store) -> None:
    old, new = Applied(store, generation=1), Applied(store, generation=2)
    old.put(row("tea"))
    new.put(row("rum"))
    old.put(row("beer"), show=False)
    assert store.shown() == 2
    new.is_equal()


@proves("P3", "eo.25")
def test_a_generation_that_is_forgotten_is_gone_and_may_come_again(store: Store) -> None:
    shown, aside = Applied(store, generation=1), Applied(store, generation=2)
    shown.put(row("tea"))
    aside.put(row("rum"), show=False)
    store.forget(2)
    assert (store.place(2), list(store.generations())) == (None, [1])
    shown.is_equal()
    again = Applied(store, generation=2)
    again.put(row("gin"))
    again.is_equal()


@proves("P3", "eo.25")
def test_the_shown_generation_cannot_be_forgotten_and_an_absent_one_is(store: Store) -> None:
    one = Applied(store)
    one.put(row("tea"))
    with pytest.raises(UsageError, match="shown"):
        store.forget(1)
    store.forget(7)
    one.is_equal()


@proves("P3", "eo.26")
@pytest.mark.parametrize("kind_of_column", ["boolean", "long", "double", "decimal", "string", "binary", "date", "json"])
def test_a_generation_grows_by_a_column_that_is_null_so_far(store: Store, kind_of_column: str) -> None:
    one = Applied(store)
    one.put(row("tea"), row("rum"))
    grown = declare({**dict(REVENUE.columns), "added": kind_of_column, 'say "hi"; --': "timestamp"}, ("product",))
    place = store.place(1)
    store.prepare(1, grown)
    assert (store.place(1), store.generations()[1]) == (place, grown)
    more = {"added": None, 'say "hi"; --': None}
    assert_same_rows(list(pages(store)), [row("rum") | more, row("tea") | more])
    one.declared, one.rows = grown, {key: before | more for key, before in one.rows.items()}
    one.put(row("gin") | more)
    one.is_equal()
    one.put(row("ale"))  # by somebody who does not know of the column yet
    one.rows[("ale",)] = row("ale") | more
    one.is_equal()


@proves("P3", "eo.26")
def test_a_generation_that_is_prepared_again_is_as_it_was(store: Store, url: str, opened: Open) -> None:
    one = Applied(store)
    one.put(row("tea"))
    store.prepare(1, REVENUE)
    one.is_equal()
    one.store = opened(url)
    one.store.prepare(1, REVENUE)
    one.is_equal()


@proves("P3", "eo.26")
def test_who_does_not_know_of_a_column_yet_takes_nothing_away(store: Store) -> None:
    grown = declare({**dict(REVENUE.columns), "added": "string"}, ("product",))
    one = Applied(store, grown)
    one.put(row("tea") | {"added": "later"})
    store.prepare(1, REVENUE)
    assert store.generations()[1] == grown
    one.is_equal()


@proves("P3", "eo.26")
@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ({"product": "string", "cents": "double", "orders": "long", "sold": "long"}, ("product",)),
        ({"product": "string", "revenue": "long", "orders": "long", "sold": "long"}, ("product",)),
        ({"product": "string", "orders": "long"}, ("product",)),
        (dict(REVENUE.columns), ("product", "orders")),
    ],
    ids=["another name", "another type", "one less in the middle", "another key"],
)
def test_a_generation_that_is_there_with_other_columns_is_refused_and_stays(
    store: Store, columns: dict[str, str], key: tuple[str, ...]
) -> None:
    one = Applied(store)
    one.put(row("tea"))
    with pytest.raises(ViewChanged, match="other columns: product string, revenue double, orders long by product"):
        store.prepare(1, declare(columns, key))
    assert store.generations()[1] == REVENUE
    one.put(row("rum"))
    one.is_equal()


@proves("P3")
def test_two_views_of_one_place_know_nothing_of_each_other(url: str, opened: Open) -> None:
    revenue, other = Applied(opened(url, "revenue")), Applied(opened(url, "revenue_v1"), OTHERWISE)
    revenue.put(row("tea"))
    other.put({"city": "Bonn", "product": "tea", "orders": None})
    revenue.delete(("tea",))
    revenue.is_equal()
    other.is_equal()


@proves("P3")
def test_a_view_may_have_the_longest_name(url: str, opened: Open) -> None:
    long, longer = (Applied(opened(url, "v" * 98 + end)) for end in ("-a", "-b"))
    long.put(row("tea"))
    longer.put(row("rum"))
    long.is_equal()
    longer.is_equal()


@proves("P3")
def test_nothing_is_applied_to_a_generation_that_is_absent(store: Store) -> None:
    one = Applied(store)
    one.generation = 4
    with pytest.raises(TidelogError):
        one.put(row("tea"))
    assert (store.place(4), store.shown()) == (None, None)
