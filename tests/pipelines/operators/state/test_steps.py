"""How steps are called: counted, by names that tell the folds of a query apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from pipelines.operators.state.counting import Counting
from proving import proves
from tidelog.pipelines.operators.state.fold import HASH, Clock, Step
from tidelog.pipelines.operators.state.steps import Counted, FoldCounts, culprit


class Context:
    """Of Spark's, what is asked for: a sum that begins as it is given."""

    def accumulator(self, value: dict[str, int], how: Any) -> SimpleNamespace:
        return SimpleNamespace(value=value)


@proves("P1", "P7")
def test_the_row_is_found_at_which_a_users_step_fails() -> None:
    class Dividing(Counting):
        def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
            for number in rows["number"].to_pylist():
                1 // number
            return Step(state, rows, {})

    rows = pa.table({HASH: [1, 1, 2, 2, 2], "number": [1, 2, 3, 0, 5]})
    none = rows.slice(0, 0)
    assert culprit(Dividing(), none, rows, Clock(None, 0)) == {"number": 0}
    assert culprit(Dividing(), none, rows.slice(0, 3), Clock(None, 0)) is None
    with pytest.raises(ZeroDivisionError) as failed:
        Counted(Dividing(), SimpleNamespace(add=print))(none, rows.slice(3), Clock(None, 0))
    assert failed.value.__notes__ == ["in the row {'number': 0}"]


@proves("P1", "P7")
def test_folds_of_one_name_are_counted_apart_also_where_it_has_several_words() -> None:
    counts, context = FoldCounts(), Context()
    for name in ("count", "count and last", "count", "count and last", "count and last"):
        counts.step_of(Counting(name=name), context)  # type: ignore[arg-type]
    assert sorted(counts.read()) == ["count", "count 2", "count and last", "count and last 2", "count and last 3"]
