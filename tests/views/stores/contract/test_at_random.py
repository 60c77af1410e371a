"""Random stretches into random generations, against dicts."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from proving import proves
from tidelog.errors import AnotherApplier
from tidelog.schema.declaration import Key, Row, declare
from tidelog.views.stores.store import Store
from tries import tries
from views.stores.applied import AT, Applied, stretch
from views.stores.conftest import KINDS, Open
from views.stores.kinds import Kind

DECLARED = declare({"part": "string", "number": "long", "text": "string", "amount": "double"}, ("part", "number"))
VIEWS = count()

parts = st.sampled_from(["", "a", "A", "b", "a\x00b", "ä", "'", "\x01"])
keys = st.tuples(parts, st.sampled_from([0, 1, -1, 10]))
texts = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
amounts = st.none() | st.floats()


@st.composite
def a_row(draw: st.DrawFn, key: Key) -> Row:
    return {"part": key[0], "number": key[1], "text": draw(texts), "amount": draw(amounts)}


@st.composite
def changes(draw: st.DrawFn) -> dict[Key, Row | None]:
    told = draw(st.lists(st.tuples(keys, st.booleans()), max_size=8))
    return {key: draw(a_row(key)) if there else None for key, there in told}


@pytest.fixture(params=[one.parameter(*([pytest.mark.full] if one.name == "delta" else [])) for one in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Here a table of Delta Lake takes longer than all the others together; what it must do is in the other files."""
    found: Kind = request.param
    return found


steps = st.lists(
    st.tuples(st.sampled_from(["apply", "apply", "apply", "overtaken", "reopen"]), st.integers(1, 2), changes()),
    min_size=1,
    max_size=10,
)


@proves("P3", "eo.16", "eo.17", "eo.24")
@tries(10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])  # many calls of a server
@given(steps)
def test_a_store_is_what_a_dict_is(url: str, opened: Open, steps: list[tuple[str, int, dict[Key, Row | None]]]) -> None:
    view = f"view{next(VIEWS)}"
    store: Store = opened(url, view)
    both = {number: Applied(store, DECLARED, number) for number in (1, 2)}
    shown: Applied | None = None
    for step, number, told in steps:
        one = both[number]
        if step == "apply":
            one.apply(told, show=True)
            shown = one if shown is None or number >= shown.generation else shown  # it never goes back
        elif step == "overtaken":
            with pytest.raises(AnotherApplier):
                store.apply(number, stretch([], (one.end or 0) + 9), before={AT: (one.end or 0) + 1}, show=True)
        else:
            store.close()
            store = opened(url, view)
            for each in both.values():
                each.store = store
        assert store.shown() == (None if shown is None else shown.generation)
        if shown is not None:
            shown.is_equal()
    store.close()
