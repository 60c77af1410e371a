"""Deadlines against the simplest thing that could be right: a dictionary and its minimum."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.broker.groups.deadlines import Deadlines, Key

KEYS = [Key("group", "session", str(number)) for number in range(5)]
moves = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(KEYS), st.integers(0, 50)),
        st.tuples(st.just("drop"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.just("take"), st.just(KEYS[0]), st.integers(0, 50)),
    )
)


@proves("T3")
@given(moves)
def test_what_is_due_is_due_once_and_in_order(some: list[tuple[str, Key, int]]) -> None:
    deadlines, model = Deadlines(), dict[Key, int]()
    for what, key, at in some:
        if what == "put":
            deadlines.put(key, at)
            model[key] = at
        elif what == "drop":
            deadlines.drop(key)
            model.pop(key, None)
        else:
            due = deadlines.take_due(at)
            assert [model[one] for one in due] == sorted(time for time in model.values() if time <= at)
            assert len(set(due)) == len(due)
            model = {one: time for one, time in model.items() if time > at}
        assert deadlines.first() == min(model.values(), default=None)
        assert len(deadlines) == len(model)
        assert {one: deadlines.get(one) for one in KEYS} == {one: model.get(one) for one in KEYS}


@proves("T2")
def test_a_deadline_that_moves_a_million_times_leaves_no_trace() -> None:
    deadlines = Deadlines()
    for at in range(100_000):
        deadlines.put(KEYS[0], at)
        if at % 1000 == 0:
            assert deadlines.first() == at
    assert len(deadlines._heap) == 1
