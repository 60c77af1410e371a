"""What windows answer: those of a key that are not over, as they would be put out if nothing more came."""

from __future__ import annotations

from copy import deepcopy

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.windows.driving import Batch, batches
from pipelines.operators.windows.mechanism import Mechanism, Row, Told, spec, told_of
from pipelines.operators.windows.oracle import MS
from proving import proves
from tidelog.pipelines.operators.state.fold import END_OF_TIME, Clock, Fold
from tidelog.pipelines.operators.windows.grid import Grid
from tidelog.pipelines.operators.windows.grid_fold import GridFold
from tidelog.pipelines.operators.windows.session_fold import SessionFold
from tidelog.pipelines.operators.windows.sliding_fold import SlidingFold
from tidelog.pipelines.operators.windows.spec import Spec
from tidelog.pipelines.operators.windows.throttled import Throttled
from tries import tries

FIRST, LAST = -10, 20
FEWER = tries(10)  # all keys are asked one by one, and the state is copied
KINDS = {
    "tumbling": lambda of: GridFold(of, Grid(5 * MS, 5 * MS, 0)),
    "hopping": lambda of: GridFold(of, Grid(5 * MS, 2 * MS, MS)),
    "sliding": lambda of: SlidingFold(of, 4 * MS),
    "session": lambda of: SessionFold(of, 3 * MS),
}


def answers(mechanism: Mechanism, watermark: int | None) -> list[Told]:
    """Of all keys; each is asked by itself."""
    state, found = pa.concat_tables(mechanism.state), list[Told]()
    for key in pc.unique(state["key"]).to_pylist():
        own = state.filter(pc.is_null(state["key"]) if key is None else pc.equal(state["key"], key))
        found += told_of(mechanism.fold.answer(own, Clock(watermark, 0)))  # type: ignore[attr-defined]
    return sorted(found, key=repr)


def run(fold: Fold, taken: list[Batch]) -> tuple[Mechanism, int | None]:
    mechanism, watermark = Mechanism(fold, 2), None
    for rows, step in taken:
        if step >= 0:
            watermark = (FIRST if watermark is None else watermark) + step
        mechanism.run(rows, watermark)
    return mechanism, watermark


@proves("P6", "P8")
@pytest.mark.parametrize("kind", KINDS)
@FEWER
@given(taken=batches(FIRST, LAST))
def test_the_answer_is_what_would_be_put_out_if_time_ended(kind: str, taken: list[Batch]) -> None:
    mechanism, watermark = run(KINDS[kind](spec()), taken)
    told = answers(mechanism, watermark)
    ended = told_of(deepcopy(mechanism).run([], END_OF_TIME))
    assert told == sorted(ended, key=repr)


@pytest.mark.full
@proves("P6", "P8")
@pytest.mark.parametrize("kind", KINDS)
@FEWER
@given(taken=batches(FIRST, LAST), interval=st.none() | st.integers(1, 9))
def test_windows_that_are_put_out_early_answer_as_those_that_are_not(
    kind: str, taken: list[Batch], interval: int | None
) -> None:
    early: Spec = spec(early=True, interval=interval)
    fold: Fold = KINDS[kind](early)
    if interval is not None:
        fold = Throttled(fold, early, interval, kind == "session")
    mechanism, watermark = run(fold, taken)
    plain, _ = run(KINDS[kind](spec()), taken)
    assert answers(mechanism, watermark) == answers(plain, watermark)


@proves("P6", "P8")
@pytest.mark.parametrize("kind", ["tumbling", "sliding", "session"])
def test_a_window_that_is_over_is_not_told_also_while_it_may_be_corrected(kind: str) -> None:
    mechanism = Mechanism(KINDS[kind](spec(allowed=4 * MS)), 1)
    mechanism.run([Row("a", 1 * MS, 1), Row("a", 7 * MS, 2)], 0)
    for watermark in (0, 4, 6, 9, 13, 14, 30):
        mechanism.run([], watermark)
        told = answers(mechanism, watermark)
        assert all(each.end > watermark * MS or (kind == "sliding" and each.end == watermark * MS) for each in told)
        assert told or watermark > 6
