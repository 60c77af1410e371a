"""Session windows: records of one key no further apart than the gap, from the first to the gap behind the last.

    records    a   b           c                 gap of 5
    sessions  [a   b----)     [c----)
    then d    [a   b   d   c----)                a record between them makes one of two: two are taken back

Rules:
- Records exactly a gap apart are together, as in Spark, Flink and Kafka Streams.
- A row that is too old to open a session is none too old to join one that is still open.
- Rows and sessions are put together first. What they come to is looked at as a whole: if it ended so long ago that it
  takes no more rows, its rows are late, and its sessions stay as they were.
- A session that grows is another window: the old one is deleted, then the new one inserted. One that has changed and
  has not grown is told anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.pipelines.operators.changelog import AFTER, BEFORE, DELETE, INSERT
from tidelog.pipelines.operators.grouping import Booleans, Groups, Integers, Moments, encode_keys, in_order
from tidelog.pipelines.operators.state.fold import DUE, Clock, Step
from tidelog.pipelines.operators.windows.open_windows import open_windows
from tidelog.pipelines.operators.windows.output import HALF_OPEN, LateRows, Results, late_rows, result_rows
from tidelog.pipelines.operators.windows.panes import key_table
from tidelog.pipelines.operators.windows.spec import (
    BEGINNING,
    MICROSECONDS,
    Bounds,
    Columns,
    Spec,
    add,
    as_declared,
    bounds_of,
    columns_of,
    counted,
    integers,
    lift,
    reduce,
    take,
    timed,
)

FIRST = "_first"  # int64, microseconds: the first record of the session
LAST = "_last"
TOLD = "_told"  # bool: it has been put out as it is


class Merged(NamedTuple):
    """Old sessions and rows put together: `parts` says into which of the merged ones each of them went.

    Merged ones are in the order of keys and times. `over`: it takes no more rows. `grown`: it does, and has got some.
    """

    parts: Integers
    first: Integers
    last: Integers
    over: Booleans
    grown: Booleans


class Sessions(NamedTuple):
    """`key_rows` says where the key of each stands in the table of keys, `turns` into which merged one it went."""

    key_rows: Integers
    first: Integers
    last: Integers
    columns: Columns
    told: Booleans
    turns: Integers

    def take(self, places: Integers) -> Sessions:
        key_rows, first, last, turns = (each[places] for each in (self.key_rows, self.first, self.last, self.turns))
        return Sessions(key_rows, first, last, take(self.columns, places), self.told[places], turns)


@dataclass(frozen=True, slots=True)
class SessionFold:
    """`gap` is in microseconds."""

    spec: Spec
    gap: int

    name: ClassVar[str] = "session windows"
    version: ClassVar[int] = 1

    @property
    def state_schema(self) -> pa.Schema:
        own = [(FIRST, pa.int64()), (LAST, pa.int64()), (TOLD, pa.bool_()), (DUE, pa.int64())]
        return pa.schema([*self.spec.key_schema, *self.spec.state_fields, *(pa.field(*each) for each in own)])

    @property
    def output_schema(self) -> pa.Schema:
        return self.spec.output_schema

    def answer(self, state: pa.Table, clock: Clock) -> pa.Table:
        return open_windows(self, state, clock)

    def held(self, state: pa.Table) -> int:
        told = state[TOLD].combine_chunks().to_numpy(zero_copy_only=False)
        return 0 if self.spec.early else int(np.count_nonzero(~told.astype(np.bool_)))

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        bounds = bounds_of(clock, self.spec.allowed or 0)
        rows = as_declared(self.spec, rows)
        given = timed(self.spec, rows)
        there = given.only(rows, np.ones(len(given.places), np.bool_))
        keys = key_table(self.spec, state, there)
        codes = encode_keys(keys, self.spec.by).codes
        merged = self._merge(codes, state, given.times, bounds)
        old, grown = self._old(state, merged), self._grown(state, there, given.times, merged)
        output = result_rows(self.spec, keys, self._results(old, grown, merged, bounds))
        late = merged.over[merged.parts[len(state) :]]
        if self.spec.diverts:
            times = given.times[late]
            told = LateRows(given.places[late], times, times + self.gap)
            output = pa.concat_tables([output, late_rows(self.spec, rows, told, given.untimed, clock, HALF_OPEN)])
        counts = counted(self.spec, len(given.places), int(late.sum()), len(given.untimed))
        same = old.take(np.flatnonzero(~merged.grown[old.turns]))
        return Step(self._state(keys, [same, grown], bounds), output, counts)

    def _merge(self, codes: Integers, state: pa.Table, times: Integers, bounds: Bounds) -> Merged:
        first = np.concatenate((integers(state, FIRST), times))
        last = np.concatenate((integers(state, LAST), times))
        begin, end = in_order(Moments(codes, first), Moments(codes, last + self.gap))
        order = np.argsort(begin, kind="stable")
        until = np.maximum.accumulate(end[order])
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = begin[order][1:] > until[:-1]
        parts = np.empty(len(order), np.int64)
        parts[order] = np.cumsum(fresh) - 1
        latest = np.full(int(fresh.sum()), BEGINNING)
        np.maximum.at(latest, parts, last)
        over = latest + self.gap <= bounds.late
        grown = np.zeros(len(latest), np.bool_)
        grown[parts[len(state) :]] = True
        return Merged(parts, first[order][fresh], latest, over, grown & ~over)

    def _old(self, state: pa.Table, merged: Merged) -> Sessions:
        told = state[TOLD].combine_chunks().to_numpy(zero_copy_only=False).astype(np.bool_)
        rows, turns = np.arange(len(state), dtype=np.int64), merged.parts[: len(state)]
        columns = columns_of(self.spec, state)
        return Sessions(rows, integers(state, FIRST), integers(state, LAST), columns, told, turns)

    def _grown(self, state: pa.Table, rows: pa.Table, times: Integers, merged: Merged) -> Sessions:
        turns = np.flatnonzero(merged.grown)
        number = np.cumsum(merged.grown) - 1
        members = np.flatnonzero(merged.grown[merged.parts])
        ids = number[merged.parts[members]]
        whole = add(columns_of(self.spec, state), lift(self.spec, rows, times))
        columns = reduce(self.spec, take(whole, members), Groups(ids, len(turns)))
        key_rows = np.empty(len(turns), np.int64)
        key_rows[ids] = members
        told = np.zeros(len(turns), np.bool_)
        return Sessions(key_rows, merged.first[turns], merged.last[turns], columns, told, turns)

    def _results(self, old: Sessions, grown: Sessions, merged: Merged, bounds: Bounds) -> list[Results]:
        """An old session that has grown is no more: what was put out of it is taken back."""
        gone = merged.grown[old.turns]
        same = (merged.first[old.turns] == old.first) & (merged.last[old.turns] == old.last)
        again = np.zeros(len(merged.first), np.bool_)
        again[old.turns[gone & same & old.told]] = True
        due = self._due(grown, bounds)
        return [
            self._told(DELETE, old, gone & old.told & ~same),
            self._told(BEFORE, old, gone & old.told & same),
            self._told(INSERT, old, self._due(old, bounds) & ~gone & ~old.told),
            self._told(INSERT, grown, due & ~again[grown.turns]),
            self._told(AFTER, grown, due & again[grown.turns]),
        ]

    def _due(self, sessions: Sessions, bounds: Bounds) -> Booleans:
        return np.asarray(self.spec.early | (sessions.last + self.gap <= bounds.reached))

    def _told(self, op: str, sessions: Sessions, which: Booleans) -> Results:
        found = sessions.take(np.flatnonzero(which))
        ends = found.last + self.gap
        return Results(op, found.key_rows, found.first, ends, found.columns, found.turns)

    def _state(self, keys: pa.Table, parts: list[Sessions], bounds: Bounds) -> pa.Table:
        allowed, tables = self.spec.allowed or 0, []
        for each in parts:
            sessions = each.take(np.flatnonzero(each.last + self.gap + allowed > bounds.reached))
            told = sessions.told | self._due(sessions, bounds)
            due = sessions.last + self.gap + np.where(told, allowed, 0)
            own = [sessions.first, sessions.last, told, -(-due // MICROSECONDS)]
            key_columns = keys.take(pa.array(sessions.key_rows)).columns
            arrays = [*key_columns, *sessions.columns, *map(pa.array, own)]
            tables.append(pa.Table.from_arrays(arrays, schema=self.state_schema))
        return pa.concat_tables(tables)
