"""How steps are called: counted, by names that tell the folds of a query apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pipelines.operators.state.counting import Counting
from proving import proves
from tidelog.pipelines.operators.state.steps import FoldCounts


class Context:
    """Of Spark's, what is asked for: a sum that begins as it is given."""

    def accumulator(self, value: dict[str, int], how: Any) -> SimpleNamespace:
        return SimpleNamespace(value=value)


@proves("P1", "P7")
def test_folds_of_one_name_are_counted_apart_also_where_it_has_several_words() -> None:
    counts, context = FoldCounts(), Context()
    for name in ("count", "count and last", "count", "count and last", "count and last"):
        counts.step_of(Counting(name=name), context)  # type: ignore[arg-type]
    assert sorted(counts.read()) == ["count", "count 2", "count and last", "count and last 2", "count and last 3"]
