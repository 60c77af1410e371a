"""A stream with a table as it is when each row of the stream comes: load, then serve. The other fold of `enrich`.

Rules:
- The table's rows of a micro-batch are taken first; then each row of the stream meets what its key has now, at once.
- With `load_until`, rows of the stream wait until the watermark has reached it: until then the table is being loaded.
- The answer depends on what came when: the same input gives another one in a replay. Where that matters, `as_of.py`.
- A row of the stream without a key meets nothing; a row of the table without one is none.
- In a batch the table is whole before the stream begins.

    state   _side 0   a row that waits for the table to be loaded; due at `load_until`
            _side 1   what a key has now
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipelines.operators.joins.as_of import ENRICHED
from tidelog.pipelines.operators.joins.matching import NO_KEY, NO_ROW, Numbers, in_order, key_codes, taken
from tidelog.pipelines.operators.joins.sides import GONE, LEFT, ORDER, Columns, added, of_table
from tidelog.pipelines.operators.state.fold import DUE, HASH, SIDE, Clock, Step


@dataclass(frozen=True, slots=True)
class Latest:
    columns: Columns
    load_until: int | None  # ms of event time
    on: tuple[tuple[str, str], ...] = ()  # for who goes on with the state: it has the names of the left alone
    name: str = "enrich with the latest"
    version: int = 1

    @property
    def state_schema(self) -> pa.Schema:
        head = pa.schema([(HASH, pa.int64()), (SIDE, pa.int8()), (GONE, pa.bool_())])
        return pa.schema([*head, *self.columns.all, pa.field(DUE, pa.int64())])

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema([*ENRICHED, *self.columns.all])

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        held = self.state_schema.remove(len(self.state_schema) - 1)
        all_rows = added(state, in_order(rows, ORDER), held)
        is_left = all_rows[SIDE].to_numpy() == LEFT
        (codes,) = key_codes([all_rows], self.columns.keys.names)
        last = _last_versions(codes, np.flatnonzero(~is_left & (codes != NO_KEY)))
        gone = np.asarray(pc.fill_null(all_rows[GONE], False))
        last[(last != NO_ROW) & gone[last]] = NO_ROW
        lefts = np.flatnonzero(is_left)
        if not self._is_loaded(clock):
            return Step(self._state(all_rows, lefts, last), self.output_schema.empty_table())
        rights = np.where(codes[lefts] == NO_KEY, NO_ROW, last[codes[lefts]] if len(last) else NO_ROW)
        return Step(self._state(all_rows, lefts[:0], last), self._joined(all_rows, lefts, rights))

    def answer(self, state: pa.Table, clock: Clock) -> pa.Table:
        """What the key has now."""
        return of_table(self.columns, state)

    def _is_loaded(self, clock: Clock) -> bool:
        return self.load_until is None or (clock.watermark is not None and clock.watermark >= self.load_until)

    def _joined(self, rows: pa.Table, lefts: Numbers, rights: Numbers) -> pa.Table:
        head = [pa.array(np.zeros(len(lefts), bool)), pa.array(rights != NO_ROW)]
        own = rows.select([*self.columns.keys.names, *self.columns.left.names]).take(pa.array(lefts))
        other = taken(rows.select(self.columns.right.names), rights)
        return pa.table([*head, *own.columns, *other.columns], schema=self.output_schema)

    def _state(self, rows: pa.Table, waiting: Numbers, last: Numbers) -> pa.Table:
        places = np.concatenate([waiting, last[last != NO_ROW]])
        never = np.arange(len(places)) >= len(waiting)
        due = pa.array(np.full(len(places), self.load_until or 0), pa.int64(), mask=never)
        return rows.take(pa.array(places)).append_column(DUE, due)


def _last_versions(codes: Numbers, versions: Numbers) -> Numbers:
    """For each code the place of its last version, or NO_ROW."""
    last = np.full(int(codes.max(initial=NO_KEY)) + 1, NO_ROW, np.int64)
    last[codes[versions]] = versions
    return last
