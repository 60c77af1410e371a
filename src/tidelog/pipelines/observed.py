"""What the tasks of a query tell beside its rows: records that were left out, and what became of rows in operators.

    declared    operators and inputs that are declared inside of it tell of themselves
    noted       when the rows of a micro-batch are staged: what is to be written, and counted, with it
    committed   the sums of all micro-batches of the sink, as its mark has them

Counts are those of the mark (`control/counts.py`): what a micro-batch has counted that did not come to its commit is
counted when it is run again, and no more than once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from tidelog.control.counts import NOTHING, OPERATORS, RECORDS, Counts, added, reason_of
from tidelog.control.dead_letters import topic_of_letters
from tidelog.pipelines.operators.dropped import counted_in
from tidelog.pipelines.operators.state.steps import FoldCounts, called_by
from tidelog.spark.foreach_batch import Metrics, Observer, TaskNotes
from tidelog.spark.left_out import LeftOut, Note

if TYPE_CHECKING:
    from collections.abc import Sequence

_left_out: ContextVar[LeftOut | None] = ContextVar("who is told of records that are left out", default=None)


def left_out_now() -> LeftOut | None:
    """Who is to be told by inputs that are declared now; None: nobody."""
    return _left_out.get()


@contextmanager
def unobserved() -> Iterator[None]:
    """For what is declared and never run: only its columns are asked for."""
    token = _left_out.set(None)
    try:
        with called_by(None), counted_in(None):
            yield
    finally:
        _left_out.reset(token)


class Observed(Observer):
    """Of one query, whose rows go to `topic`."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._left_out = LeftOut()
        self._folds = FoldCounts()
        self._counted: Mapping[str, Mapping[str, int]] = {}  # by operators, up to the last micro-batch
        self._in_plan: dict[str, str] = {}  # operators that the plan counts for, by the names of their counts there
        self.sums: Counts | None = None  # of the mark; None where it is not known yet

    @contextmanager
    def declared(self) -> Iterator[None]:
        token = _left_out.set(self._left_out)
        try:
            with called_by(self._folds.step_of), counted_in(self._in_plan):
                yield
        finally:
            _left_out.reset(token)

    def begin(self) -> None:
        """A query is started: what a micro-batch has left that failed does not count."""
        self._left_out.take()
        self._counted = self._folds.read()

    def noted(self, metrics: Metrics = dict) -> TaskNotes:
        notes, now = self._left_out.take(), self._folds.read()
        operators = {name: _since(self._counted.get(name, {}), sums) for name, sums in now.items()}
        self._counted = now
        counts = added(NOTHING, {RECORDS: of_records(notes), OPERATORS: operators})
        found = metrics() if self._in_plan else {}
        for name, operator in self._in_plan.items():
            counts = added(counts, {OPERATORS: {operator: found.get(name, {})}})
        return TaskNotes(notes, topic_of_letters(self._topic), counts)

    def committed(self, counts: Counts) -> None:
        self.sums = counts


def of_records(notes: Sequence[Note]) -> dict[str, dict[str, int]]:
    """By topic and reason."""
    found: dict[str, Counter[str]] = {}
    for note in notes:
        found.setdefault(note.topic, Counter())[reason_of(note.reason)] += 1
    return {topic: dict(sums) for topic, sums in found.items()}


def _since(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {name: number - before.get(name, 0) for name, number in now.items()}
