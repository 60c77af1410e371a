"""Early results held back: of a window that is open, no more than one in each interval of event time.

    watermark   |------------|------------|------------      intervals begin at whole multiples of their length
    results       1   2   3     4                 end 5      what the windows have to say
    put out                  3            4       5          3; then -3 +4; at its end at once -4 +5

Rules:
- It is the watermark that comes into the next interval: no other clock wakes an operator in a query with event time.
- Held back are not the changes but what they come to: the result that was put out, to be taken back, and the one that
  holds now. One that came and went in between is never told.
- The result at a window's end, and corrections behind it, are held back no longer. Sessions replace each other: so as
  soon as one thing is told of a key, everything is (`together`).

    state   the windows' own rows, and for each change that is held back one with `_held`: `_op` and the result;
            due when the next interval begins, or at the end of its window if that is earlier
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipelines.operators.changelog import ADDITIONS, AFTER, BEFORE, DELETE, INSERT, OP, of_changes
from tidelog.pipelines.operators.grouping import Booleans, Integers, encode_keys, pairs
from tidelog.pipelines.operators.state.fold import DUE, HASH, Clock, Fold, Step
from tidelog.pipelines.operators.windows.open_windows import open_windows
from tidelog.pipelines.operators.windows.panes import key_table
from tidelog.pipelines.operators.windows.spec import (
    END,
    LATE,
    MICROSECONDS,
    START,
    TIME,
    Spec,
    as_declared,
    bounds_of,
    integers,
)

HELD = "_held"
NO_WATERMARK = 1  # ms: when a change is due that came before there was a watermark: with the first one


@dataclass(frozen=True, slots=True)
class Throttled:
    """`windows` puts out a changelog early; `interval` is in ms."""

    windows: Fold
    spec: Spec
    interval: int
    together: bool = False

    @property
    def name(self) -> str:
        return f"{self.windows.name}, held back"

    @property
    def version(self) -> int:
        return self.windows.version

    @property
    def state_schema(self) -> pa.Schema:
        return self.windows.state_schema.append(pa.field(HELD, pa.struct(self._change_fields)))

    @property
    def output_schema(self) -> pa.Schema:
        return self.windows.output_schema

    @property
    def _change_fields(self) -> list[pa.Field]:
        return [pa.field(OP, pa.string()), *(field for field in self.spec.plain_schema if field.name != LATE)]

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        is_held = state[HELD].is_valid()
        own = state.filter(pc.invert(is_held)).select(self.windows.state_schema.names)
        done = self.windows.step(own, rows, clock)
        told, late = self._told(done.output)
        known = key_table(self.spec, own, as_declared(self.spec, rows))
        changes = pa.concat_tables([self._held(state.filter(is_held)), self._fresh(told, known, clock)])
        net = net_changes(changes.combine_chunks(), self.spec.by, self.together)
        due = self._due(net, clock)
        output = pa.concat_tables([self._output(net, due), late])
        return Step(self._state(done.state, net, ~due), output, done.counts)

    def answer(self, state: pa.Table, clock: Clock) -> pa.Table:
        own = state.filter(state[HELD].is_null()).select(self.windows.state_schema.names)
        return open_windows(self.windows, own, clock)

    def _told(self, output: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Results, and rows that came too late, which nobody holds back."""
        if not self.spec.diverts:
            return output, output.slice(0, 0)
        is_late = output[LATE].is_valid()
        return output.filter(pc.invert(is_late)), output.filter(is_late)

    def _held(self, state: pa.Table) -> pa.Table:
        held = state[HELD].combine_chunks()
        fields = self._change_fields
        columns = [held.field(place) for place in range(len(fields))]
        due = integers(state, DUE)
        # Where the end of a window was earlier than the interval's: back to that one, as the window may be gone by now.
        due = np.where(due == NO_WATERMARK, due, -(-due // self.interval) * self.interval)
        head = [state[HASH].combine_chunks(), pa.array(due, pa.int64())]
        return pa.Table.from_arrays([*head, *columns], schema=pa.schema([*HEAD, *fields]))

    def _fresh(self, told: pa.Table, known: pa.Table, clock: Clock) -> pa.Table:
        number = NO_WATERMARK if clock.watermark is None else (clock.watermark // self.interval + 1) * self.interval
        due = pa.array(np.full(len(told), number), pa.int64())
        columns = [told[field.name].combine_chunks() for field in self._change_fields]
        hashes = pa.array(hashes_of(known, told, self.spec.by), pa.int64())
        return pa.Table.from_arrays([hashes, due, *columns], schema=pa.schema([*HEAD, *self._change_fields]))

    def _due(self, net: Net, clock: Clock) -> Booleans:
        if clock.watermark is None:
            return np.zeros(len(net.rows), np.bool_)
        reached = bounds_of(clock, 0).reached
        over = net.rows[TIME].cast(pa.int64()).to_numpy() < reached
        due = over | (integers(net.rows, DUE) <= clock.watermark)
        if self.together:
            told = np.zeros(int(net.keys.max(initial=-1)) + 1, np.bool_)
            told[net.keys[due]] = True
            due = told[net.keys]
        return np.asarray(due)

    def _output(self, net: Net, due: Booleans) -> pa.Table:
        gone, come = (net.rows.filter(pa.array(due & side)) for side in (~net.adds, net.adds))
        return of_changes(
            self._results(gone), self._results(come), gone[OP].combine_chunks(), come[OP].combine_chunks()
        )

    def _results(self, changes: pa.Table) -> pa.Table:
        late = pa.nulls(len(changes), self.spec.late_type)
        schema = self.spec.plain_schema
        columns = [late if field.name == LATE else changes[field.name] for field in schema]
        return pa.Table.from_arrays(columns, schema=schema)

    def _state(self, own: pa.Table, net: Net, held: Booleans) -> pa.Table:
        schema = self.state_schema
        kept = net.rows.filter(pa.array(held)).combine_chunks()
        fields = self._change_fields
        changes = pa.StructArray.from_arrays([kept[field.name].combine_chunks() for field in fields], fields=fields)
        known = {HASH: kept[HASH], DUE: _until_its_end(kept), HELD: changes}
        columns = [known.get(field.name, pa.nulls(len(kept), field.type)) for field in schema]
        none = own.append_column(schema.field(HELD), pa.nulls(len(own), schema.field(HELD).type))
        return pa.concat_tables([none.select(schema.names), pa.Table.from_arrays(columns, schema=schema)])


def _until_its_end(changes: pa.Table) -> pa.Array:
    """A window that may still be corrected would not be looked at when it ends, and its result is to be told then."""
    due, ends = integers(changes, DUE), (changes[TIME].cast(pa.int64()).to_numpy() + 1) // MICROSECONDS
    return pa.array(np.where(due == NO_WATERMARK, due, np.minimum(due, ends)), pa.int64())


HEAD = [pa.field(HASH, pa.int64()), pa.field(DUE, pa.int64())]


class Net(NamedTuple):
    """Changes with `_hash` and `_due`, at most one that takes back and one that adds for each window of a key."""

    rows: pa.Table
    adds: Booleans
    keys: Integers


def net_changes(changes: pa.Table, by: tuple[str, ...], together: bool) -> Net:
    """What changes come to: of each window what goes, if the first one takes something back, and what comes.

    It is due when the first of them was; `together`, when the first of its key was, also if that one is no more: a
    session that grows again and again is told of all the same.
    """
    keys = encode_keys(changes, by).codes
    starts, ends = (changes[name].cast(pa.int64()).to_numpy() for name in (START, END))
    windows = pairs(pairs(keys, starts).codes, ends)
    last = np.zeros(len(windows.first), np.int64)
    last[windows.codes] = np.arange(len(changes))
    adds = np.asarray(pc.is_in(changes[OP], value_set=pa.array(ADDITIONS)))
    goes, comes = ~adds[windows.first], adds[last]
    places = np.concatenate([windows.first[goes], last[comes]])
    ops = np.concatenate([np.where(comes, BEFORE, DELETE)[goes], np.where(goes, AFTER, INSERT)[comes]])
    whose = keys if together else windows.codes
    earliest = np.full(int(whose.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(earliest, whose, integers(changes, DUE))
    due = pa.array(earliest[whose[places]])
    rows = changes.take(pa.array(places)).set_column(2, OP, pa.array(ops, pa.string())).set_column(1, DUE, due)
    return Net(rows.cast(changes.schema), np.arange(len(places)) >= int(goes.sum()), keys[places])


def hashes_of(known: pa.Table, rows: pa.Table, by: tuple[str, ...]) -> Integers:
    """The hashes of the rows' keys, all of which are among the known ones: it is Spark that makes hashes."""
    if not len(rows):
        return np.zeros(0, np.int64)
    keys = pa.concat_tables([known.select(by), rows.select(by)])
    same = pa.array(np.zeros(len(known) + len(rows), np.int64))
    codes = encode_keys(keys.append_column(HASH, same), by).codes if by else same.to_numpy()
    hashes = np.zeros(int(codes.max()) + 1, np.int64)
    hashes[codes[: len(known)]] = integers(known, HASH)
    return hashes[codes[len(known) :]]
