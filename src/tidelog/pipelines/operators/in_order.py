"""Folds that look at each key's rows one after the other, in the order of event time: what they share.

    state       _hash  _due  _waits   the input's columns
                             true     a row that waits until the watermark has reached it; it is due then
                             false    the key's memory: the last row that the fold has put out, one a key

Rules:
- A row is looked at when the watermark has reached it: no earlier one can come any more. So what is put out is what a
  batch would put out, later by the lateness. Of rows at the same time, the one that arrived first comes first.
- A row that comes late is dropped, as is one without a time, and counted.
- The memory of a key is kept for as long as the fold says (`remembers`), or for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from tidelog.control.counts import losses
from tidelog.pipelines.operators.grouping import Booleans, Integers, encode_keys
from tidelog.pipelines.operators.state.fold import DUE, HASH, Clock, Step

WAITS = "_waits"
MICROSECONDS = 1_000  # in a millisecond
BEGINNING = -(2**62)  # before every time, in microseconds
END_OF_DAYS = 2**62


class Sequenced(NamedTuple):
    """Rows by key, and within a key by time; a key's memory is the first of its rows. Microseconds."""

    rows: pa.Table
    codes: Integers
    times: Integers
    remembered: Booleans

    @property
    def first(self) -> Booleans:
        """Which rows are the first of their key."""
        found = np.ones(len(self.codes), np.bool_)
        found[1:] = self.codes[1:] != self.codes[:-1]
        return found


class InOrder(Protocol):
    """`keep` marks the rows that count; the last of a key is its new memory. `output` is made of them."""

    @property
    def rows(self) -> pa.Schema: ...

    @property
    def time(self) -> str: ...

    @property
    def by(self) -> tuple[str, ...]: ...

    @property
    def remembers(self) -> int | None: ...

    def keep(self, sequenced: Sequenced) -> Booleans: ...

    def output(self, sequenced: Sequenced, kept: Booleans) -> pa.Table: ...


def state_schema(rows: pa.Schema) -> pa.Schema:
    head = [pa.field(HASH, pa.int64()), pa.field(DUE, pa.int64()), pa.field(WAITS, pa.bool_())]
    return pa.schema([*head, *rows])


def step_in_order(fold: InOrder, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
    schema = state_schema(fold.rows)
    untimed = rows[fold.time].null_count
    fresh = _on_time(fold, rows, clock)
    waits = pa.array(np.ones(len(fresh), np.bool_))
    arrived = fresh.append_column(WAITS, waits).append_column(DUE, pa.nulls(len(fresh), pa.int64()))
    every = pa.concat_tables([state, arrived.select(schema.names).cast(schema)]).combine_chunks()
    times, waiting = micros(every[fold.time]), every[WAITS].to_numpy()
    reached = BEGINNING if clock.watermark is None else min(clock.watermark * MICROSECONDS, END_OF_DAYS)
    ready = ~waiting | (times <= reached)
    sequenced = _sequence(fold, every.filter(pa.array(ready)))
    kept = fold.keep(sequenced) & ~sequenced.remembered
    output = fold.output(sequenced, kept)
    memory = _memory(fold, sequenced, kept, clock)
    left = every.filter(pa.array(~ready))
    after = pa.concat_tables([_due(left, -(-times[~ready] // MICROSECONDS)), memory])
    dropped = len(rows) - len(fresh)
    counts = {"in": len(rows), "dropped": dropped, "put_out": len(output)}
    counts |= losses(late=dropped - untimed, without_time=untimed)
    return Step(after, output, counts)


def waiting_in(state: pa.Table) -> int:
    return int(np.count_nonzero(state[WAITS].to_numpy()))


def micros(times: pa.ChunkedArray | pa.Array) -> Integers:
    found: Integers = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64()).to_numpy()
    return found


def _on_time(fold: InOrder, rows: pa.Table, clock: Clock) -> pa.Table:
    there = rows.filter(rows[fold.time].is_valid())
    if clock.late is None:
        return there
    return there.filter(pa.array(micros(there[fold.time]) > clock.late * MICROSECONDS))


def _sequence(fold: InOrder, rows: pa.Table) -> Sequenced:
    """Arrow keeps rows in the order in which they came: equal times stay in it."""
    codes = encode_keys(rows, fold.by).codes if len(rows) else np.zeros(0, np.int64)
    times, remembered = micros(rows[fold.time]), ~rows[WAITS].to_numpy()
    order = np.lexsort((times, ~remembered, codes))
    return Sequenced(rows.take(pa.array(order)), codes[order], times[order], remembered[order])


def _memory(fold: InOrder, sequenced: Sequenced, kept: Booleans, clock: Clock) -> pa.Table:
    """The last row of each key that was put out, now or before; forgotten when it can matter no more."""
    chosen = kept | sequenced.remembered
    places = np.flatnonzero(chosen)
    last = np.ones(len(places), np.bool_)
    last[:-1] = sequenced.codes[places][1:] != sequenced.codes[places][:-1]
    places = places[last]
    rows = sequenced.rows.take(pa.array(places))
    rows = rows.set_column(rows.schema.get_field_index(WAITS), WAITS, pa.array(np.zeros(len(rows), np.bool_)))
    if fold.remembers is None:
        return rows.set_column(rows.schema.get_field_index(DUE), DUE, pa.nulls(len(rows), pa.int64()))
    until = (sequenced.times[places] + fold.remembers) // MICROSECONDS + 1
    alive = until > (BEGINNING if clock.watermark is None else clock.watermark)
    return _due(rows.filter(pa.array(alive)), until[alive])


def _due(rows: pa.Table, due: Integers) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(DUE), DUE, pa.array(due, pa.int64()))


def plain(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    return rows.select(list(names)).combine_chunks()
