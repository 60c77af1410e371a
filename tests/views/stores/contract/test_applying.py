"""Stretches are applied whole, once, and by one applier."""

from __future__ import annotations

import pytest

from proving import proves
from tidelog.errors import AnotherApplier
from tidelog.views.changes import Stretch
from tidelog.views.stores.store import Store
from views.stores.applied import AT, OTHER, REVENUE, Applied, assert_same_rows, gone, mark, pages, put, row, stretch
from views.stores.conftest import Open


@proves("P3", "eo.16")
@pytest.mark.story
def test_a_stretch_changes_rows_and_notes_its_ends_and_its_mark(store: Store) -> None:
    one = Applied(store)
    one.put(row("tea"), row("rum", 2.0))
    one.apply({("tea",): row("tea", 9.0, None), ("gin",): row("gin", None)})
    one.is_equal()


@proves("P3", "eo.16")
def test_the_last_change_of_a_key_counts(store: Store) -> None:
    store.prepare(1, REVENUE)
    changes = [
        put(REVENUE, row("tea", 1.0), 0),
        gone(("tea",), 1),
        put(REVENUE, row("rum", 1.0), 2),
        put(REVENUE, row("tea", 2.0), 3),
        gone(("rum",), 4),
    ]
    store.apply(1, stretch(changes, 5), before={}, show=True)
    assert_same_rows(list(pages(store)), [row("tea", 2.0)])


@proves("P3", "eo.16")
def test_rows_are_deleted_and_come_again(store: Store) -> None:
    one = Applied(store)
    one.put(row("tea"), row("rum"))
    one.delete(("tea",), ("never there",))
    one.is_equal()
    one.delete(("rum",))
    one.is_equal()
    one.put(row("tea", 4.0))
    one.is_equal()


@proves("P3", "eo.16")
def test_a_stretch_without_changes_moves_the_place(store: Store) -> None:
    one = Applied(store)
    one.apply({})
    one.put(row("tea"))
    one.apply({})
    one.is_equal()


@proves("P3", "eo.18")
def test_a_topic_without_marks_is_applied_by_its_offsets(store: Store) -> None:
    store.prepare(1, REVENUE)
    store.apply(1, Stretch([put(REVENUE, row("tea"))], {AT: 1}, None), before={}, show=True)
    place = store.place(1)
    assert place is not None
    assert (dict(place.ends), place.mark) == ({AT: 1}, None)


@proves("P3", "eo.17", "F2")
@pytest.mark.story
def test_an_applier_that_was_overtaken_changes_nothing(store: Store, url: str, opened: Open) -> None:
    one = Applied(store)
    one.put(row("tea"))
    stale = one.end
    successor = opened(url)
    one.store = successor
    one.put(row("rum"))
    assert stale is not None
    late = stretch([put(REVENUE, row("tea", 99.0)), gone(("rum",))], stale + 5)
    for before in ({AT: stale}, {}, {AT: stale + 1000}):
        with pytest.raises(AnotherApplier):
            store.apply(1, late, before=before, show=True)
        one.is_equal()


@proves("P3", "eo.17")
def test_the_same_stretch_is_not_applied_twice_by_one_that_does_not_look(store: Store) -> None:
    store.prepare(1, REVENUE)
    first = stretch([put(REVENUE, row("tea"))], 3)
    store.apply(1, first, before={}, show=True)
    with pytest.raises(AnotherApplier):
        store.apply(1, first, before={}, show=True)
    place = store.place(1)
    assert place is not None
    assert dict(place.ends) == {AT: 3}


@proves("P3", "eo.17", "eo.24")
def test_an_overtaken_applier_does_not_switch_either(store: Store) -> None:
    old, new = Applied(store, generation=1), Applied(store, generation=2)
    old.put(row("tea"))
    new.put(row("rum"), show=False)
    with pytest.raises(AnotherApplier):
        store.apply(2, stretch([], 50), before={AT: 49}, show=True)
    assert store.shown() == 1
    old.is_equal()


@proves("P3", "F2")
def test_a_stretch_that_was_applied_may_be_applied_again_from_its_ends(store: Store) -> None:
    """What a restarted applier does that has read more than it needed: the same rows are the same rows."""
    one = Applied(store)
    changes = {("tea",): row("tea", 1.0), ("rum",): row("rum", 2.0), ("gin",): None}
    one.apply(changes)
    one.apply(changes)
    one.is_equal()


@proves("P3", "eo.16", "eo.20")
def test_partitions_are_compared_one_by_one_so_that_appliers_may_share_them(
    store: Store, url: str, opened: Open
) -> None:
    store.prepare(1, REVENUE)
    beside = opened(url)
    store.apply(1, stretch([put(REVENUE, row("tea"))], 2, AT), before={}, show=True)
    beside.apply(1, stretch([put(REVENUE, row("rum"), at=OTHER)], 7, OTHER), before={}, show=True)
    store.apply(1, stretch([put(REVENUE, row("tea", 5.0))], 4, AT), before={AT: 2})
    with pytest.raises(AnotherApplier):
        beside.apply(1, stretch([], 9, OTHER), before={OTHER: 6})
    place = store.place(1)
    assert place is not None
    assert dict(place.ends) == {AT: 4, OTHER: 7}
    assert_same_rows(list(pages(store)), [row("rum"), row("tea", 5.0)])


@proves("P3", "eo.16")
def test_all_partitions_of_a_topic_move_together(store: Store) -> None:
    store.prepare(1, REVENUE)
    ends = {AT: 3, OTHER: 0}
    both = Stretch([put(REVENUE, row("tea"))], ends, mark(1, ends))
    store.apply(1, both, before={}, show=True)
    place = store.place(1)
    assert place is not None
    assert (dict(place.ends), place.mark) == (ends, mark(1, ends))
    more = {AT: 3, OTHER: 2}
    store.apply(1, Stretch([put(REVENUE, row("rum"), at=OTHER)], more, mark(2, more)), before=ends)
    assert_same_rows(list(pages(store)), [row("rum"), row("tea")])


@proves("P3", "eo.16")
def test_what_one_applied_another_reads(store: Store, url: str, opened: Open) -> None:
    one = Applied(store)
    one.put(*(row(f"product {number:04}", number / 4, number) for number in range(3000)))
    one.store = opened(url)
    one.is_equal()
    one.delete(*((f"product {number:04}",) for number in range(0, 3000, 2)))
    one.store = store
    one.is_equal()
