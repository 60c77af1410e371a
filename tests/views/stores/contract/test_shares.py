"""Stores that several appliers share: each its partitions, all of them one place; and those that cannot be shared."""

from __future__ import annotations

from threading import Thread

import pytest

from contract import TIMEOUT_S
from proving import proves
from tidelog.client.metadata import TopicPartition
from tidelog.errors import AnotherApplier
from tidelog.schema.declaration import declare
from tidelog.views.changes import Stretch
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import COPY, Store
from views.stores.applied import AT, OTHER, REVENUE, Applied, assert_same_rows, mark, pages, put, row
from views.stores.conftest import Open
from views.stores.kinds import Kind

GROWN = declare({**dict(REVENUE.columns), "city": "string"}, REVENUE.key)
BATCHES = 25


@pytest.fixture
def shared(shared_url: str, opened: Open) -> Store:
    return opened(shared_url)


class Share(Thread):
    """Applies its partition, micro-batch after micro-batch, as often as it is refused."""

    def __init__(self, url: str, at: TopicPartition) -> None:
        super().__init__()
        self._url, self._at = url, at
        self.error: Exception | None = None

    def run(self) -> None:
        store = open_store(self._url, "revenue")
        try:
            for batch in range(1, BATCHES + 1):
                while not self._applied(store, batch):
                    pass
        except Exception as error:
            self.error = error
        finally:
            store.close()

    def _applied(self, store: Store, batch: int) -> bool:
        place = store.place(1)
        assert place is not None
        before = {self._at: place.ends[self._at]} if self._at in place.ends else {}
        told = [put(REVENUE, row(f"{self._at.partition}-{batch % 3}", float(batch)), batch - 1, self._at)]
        stretch = Stretch(told, {self._at: batch}, mark(batch, {AT: batch, OTHER: batch}))
        try:
            store.apply(1, stretch, before=before, show=batch == 1)
        except AnotherApplier:
            return False  # so a store says, too, that others have written all the time
        return True


@proves("eo.20", "eo.17", "P3")
def test_two_at_once_apply_their_partitions_and_the_mark_is_what_both_have(shared: Store, shared_url: str) -> None:
    store = shared
    store.prepare(1, REVENUE)
    both = [Share(shared_url, AT), Share(shared_url, OTHER)]
    for one in both:
        one.start()
    while any(one.is_alive() for one in both):
        place = store.place(1)
        assert place is not None
        assert place.mark is None or all(place.ends[at] >= end for at, end in place.mark.ends.items())
    for one in both:
        one.join(TIMEOUT_S)
    assert [one.error for one in both] == [None, None]
    place = store.place(1)
    assert place is not None
    assert (dict(place.ends), place.mark) == ({AT: BATCHES, OTHER: BATCHES}, mark(BATCHES, place.ends))
    last = {n % 3: float(n) for n in range(1, BATCHES + 1)}
    assert_same_rows(list(pages(store)), [row(f"{at}-{n}", last[n]) for at in (0, 1) for n in range(3)])


@proves("eo.20", "P3")
def test_a_mark_is_noted_by_who_reaches_it_last_and_never_goes_back(shared: Store) -> None:
    store = shared
    store.prepare(1, REVENUE)
    first, second = mark(1, {AT: 2, OTHER: 0}), mark(2, {AT: 2, OTHER: 3})

    def noted() -> int | None:
        place = store.place(1)
        assert place is not None
        return None if place.mark is None else place.mark.batch_id

    store.apply(1, Stretch([], {AT: 2}, first), before={}, show=True)
    assert noted() is None, "nobody has looked at the other partition"
    store.apply(1, Stretch([], {OTHER: 0}, first), before={})
    assert noted() == 1
    store.apply(1, Stretch([], {OTHER: 3}, second), before={OTHER: 0})
    assert noted() == 2, "the first one has nothing to do for it"
    store.apply(1, Stretch([], {AT: 2}, first), before={AT: 2})
    assert noted() == 2, "and is late with what was before"


@proves("eo.20", "eo.24", "P3")
def test_an_older_generation_is_not_shown_again(store: Store) -> None:
    old, new = Applied(store, generation=1), Applied(store, generation=2)
    old.put(row("tea"))
    new.put(row("rum"))
    copy = Applied(store, generation=1 + COPY)
    for late in (old, copy):
        late.apply({}, show=True)
        assert store.shown() == 2
    new.is_equal()


@proves("eo.20", "P3")
def test_one_who_knows_fewer_columns_takes_none_away(shared: Store, shared_url: str, opened: Open) -> None:
    grown = Applied(shared, GROWN)
    grown.put({**row("tea"), "city": "Bonn"})
    opened(shared_url).prepare(1, REVENUE)
    assert dict(shared.generations()) == {1: GROWN}
    shared.prepare(1, GROWN)
    grown.is_equal()


@proves("eo.20")
def test_a_store_says_why_it_is_not_shared(kind: Kind, store: Store) -> None:
    assert (store.alone == "") is kind.shared
