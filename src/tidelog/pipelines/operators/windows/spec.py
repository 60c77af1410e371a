"""What every window is told when it is declared, and how its aggregates lie in state: one flat list of columns.

Times are whole microseconds in here, as Spark's are: a watermark of milliseconds is turned into them at the door.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.control.counts import losses
from tidelog.errors import UsageError
from tidelog.pipelines.operators.aggregates import Aggregate
from tidelog.pipelines.operators.changelog import HEAD, OP, SEQ
from tidelog.pipelines.operators.grouping import Booleans, Groups, Integers
from tidelog.pipelines.operators.state.fold import HASH, Clock

START = "window_start"
END = "window_end"
TIME = "window_time"
LATE = "_late"

MICROSECONDS = 1_000  # in a millisecond
BEGINNING = -(2**62)  # before every watermark
END_OF_DAYS = 2**62  # the year 148,000: behind every time that is meant
TIMESTAMP = pa.timestamp("us", tz="UTC")


class Bounds(NamedTuple):
    """`late`: windows that end here or before take no more rows. `reached`: those that do are over. Microseconds."""

    late: int
    reached: int


def bounds_of(clock: Clock, allowed: int) -> Bounds:
    """A window that may be corrected for a while takes rows for so long behind its end."""
    late = BEGINNING if clock.late is None else clock.late * MICROSECONDS - allowed
    reached = BEGINNING if clock.watermark is None else min(clock.watermark * MICROSECONDS, END_OF_DAYS)
    return Bounds(late, reached)


@dataclass(frozen=True, slots=True)
class Spec:
    """`allowed`: microseconds behind its end in which a window is corrected; None: what is put out is final.

    `early`: windows are put out while they are open, too; with an `interval`, no more than once in so many ms.
    `diverts`: rows that are too late are a side output. (State keeps the names of fields: `state/parameters.py`.)
    """

    rows: pa.Schema
    time: str
    by: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    allowed: int | None = None
    early: bool = False
    diverts: bool = False
    interval: int | None = None

    @property
    def changelog(self) -> bool:
        return self.early or self.allowed is not None

    def kind(self, aggregate: Aggregate) -> pa.DataType:
        kinds = [self.rows.field(name).type for name in columns_taken(aggregate)]
        if not kinds:
            return pa.null()
        return kinds[0] if len(kinds) == 1 else pa.struct([(str(place), kind) for place, kind in enumerate(kinds)])

    @property
    def key_schema(self) -> pa.Schema:
        return pa.schema([pa.field(HASH, pa.int64()), *(self.rows.field(name) for name in self.by)])

    @property
    def state_fields(self) -> list[pa.Field]:
        return [
            pa.field(f"{name}.{place}", kind)
            for name, aggregate in self.aggregates
            for place, kind in enumerate(aggregate.state_types(self.kind(aggregate)))
        ]

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema([*HEAD, *self.plain_schema]) if self.changelog else self.plain_schema

    @property
    def plain_schema(self) -> pa.Schema:
        """What is put out, without what makes it a changelog."""
        window = [pa.field(name, TIMESTAMP) for name in (START, END, TIME)]
        keys = [self.rows.field(name) for name in self.by]
        results = [pa.field(name, found.output_type(self.kind(found))) for name, found in self.aggregates]
        late = [pa.field(LATE, self.late_type)] if self.diverts else []
        return pa.schema([*window, *keys, *results, *late])

    @property
    def late_type(self) -> pa.DataType:
        told = [(START, TIMESTAMP), (END, TIMESTAMP), ("why", pa.string()), ("watermark", TIMESTAMP)]
        return pa.struct([*told, ("row", pa.struct(list(self.rows)))])


def check(spec: Spec) -> Spec:
    """Refuses what would only be found out about in a worker."""
    taken = [OP, SEQ, START, END, TIME, LATE, *spec.by]
    for name, aggregate in spec.aggregates:
        if name in taken:
            raise UsageError(f"an aggregate is called {name!r}, as another column of the result is; rename it")
        for column in columns_taken(aggregate):
            _column(spec, column)
        aggregate.output_type(spec.kind(aggregate))
    for name in spec.by:
        if pa.types.is_nested(_column(spec, name).type):
            raise UsageError(f"by has {name!r}, which is a {spec.rows.field(name).type}; name its fields instead")
    _column(spec, spec.time)
    return spec


def as_declared(spec: Spec, rows: pa.Table) -> pa.Table:
    """The rows with the types that state and output have: Spark gives times the zone of its session."""
    wanted = pa.schema([pa.field(HASH, pa.int64()), *spec.rows])
    return rows.select(wanted.names).cast(wanted)


def nullable(rows: pa.Schema) -> pa.Schema:
    """Whether a column is never null is the affair of Spark's optimizer."""
    return pa.schema([pa.field(field.name, field.type) for field in rows])


def columns_taken(aggregate: Aggregate) -> tuple[str, ...]:
    if aggregate.column is None:
        return ()
    return (aggregate.column,) if isinstance(aggregate.column, str) else aggregate.column


def _column(spec: Spec, name: str) -> pa.Field:
    if name not in spec.rows.names:
        raise UsageError(f"column {name!r} does not exist; columns are {', '.join(spec.rows.names)}")
    return spec.rows.field(name)


# The aggregates of one window, or of many, as a flat list of columns -------------------------------------------------

Columns = Sequence[pa.Array]


def lift(spec: Spec, rows: pa.Table, times: Integers) -> list[pa.Array]:
    at = pa.array(times)
    lifted: list[pa.Array] = []
    for _, aggregate in spec.aggregates:
        lifted += aggregate.lift(_values(spec, aggregate, rows), at)
    return lifted


def _values(spec: Spec, aggregate: Aggregate, rows: pa.Table) -> pa.Array:
    columns = [rows[name].combine_chunks() for name in columns_taken(aggregate)]
    if len(columns) > 1:
        return pa.StructArray.from_arrays(columns, fields=list(spec.kind(aggregate)))
    return columns[0] if columns else pa.nulls(len(rows))


def reduce(spec: Spec, columns: Columns, groups: Groups) -> list[pa.Array]:
    reduced: list[pa.Array] = []
    for _, aggregate in spec.aggregates:
        width = len(aggregate.state_types(spec.kind(aggregate)))
        reduced += aggregate.reduce(columns[len(reduced) : len(reduced) + width], groups)
    return reduced


def finish(spec: Spec, columns: Columns) -> list[pa.Array]:
    finished, place = [], 0
    for _, aggregate in spec.aggregates:
        kind = spec.kind(aggregate)
        width = len(aggregate.state_types(kind))
        finished.append(aggregate.finish(columns[place : place + width], kind))
        place += width
    return finished


def columns_of(spec: Spec, state: pa.Table) -> list[pa.Array]:
    return [state[field.name].combine_chunks() for field in spec.state_fields]


def add(left: Columns, right: Columns) -> list[pa.Array]:
    return [pa.concat_arrays([a, b]) for a, b in zip(left, right, strict=True)]


def take(columns: Columns, places: Integers) -> list[pa.Array]:
    index = pa.array(places)
    return [column.take(index) for column in columns]


class Timed(NamedTuple):
    """The rows that have an event time: their places among all, and when they were. `untimed` are the others."""

    places: Integers
    times: Integers
    untimed: Integers

    def only(self, rows: pa.Table, which: Booleans) -> pa.Table:
        if which.all() and len(which) == len(rows):
            return rows
        return rows.take(pa.array(self.places[which]))


def timed(spec: Spec, rows: pa.Table) -> Timed:
    column = rows[spec.time].combine_chunks()
    found = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    there = found.is_valid().to_numpy(zero_copy_only=False)
    return Timed(np.flatnonzero(there), found.drop_null().to_numpy(), np.flatnonzero(~there))


def counted(spec: Spec, given: int, late: int, untimed: int) -> dict[str, int]:
    """What became of rows, each counted once for every window that it lies in; without a time, it lies in none."""
    lost = late + untimed
    by_reason = {} if spec.diverts else losses(late=late, without_time=untimed)
    return {
        "in": given + untimed,
        "aggregated": given - late,
        "diverted": lost if spec.diverts else 0,
        "dropped": 0 if spec.diverts else lost,
        **by_reason,
    }


def integers(table: pa.Table, name: str) -> Integers:
    found: Integers = table[name].combine_chunks().to_numpy()
    return found
