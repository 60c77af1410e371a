"""Rows by key as they come, without those that are behind a later one of their key: the fold of outputs with `order=`.

Rules:
- Of each key and micro-batch at most one row goes on, as it is: the one with the largest ORDER, if no larger one has
  come before. Of equal ones the one that came last goes on; a row without an ORDER is before all that have one.
- A column of any type that has an order will do. Not a number is the largest, as Spark has it.
- What is kept of a key is the ORDER of its last row, and none of its values: new columns need no other state.
- That of a row that ends its key (`deleted`) is kept for `deletes_kept`, as `deletions.py` has it.
- A row without a key is none.

    state   the key's columns
            _order        of the last row, with the type that it has
            _gone_since   null for a row; for a deletion, the time in ms at which it was taken
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipelines.operators.extreme_by import ranks
from tidelog.pipelines.operators.joins.deletions import DAY, GONE_SINCE, forgotten, gone_since
from tidelog.pipelines.operators.joins.matching import Mask, key_codes
from tidelog.pipelines.operators.joins.places import FIRST, largest
from tidelog.pipelines.operators.joins.sides import ORDER
from tidelog.pipelines.operators.state.fold import DUE, HASH, Clock, Step
from tidelog.pipelines.operators.state.packing import nullable_schema


@dataclass(frozen=True, slots=True)
class Newest:
    rows: pa.Schema
    by: tuple[str, ...]
    order: str
    deleted: str | None = None  # a column that is true for a row that ends its key
    deletes_kept: int = DAY
    name: str = "order by key"
    version: int = 1

    @property
    def state_schema(self) -> pa.Schema:
        keys = [pa.field(name, self.rows.field(name).type) for name in self.by]
        order = pa.field(ORDER, self.rows.field(self.order).type)
        ends = [pa.field(GONE_SINCE, pa.int64()), pa.field(DUE, pa.int64())]
        return pa.schema([pa.field(HASH, pa.int64()), *keys, order, *ends])

    @property
    def output_schema(self) -> pa.Schema:
        return nullable_schema(self.rows)

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        both = pa.concat_tables([state, self._as_state(rows, clock)]).combine_chunks()
        (codes,) = key_codes([both], self.by)
        last = largest(codes, pc.fill_null(ranks(both[ORDER].combine_chunks()), FIRST).to_numpy())
        kept = both.take(pa.array(last))
        kept = kept.filter(pa.array(~self.forgotten(kept, clock)))
        newer = np.sort(last[last >= len(state)]) - len(state)
        output = rows.select(self.rows.names).cast(self.output_schema).take(pa.array(newer))
        behind = int(np.count_nonzero(codes[len(state) :] >= 0)) - len(newer)
        return Step(kept, output, {"in": len(rows), "replaced": behind} if len(rows) else {})

    def forgotten(self, state: pa.Table, clock: Clock) -> Mask:
        """Deletions that are needed no more."""
        return forgotten(state, clock, self.deletes_kept)

    def _as_state(self, rows: pa.Table, clock: Clock) -> pa.Table:
        gone = pa.array(np.zeros(len(rows), bool)) if self.deleted is None else rows[self.deleted]
        never = pa.nulls(len(rows), pa.int64())
        own = [rows[name] for name in (HASH, *self.by, self.order)]
        columns = zip(self.state_schema.names, [*own, gone_since(gone, clock), never], strict=True)
        return pa.table(dict(columns)).cast(self.state_schema)
