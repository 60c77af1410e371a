"""How the step of a fold is called where it runs: as it is, or as somebody wants it who declares operators inside of
`called_by`: counted, for a run's progress (`FoldCounts`), or written down, for a debugger (`pipelines/stepping.py`).

Rules:
- What is called instead gives what the fold's own step would have given. It is pickled, and runs in Spark's workers.
- Counts here are those since the query was started; their sums over all micro-batches ride in the sink's mark
  (`pipelines/observed.py`). A task that Spark runs twice within a micro-batch has counted twice. What became of every
  row since the state was made stands in the state itself (`tidelog state`).
- A user's step that fails is tried once more, key by key, so that its error can name the row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from tidelog.control.counts import HELD
from tidelog.pipelines.operators.state.fold import HASH, SIDE, Clock, Fold, Holding, Step

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext

StepFunction: TypeAlias = "Callable[[pa.Table, pa.Table, Clock], Step]"
StepOf: TypeAlias = "Callable[[Fold, SparkContext], StepFunction]"

ROW, ROW_MAX = "in the row ", 500  # what is said of a row in which a user's step has failed, and how much of it
SEARCH_S = 5.0  # for which that row is looked for

_wanted: ContextVar[StepOf | None] = ContextVar("how steps are called", default=None)


@contextmanager
def called_by(step_of: StepOf | None) -> Iterator[None]:
    """For operators that are declared inside of this; None: their steps are called as they are."""
    token = _wanted.set(step_of)
    try:
        yield
    finally:
        _wanted.reset(token)


def wanted_step(fold: Fold, context: SparkContext) -> StepFunction | None:
    """None: the fold's own."""
    step_of = _wanted.get()
    return None if step_of is None else step_of(fold, context)


class FoldCounts:
    """What the folds of one query have counted, by the name of each."""

    def __init__(self) -> None:
        self._sums: dict[str, Any] = {}

    def step_of(self, fold: Fold, context: SparkContext) -> StepFunction:
        names = (fold.name if number == 1 else f"{fold.name} {number}" for number in count(1))
        sums: Any = context.accumulator({}, Adding())  # type: ignore[arg-type]
        self._sums[next(name for name in names if name not in self._sums)] = sums
        return Counted(fold, sums)

    def read(self) -> dict[str, Mapping[str, int]]:
        return {name: dict(sums.value) for name, sums in self._sums.items()}


class Adding:
    """What Spark wants of sums: an AccumulatorParam, but for the name."""

    def zero(self, value: dict[str, int]) -> dict[str, int]:
        return {}

    def addInPlace(self, value1: dict[str, int], value2: dict[str, int]) -> dict[str, int]:
        return {name: value1.get(name, 0) + value2.get(name, 0) for name in {*value1, *value2}}


class Counted:
    def __init__(self, fold: Fold, sums: Any) -> None:
        self._fold = fold
        self._sums = sums

    def __call__(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        try:
            step = self._fold.step(state, rows, clock)
        except Exception as error:
            if (row := culprit(self._fold, state, rows, clock)) is not None:
                error.add_note(f"{ROW}{row}"[:ROW_MAX])
            raise
        self._sums.add({**step.counts, **more_held(self._fold, state, step)})
        return step


def more_held(fold: Fold, state: pa.Table, step: Step) -> dict[str, int]:
    """By how many more rows wait than before the step; its sum over all steps is how many wait."""
    more = fold.held(step.state) - fold.held(state) if isinstance(fold, Holding) else 0
    return {HELD: more} if more else {}


def culprit(fold: Fold, state: pa.Table, rows: pa.Table, clock: Clock) -> dict[str, Any] | None:
    """The row at which a step fails: a step is pure, so it is tried key by key, and then row by row, for a while."""
    import pyarrow.compute as pc

    until = time.monotonic() + SEARCH_S

    def fails(own: pa.Table, kept: pa.Table) -> bool:
        try:
            fold.step(kept, own, clock)
        except Exception:
            return True
        return False

    for key in pc.unique(rows[HASH]):
        own, kept = (table.filter(pc.equal(table[HASH], key)) for table in (rows, state))
        lengths = range(1, len(own) + 1) if fails(own, kept) else range(0)
        for length in lengths:
            if fails(own.slice(0, length), kept):
                row = own.slice(length - 1, 1).to_pylist()[0]
                return {name: value for name, value in row.items() if name not in (HASH, SIDE)}
            if time.monotonic() > until:
                return None
        if time.monotonic() > until:
            return None
    return None
