"""`deduplicate(...)`: rows that come twice, once.

    deduplicate("id")                          for ids that are used once: a record that a producer sent again
    deduplicate("user", within="10 minutes")   for keys that come back: an alarm that need not ring twice

Without `within` it is Spark's `dropDuplicatesWithinWatermark`: the row that arrives first goes on at once, and its key
is remembered until the watermark has passed its time by the lateness. So
- duplicates whose times are no further apart than the lateness are always found;
- further apart, they are found as long as the watermark has not moved on. It moves by rows: in a stream with few of
  them, a key that comes back an hour later may still be taken for a duplicate. Where keys come back, say `within`.

With `within` it is a fold: rows are looked at in the order of event time, as the watermark reaches them. A row goes on
unless one of its key went on within that time before it: one exactly so long ago is one within it. What is dropped does
not keep its key awake.

On a batch DataFrame the first of each key by event time stays, or the first in each `within`: as in a stream where no
row was late, up to which of the duplicates it is that stays without `within`. Rows whose key is null are each other's
duplicates. A row without a time is none: it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidelog.control.counts import DUPLICATES
from tidelog.errors import UsageError
from tidelog.pipelines.operators.dropped import counting_untimed
from tidelog.pipelines.operators.durations import Duration, positive
from tidelog.pipelines.operators.grouping import Booleans
from tidelog.pipelines.operators.in_order import BEGINNING, Sequenced, plain, state_schema, step_in_order, waiting_in
from tidelog.pipelines.operators.joins.sides import unplaced
from tidelog.pipelines.operators.keyed import check_columns, row_schema, run_by
from tidelog.pipelines.operators.place_in_query import check_place
from tidelog.pipelines.operators.state.fold import Clock, Step
from tidelog.pipelines.operators.time import WATERMARK, event_time_column
from tidelog.spark.native_operators import declared_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def deduplicate(
    by: str | Sequence[str], *, within: Duration | None = None, questions: DataFrame | None = None
) -> Callable[[DataFrame], DataFrame]:
    """For `df.transform(deduplicate("id"))`. Takes plain rows and gives plain rows, with the same columns.

    `questions` are answered with the last row of a key that went on, and the rows that wait for the watermark.
    """
    names = (by,) if isinstance(by, str) else tuple(by)
    span = None if within is None else positive(within, what="within") * 1000
    if not names:
        raise UsageError("deduplicate needs the columns that make two rows the same; name them")
    if questions is not None and span is None:
        raise UsageError("deduplicate without within is Spark's own, whose state cannot be queried; give within=...")

    def without_duplicates(frame: DataFrame) -> DataFrame:
        rows = unplaced(frame)
        check_columns("deduplicate", rows, names)
        time = event_time_column(rows)
        if span is not None:
            check_place(rows, "deduplicate with within", "leave within out, or ")
            return run_by(rows, names, Once(row_schema(rows), time, names, span), time, questions)
        rows = counting_untimed(rows, "deduplicate", time)
        timed = rows.where(rows[time].isNotNull())
        return within_watermark(timed, names, time) if rows.isStreaming else first_of_each(timed, names, time)

    return without_duplicates


def within_watermark(rows: DataFrame, names: Sequence[str], time: str) -> DataFrame:
    """Each key in the state has the time until which it is remembered: by the lateness that was declared then."""
    lateness = timedelta(milliseconds=rows.schema[time].metadata[WATERMARK])
    said = {"by": str(list(names)), "time": repr(time), "lateness": str(lateness)}
    return declared_with(rows, "deduplicate", said).dropDuplicatesWithinWatermark(list(names))


def first_of_each(rows: DataFrame, names: Sequence[str], time: str) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    number = F.row_number().over(Window.partitionBy(*names).orderBy(time))
    return rows.withColumn("_number", number).filter("_number = 1").drop("_number")


@dataclass(frozen=True)
class Once:
    """`remembers` is `within`, in microseconds."""

    rows: pa.Schema
    time: str
    by: tuple[str, ...]
    remembers: int
    name: str = "deduplicate"
    version: int = 1

    @property
    def state_schema(self) -> pa.Schema:
        return state_schema(self.rows)

    @property
    def output_schema(self) -> pa.Schema:
        return self.rows

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        done = step_in_order(self, state, rows, clock)
        decided = done.counts["in"] - done.counts["dropped"] - self.held(done.state) + self.held(state)
        return done._replace(counts={**done.counts, DUPLICATES: decided - len(done.output)})

    def held(self, state: pa.Table) -> int:
        return waiting_in(state)

    def keep(self, sequenced: Sequenced) -> Booleans:
        """One after the other: whether a row stays depends on which before it have."""
        kept, last = np.zeros(len(sequenced.times), np.bool_), BEGINNING
        memory, first = sequenced.remembered.tolist(), sequenced.first.tolist()
        for place, time in enumerate(sequenced.times.tolist()):
            if memory[place]:
                last = time
            elif first[place] or time - last > self.remembers:
                kept[place], last = True, time
        return kept

    def output(self, sequenced: Sequenced, kept: Booleans) -> pa.Table:
        return plain(sequenced.rows.filter(pa.array(kept)), self.rows.names)
