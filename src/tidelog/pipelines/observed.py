"""What the tasks of a query tell beside its rows: records that were left out, what became of rows in operators, and the
latest event time of inputs whose silence would hold the watermark (`docs/decisions/watermarks_in_marks.md`).

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
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from tidelog.control.counts import NOTHING, OPERATORS, RECORDS, Counts, added, reason_of
from tidelog.control.dead_letters import topic_of_letters
from tidelog.pipelines.operators.dropped import counted_in
from tidelog.pipelines.operators.state.steps import FoldCounts, called_by
from tidelog.spark.foreach_batch import Metrics, Observer, TaskNotes
from tidelog.spark.left_out import LeftOut, Note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from tidelog.pipelines.app import Time


class TimedInput(NamedTuple):
    topic: str
    delay_ms: int


LATEST_MS = "latest_ms"
_left_out: ContextVar[LeftOut | None] = ContextVar("who is told of records that are left out", default=None)
_timed: ContextVar[dict[str, TimedInput] | None] = ContextVar("inputs by the names of their times", default=None)
_numbers = count(1)


def left_out_now() -> LeftOut | None:
    """Who is to be told by inputs that are declared now; None: nobody."""
    return _left_out.get()


def timing(rows: DataFrame, topic: str, time: Time) -> DataFrame:
    """The same rows of an input with an event time, whose latest is told if somebody wants to know. One that goes on by
    the clock when it is silent (`idle_after`) holds nobody.
    """
    from pyspark.sql import functions as F

    timed = _timed.get()
    if timed is None or time.idle_ms is not None or not rows.isStreaming:
        return rows
    name = f"tidelog time {next(_numbers)}"  # a plan has each name once
    timed[name] = TimedInput(topic, time.lateness_ms)
    latest = F.coalesce(F.max(F.unix_millis(F.col(f"`{time.column}`"))), F.lit(0))
    return rows.observe(name, latest.alias(LATEST_MS))


@contextmanager
def unobserved() -> Iterator[None]:
    """For what is declared and never run: only its columns are asked for."""
    with _observing(None, None), called_by(None), counted_in(None):
        yield


@contextmanager
def _observing(left_out: LeftOut | None, timed: dict[str, TimedInput] | None) -> Iterator[None]:
    tokens = _left_out.set(left_out), _timed.set(timed)
    try:
        yield
    finally:
        _left_out.reset(tokens[0])
        _timed.reset(tokens[1])


class Observed(Observer):
    """Of one query, whose rows go to `topic`: it is known at last when a micro-batch is staged."""

    def __init__(self, topic: str = "") -> None:
        self.topic = topic
        self._left_out = LeftOut()
        self._folds = FoldCounts()
        self._counted: Mapping[str, Mapping[str, int]] = {}  # by operators, up to the last micro-batch
        self._in_plan: dict[str, str] = {}  # operators that the plan counts for, by the names of their counts there
        self._timed: dict[str, TimedInput] = {}  # by the names of their times in the plan
        self._alone: dict[str, int] = {}  # the watermark that each of them leads to
        self.sums: Counts | None = None  # of the mark; None where it is not known yet

    @contextmanager
    def declared(self) -> Iterator[None]:
        with _observing(self._left_out, self._timed), called_by(self._folds.step_of), counted_in(self._in_plan):
            yield

    def declared_as(self, *, holds: bool) -> None:
        self.holds = holds

    def begin(self) -> None:
        """A query is started: what a micro-batch has left that failed does not count."""
        self._left_out.take()
        self._counted = self._folds.read()
        self._alone = {}

    def noted(self, metrics: Metrics = dict) -> TaskNotes:
        notes, now = self._left_out.take(), self._folds.read()
        operators = {name: _since(self._counted.get(name, {}), sums) for name, sums in now.items()}
        self._counted = now
        counts = added(NOTHING, {RECORDS: of_records(notes), OPERATORS: operators})
        found = metrics() if self._in_plan or self._timed else {}
        for name, operator in self._in_plan.items():
            counts = added(counts, {OPERATORS: {operator: found.get(name, {})}})
        return TaskNotes(notes, topic_of_letters(self.topic), counts, self._watermarks(found))

    def _watermarks(self, found: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
        """That each input leads to, by what was read since the query was started, as Spark has it; 0 where it has told
        of none.
        """
        for name, one in self._timed.items():
            latest_ms = found.get(name, {}).get(LATEST_MS, 0)
            self._alone[one.topic] = max(self._alone.get(one.topic, 0), latest_ms - one.delay_ms)
        return dict(self._alone) if self.holds else {}

    def committed(self, counts: Counts) -> None:
        self.sums = counts


class Prepared(NamedTuple):
    """Rows of an output as its query will have them."""

    frame: DataFrame
    observed: Observed


def of_records(notes: Sequence[Note]) -> dict[str, dict[str, int]]:
    """By topic and reason."""
    found: dict[str, Counter[str]] = {}
    for note in notes:
        found.setdefault(note.topic, Counter())[reason_of(note.reason)] += 1
    return {topic: dict(sums) for topic, sums in found.items()}


def _since(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {name: number - before.get(name, 0) for name, number in now.items()}
