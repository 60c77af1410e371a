"""`changes(...)`: a row for each time that a key's value becomes another one.

    df.transform(changes("status", by="order"))                  order, status, status_before, ... as in the row
    df.transform(changes("degrees", by="sensor", at_least=0.5))  only by so much, from the last that was put out

Rows are looked at in the order of event time, as the watermark reaches them: a row that comes out of order is no change
back and forth. What comes out is the input's row with `<column>_before` for each watched column.

Rules:
- The first row of a key is a change, with nulls before it, unless `first=False`.
- Null is a value: from it and to it is a change, and from null to null is none.
- With `at_least` (one column, of numbers), a value is compared with the last that was put out, so that a slow drift is
  a change in the end, and a value that trembles around a threshold is none. Exactly so much is a change. From a number
  to NaN and back is a change, however small `at_least` is; from NaN to NaN is none.
- A key is remembered for ever, or for `forget_after`: after so long without a change its next row is a first one again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidelog.errors import UsageError
from tidelog.pipelines.operators.durations import Duration, positive
from tidelog.pipelines.operators.grouping import Booleans, Integers, encode
from tidelog.pipelines.operators.in_order import Sequenced, plain, state_schema, step_in_order, waiting_in
from tidelog.pipelines.operators.joins.sides import unplaced
from tidelog.pipelines.operators.keyed import check_columns, row_schema, run_by
from tidelog.pipelines.operators.place_in_query import check_place
from tidelog.pipelines.operators.state.fold import Clock, Step
from tidelog.pipelines.operators.time import event_time_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BEFORE = "_before"


def changes(
    columns: str | Sequence[str],
    *,
    by: str | Sequence[str],
    at_least: float | None = None,
    first: bool = True,
    forget_after: Duration | None = None,
    questions: DataFrame | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """For `df.transform(changes("status", by="order"))`. Takes plain rows and gives plain rows.

    `questions` are answered with a key's last change, and the rows that wait for the watermark.
    """
    watched = (columns,) if isinstance(columns, str) else tuple(columns)
    keys = (by,) if isinstance(by, str) else tuple(by)
    span = None if forget_after is None else positive(forget_after, what="forget_after") * 1000
    if not watched or not keys:
        raise UsageError("changes needs a column to watch and the columns of a key; name them")
    if at_least is not None and (len(watched) > 1 or at_least <= 0):
        raise UsageError(f"at_least is {at_least!r}, of {', '.join(watched)}; it is above 0, and of one column")

    def changed(frame: DataFrame) -> DataFrame:
        rows = unplaced(frame)
        check_columns("changes", rows, (*watched, *keys))
        time = event_time_column(rows)
        fold = Changes(row_schema(rows), time, keys, span, watched, at_least, first)
        check_watched(fold)
        check_place(rows, "changes")
        return run_by(rows, keys, fold, time, questions)

    return changed


def check_watched(fold: Changes) -> None:
    for name in fold.watched:
        kind = fold.rows.field(name).type
        if fold.at_least is not None and not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise UsageError(f"at_least is of numbers, and {name!r} is a {kind}; cast it to double")
        if pa.types.is_nested(kind):
            raise UsageError(f"{name!r} is a {kind}; watch its fields instead")
        if f"{name}{BEFORE}" in fold.rows.names:
            raise UsageError(f"there is a column {name}{BEFORE} already; rename it")


@dataclass(frozen=True)
class Changes:
    rows: pa.Schema
    time: str
    by: tuple[str, ...]
    remembers: int | None
    watched: tuple[str, ...]
    at_least: float | None = None
    first: bool = True
    name: str = "changes"
    version: int = 1

    @property
    def state_schema(self) -> pa.Schema:
        return state_schema(self.rows)

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema(
            [*self.rows, *(pa.field(f"{name}{BEFORE}", self.rows.field(name).type) for name in self.watched)]
        )

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        return step_in_order(self, state, rows, clock)

    def held(self, state: pa.Table) -> int:
        return waiting_in(state)

    def keep(self, sequenced: Sequenced) -> Booleans:
        """Changes, and first rows, which are remembered also where they are not put out."""
        if self.at_least is None and self.remembers is None:
            codes = watched_codes(sequenced.rows, self.watched)
            changed = sequenced.first
            changed[1:] |= codes[1:] != codes[:-1]
            return changed
        return self._row_by_row(sequenced)

    def _row_by_row(self, sequenced: Sequenced) -> Booleans:
        """Where it matters which of the rows before were changes."""
        values: list[Any] = watched_codes(sequenced.rows, self.watched).tolist()
        if self.at_least is not None:
            values = sequenced.rows[self.watched[0]].to_pylist()
        kept, first, last, since = sequenced.first, sequenced.first.tolist(), None, 0
        for place, (value, time) in enumerate(zip(values, sequenced.times.tolist(), strict=True)):
            forgotten = self.remembers is not None and time - since > self.remembers
            if first[place] or forgotten or self._differs(value, last):
                kept[place], last, since = True, value, time
        return kept

    def _differs(self, value: Any, last: Any) -> bool:
        if self.at_least is None or value is None or last is None:
            return bool(value != last)
        if math.isnan(value) or math.isnan(last):
            return math.isnan(value) != math.isnan(last)
        return bool(abs(value - last) >= self.at_least)

    def output(self, sequenced: Sequenced, kept: Booleans) -> pa.Table:
        places, before = self._before(sequenced, kept)
        shown = ~sequenced.remembered[places] & (self.first | (before >= 0))
        places, before = places[shown], before[shown]
        found = plain(sequenced.rows.take(pa.array(places)), self.rows.names)
        earlier = pa.array(before, mask=before < 0)
        for name in self.watched:
            found = found.append_column(f"{name}{BEFORE}", sequenced.rows[name].take(earlier))
        return found.cast(self.output_schema)

    def _before(self, sequenced: Sequenced, kept: Booleans) -> tuple[Integers, Integers]:
        """The rows that are changes or memories, and for each the one before it; -1 where it is a first one."""
        places = np.flatnonzero(kept | sequenced.remembered)
        before = np.full(len(places), -1, np.int64)
        same = sequenced.codes[places][1:] == sequenced.codes[places][:-1]
        if self.remembers is not None:
            same &= np.diff(sequenced.times[places]) <= self.remembers
        before[1:][same] = places[:-1][same]
        return places, before


def watched_codes(rows: pa.Table, watched: Sequence[str]) -> Integers:
    """A number for each set of values: the same where all of them are the same, nulls too."""
    found = encode(rows[watched[0]])
    for name in watched[1:]:
        column = encode(rows[name])
        found = encode(pa.array(found.codes * max(len(column.first), 1) + column.codes))
    return found.codes
