"""What is said of windows' results: how many a second, and how they compare with the same time yesterday.

    clicks = df.transform(tumbling("1 hour", by="page", aggregates={"clicks": count()}))
    clicks.withColumn("a_second", rate("clicks"))
    clicks.transform(compare_with_earlier("1 day", by="page", columns="clicks"))

Rolling averages are `hopping` windows with `mean`; percentiles, distinct counts and the most frequent values are
aggregates of `sketches.py`.

`compare_with_earlier` gives each row `<column>_earlier`: what the row of its key had whose event time is exactly the
period earlier; null where there is none. A window is put out after all that ended before it, so that the earlier row is
always there first, and nothing waits. Earlier rows are kept for the period and a little longer. Rows that are not of
windows may be late. These are dropped and counted: Spark ends a query that puts out a row from behind the watermark.
They may come out of order, too, by the lateness: a shorter period is refused, since its earlier row may come later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidelog.control.counts import losses
from tidelog.errors import UsageError
from tidelog.pipelines.operators.durations import Duration, milliseconds, positive
from tidelog.pipelines.operators.grouping import Integers, encode_keys, pairs
from tidelog.pipelines.operators.in_order import micros
from tidelog.pipelines.operators.joins.sides import unplaced
from tidelog.pipelines.operators.keyed import check_columns, row_schema, run_by
from tidelog.pipelines.operators.place_in_query import takes_results
from tidelog.pipelines.operators.state.fold import DUE, HASH, Clock, Step
from tidelog.pipelines.operators.time import WATERMARK, event_time_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EARLIER = "_earlier"
MICROSECONDS = 1_000


def rate(column: str, *, per: Duration = "1 second") -> Column:
    """A count or a sum of a window as so many in each `per`: for `df.withColumn("a_second", rate("clicks"))`."""
    from pyspark.sql import functions as F

    unit = positive(per, what="per") * MICROSECONDS
    length = F.unix_micros("window_end") - F.unix_micros("window_start")
    return F.col(column) * F.lit(float(unit)) / length


def compare_with_earlier(
    period: Duration,
    *,
    columns: str | Sequence[str],
    by: str | Sequence[str] = (),
    slack: Duration = "1 hour",
    questions: DataFrame | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """For `windows.transform(compare_with_earlier("1 week", by="page", columns="clicks"))`.

    Takes plain rows, one for each key and time, and gives them with `<column>_earlier`. `slack` is how much longer than
    the period earlier rows are kept: the length of the windows, or more. `questions` are answered with those rows.
    """
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    keys = (by,) if isinstance(by, str) else tuple(by)
    span = positive(period, what="period") * MICROSECONDS
    longer = milliseconds(slack, what="slack") * MICROSECONDS
    if not names:
        raise UsageError("compare_with_earlier needs columns to compare; name them")

    def compared(frame: DataFrame) -> DataFrame:
        rows = unplaced(frame)
        check_columns("compare_with_earlier", rows, (*names, *keys))
        time = event_time_column(rows)
        if taken := [name for name in names if f"{name}{EARLIER}" in rows.columns]:
            raise UsageError(f"there is a column {taken[0]}{EARLIER} already; rename it")
        drops = not takes_results(rows, "compare_with_earlier")
        if drops and rows.isStreaming:
            check_lateness(rows, time, span)
        fold = Earlier(row_schema(rows), time, keys, names, span, longer, drops)
        return run_by(rows, keys, fold, time, questions)

    return compared


def check_lateness(rows: DataFrame, time: str, span: int) -> None:
    """Of rows as they are read: the one before may come after, unless it would be late by then."""
    lateness = int(rows.schema[time].metadata[WATERMARK]) * MICROSECONDS
    if lateness > span:
        late, earlier = (timedelta(microseconds=each) for each in (lateness, span))
        raise UsageError(
            f"rows may come {late} late, and compare_with_earlier looks for what was {earlier} before each: that may "
            "come after it; compare results of windows, or declare a watermark delay that is not longer than the period"
        )


@dataclass(frozen=True)
class Earlier:
    """State: the key, the time and the compared columns of every row of the last period. Spans are in microseconds.

    `drops_late`: rows come as they are read. Where they are results of windows, none of them is late.
    """

    rows: pa.Schema
    time: str
    by: tuple[str, ...]
    columns: tuple[str, ...]
    span: int
    slack: int
    drops_late: bool = False
    name: str = "compare_with_earlier"
    version: int = 1

    @property
    def kept(self) -> list[str]:
        return list(dict.fromkeys([*self.by, self.time, *self.columns]))

    @property
    def state_schema(self) -> pa.Schema:
        head = [pa.field(HASH, pa.int64()), pa.field(DUE, pa.int64())]
        return pa.schema([*head, *(self.rows.field(name) for name in self.kept)])

    @property
    def output_schema(self) -> pa.Schema:
        added = [pa.field(f"{name}{EARLIER}", self.rows.field(name).type) for name in self.columns]
        return pa.schema([*self.rows, *added])

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        timed = self._on_time(rows, clock)
        known = state.select([HASH, *self.kept])
        every = pa.concat_tables([known, timed.select([HASH, *self.kept]).cast(known.schema)]).combine_chunks()
        times = micros(every[self.time])
        codes = encode_keys(every, self.by).codes if len(every) else np.zeros(0, np.int64)
        earlier = self._earlier(codes, times, len(state))
        output = timed.select(self.rows.names)
        for name in self.columns:
            output = output.append_column(f"{name}{EARLIER}", every[name].take(earlier))
        dropped, untimed = len(rows) - len(timed), rows[self.time].null_count
        counts = {"in": len(rows), "dropped": dropped} | losses(late=dropped - untimed, without_time=untimed)
        return Step(self._remembered(every, times, clock), output.cast(self.output_schema).combine_chunks(), counts)

    def _on_time(self, rows: pa.Table, clock: Clock) -> pa.Table:
        timed = rows.filter(rows[self.time].is_valid())
        if clock.late is None or not self.drops_late:
            return timed
        return timed.filter(pa.array(micros(timed[self.time]) > clock.late * MICROSECONDS))

    def _earlier(self, codes: Integers, times: Integers, old: int) -> pa.Array:
        """For each new row the place of the one before; of several at one time, the last that came. Null for none."""
        wanted_times = np.concatenate([times, times[old:] - self.span])
        found = pairs(np.concatenate([codes, codes[old:]]), wanted_times).codes
        last = np.full(int(found.max(initial=-1)) + 1, -1, np.int64)
        last[found[: len(times)]] = np.arange(len(times))
        places = last[found[len(times) :]]
        return pa.array(places, mask=places < 0)

    def _remembered(self, every: pa.Table, times: Integers, clock: Clock) -> pa.Table:
        until = (times + self.span + self.slack) // MICROSECONDS + 1
        due = every.append_column(DUE, pa.array(until))
        if clock.watermark is not None:
            due = due.filter(pa.array(until > clock.watermark))
        return due.select(self.state_schema.names)
