"""A stream with a table as it is when each row of the stream comes: load, then serve. The other fold of `enrich`.

Rules:
- The table's rows of a micro-batch are taken first; then each row of the stream meets what its key has now, at once.
- With `load_until`, rows of the stream wait until the watermark has reached it: until then the table is being loaded.
- The answer depends on what came when: the same input gives another one in a replay. Where that matters, `as_of.py`.
- What a key has now is its last row: by places (`places.py`) or by ORDER, where there is one, else the one that came
  last. With an order, a row that comes behind a later one of its key is ignored, and a deletion is remembered for
  `deletes_kept`, as `deletions.py` has it.
- A row of the stream without a key meets nothing; a row of the table without one is none.
- In a batch the table is whole before the stream begins.

    state   _side 0   a row that waits for the table to be loaded; due at `load_until`
            _side 1   what a key has now
            _order, _recorded, _partition, _gone_since   of what a key has, as `upserts.py` has them. Version 1 had none
                      of them, and is still that of tables without an order
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipelines.operators.joins import places
from tidelog.pipelines.operators.joins.as_of import ENRICHED
from tidelog.pipelines.operators.joins.deletions import DAY, GONE_SINCE, forgotten, gone_since
from tidelog.pipelines.operators.joins.matching import NO_KEY, NO_ROW, Mask, Numbers, in_order, key_codes, taken
from tidelog.pipelines.operators.joins.places import FIRST, RECORDED
from tidelog.pipelines.operators.joins.sides import GONE, LEFT, ORDER, Columns, added, of_table
from tidelog.pipelines.operators.state.fold import DUE, HASH, SIDE, Clock, Step


@dataclass(frozen=True, slots=True)
class Latest:
    columns: Columns
    load_until: int | None  # ms of event time
    on: tuple[tuple[str, str], ...] = ()  # for who goes on with the state: it has the names of the left alone
    order: str | None = None  # the column that ORDER is made of; one that counts within a micro-batch alone is none
    order_in: str | None = None  # the unit of ORDER
    across: tuple[str, ...] = ()  # of a place: the columns of the time and of the partition
    deletes_kept: int = DAY
    name: str = "enrich with the latest"

    @property
    def version(self) -> int:
        return 2 if self._is_ordered else 1

    @property
    def _is_ordered(self) -> bool:
        return self.order is not None or bool(self.across)

    def upgrade(self, state: pa.Table, version: int) -> pa.Table:
        """What was kept without an order is before all that have one."""
        for field in self._order:
            state = state.append_column(field.name, pa.nulls(len(state), pa.int64()))
        return state

    @property
    def _order(self) -> list[pa.Field]:
        if not self._is_ordered:
            return []
        ends = [pa.field(name, pa.int64()) for name in (ORDER, GONE_SINCE)]
        return [*ends, *(places.FIELDS if self.across else ())]

    @property
    def state_schema(self) -> pa.Schema:
        head = pa.schema([(HASH, pa.int64()), (SIDE, pa.int8()), (GONE, pa.bool_())])
        return pa.schema([*head, *self._order, *self.columns.all, pa.field(DUE, pa.int64())])

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema([*ENRICHED, *self.columns.all])

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        held = self.state_schema.remove(len(self.state_schema) - 1)
        all_rows = added(state, self._as_state(rows, clock), held)
        is_left = all_rows[SIDE].to_numpy() == LEFT
        (codes,) = key_codes([all_rows], self.columns.keys.names)
        all_rows, last = self._last(all_rows, np.where(is_left, NO_KEY, codes), int(codes.max(initial=NO_KEY)) + 1)
        gone = np.asarray(pc.fill_null(all_rows[GONE], False))
        there = np.where((last != NO_ROW) & gone[last], NO_ROW, last) if len(gone) else last
        kept = last if self._is_ordered else there
        lefts = np.flatnonzero(is_left)
        if not self._is_loaded(clock):
            return Step(self._state(all_rows, lefts, kept, clock), self.output_schema.empty_table())
        rights = np.where(codes[lefts] == NO_KEY, NO_ROW, there[codes[lefts]] if len(there) else NO_ROW)
        return Step(self._state(all_rows, lefts[:0], kept, clock), self._joined(all_rows, lefts, rights))

    def forgotten(self, state: pa.Table, clock: Clock) -> Mask:
        """Deletions that are needed no more."""
        return forgotten(state, clock, self.deletes_kept) if self._is_ordered else np.zeros(len(state), bool)

    def _as_state(self, rows: pa.Table, clock: Clock) -> pa.Table:
        if not self._is_ordered:
            return in_order(rows, ORDER)
        return rows.append_column(GONE_SINCE, gone_since(rows[GONE], clock))

    def _last(self, rows: pa.Table, codes: Numbers, count: int) -> tuple[pa.Table, Numbers]:
        """For each code the place of its last version, or NO_ROW; with places, rows get the time that they count as."""
        last = np.full(count, NO_ROW, np.int64)
        if self.across:
            found = places.last_by_place(codes, places.places_in(rows, ORDER))
            recorded = places.places_in(rows, ORDER).times.copy()
            recorded[found.rows[found.rows != NO_ROW]] = found.times[found.rows != NO_ROW]
            told = pa.array(recorded, mask=recorded == FIRST)
            rows = rows.set_column(rows.schema.get_field_index(RECORDED), RECORDED, told)
            last[: len(found.rows)] = found.rows
        elif self.order is not None:
            by_number = places.largest(codes, pc.fill_null(rows[ORDER], FIRST).to_numpy())
            last[: len(by_number)] = by_number
        else:
            versions = np.flatnonzero(codes != NO_KEY)
            last[codes[versions]] = versions
        return rows, last

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

    def _state(self, rows: pa.Table, waiting: Numbers, last: Numbers, clock: Clock) -> pa.Table:
        kept = last[last != NO_ROW]
        if self._is_ordered:
            kept = kept[~self.forgotten(rows.take(pa.array(kept)), clock)]
        at = np.concatenate([waiting, kept])
        never = np.arange(len(at)) >= len(waiting)
        due = pa.array(np.full(len(at), self.load_until or 0), pa.int64(), mask=never)
        return rows.take(pa.array(at)).append_column(DUE, due)
