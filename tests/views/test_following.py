"""Which generations are followed, shown and forgotten: decisions over the catalog's record and what a store has."""

from __future__ import annotations

from proving import proves
from tidelog.client.metadata import TopicPartition
from tidelog.control.catalog import Generation, View
from tidelog.views import lifecycle
from tidelog.views.following import copy_of, is_due, next_copy, to_follow, to_forget
from tidelog.views.stores.store import COPY, generation_of
from views.writing import REVENUE

AT = TopicPartition("revenue.v2", 0)


def view(*, switched: bool = False) -> View:
    """Generation 1 is live, and 2 is being built, or live as well."""
    first = lifecycle.begin(lifecycle.new_view("revenue", app="shop", inputs=[], stores=[]), REVENUE, "f", 1)
    both = lifecycle.begin(first, REVENUE, "f", 1)
    return lifecycle.switch(both, 2, {AT: 5}) if switched else both


def numbers(found: list[Generation]) -> list[int]:
    return [one.number for one in found]


@proves("eo.24", "eo.19")
def test_what_is_shown_is_followed_until_the_live_one_is_shown() -> None:
    assert numbers(to_follow(view(), None)) == [1, 2]
    assert numbers(to_follow(view(), 1)) == [1, 2]
    assert numbers(to_follow(view(switched=True), 1)) == [1, 2]
    assert numbers(to_follow(view(switched=True), 2)) == [2]
    assert numbers(to_follow(view(switched=True), None)) == [2]
    assert numbers(to_follow(view(switched=True), COPY + 1)) == [1, 2]
    assert numbers(to_follow(lifecycle.forget(view(switched=True), 1), 1)) == [2], "what it shows is in no topic"


@proves("eo.24", "eo.19")
def test_a_generation_is_due_at_live_and_at_what_was_newest_when_its_applier_began() -> None:
    building, live = view().generations[1], view(switched=True).generations[1]
    assert not is_due(building, {AT: 99}, {})
    assert [is_due(live, {AT: end}, {AT: 3}) for end in (3, 4, 5, 6)] == [False, False, True, True]
    assert [is_due(live, {AT: end}, {AT: 8}) for end in (5, 7, 8)] == [False, False, True]
    assert is_due(view().generations[0], {}, {}), "a first generation is live where it begins"


@proves("eo.19", "eo.25")
def test_what_the_catalog_forgot_goes_and_what_is_shown_stays() -> None:
    switched = view(switched=True)
    assert to_forget(switched, [1, 2], shown=2) == [], "an old generation stays until it is forgotten"
    assert to_forget(lifecycle.forget(switched, 1), [1, 2], shown=2) == [1]
    assert to_forget(lifecycle.forget(switched, 1), [1, 2], shown=1) == [], "until the live one takes its place"
    assert to_forget(switched, [2, COPY + 2], shown=2) == [], "it is built anew beside itself"
    assert to_forget(switched, [2, COPY + 2], shown=COPY + 2) == [2]


@proves("eo.19")
def test_a_generation_that_is_built_anew_has_the_next_number_of_its_own() -> None:
    assert copy_of(2, []) == 2 and copy_of(2, [1, 2]) == 2 and copy_of(2, [2, COPY + 2, COPY + 1]) == COPY + 2
    assert next_copy(2, [1, 2]) == COPY + 2 and next_copy(2, [COPY + 2]) == 2 * COPY + 2
    assert generation_of(2 * COPY + 2) == 2 == generation_of(2)
