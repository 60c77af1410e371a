"""Windows that are put out for every hop, whether anything is in them or not, for keys that are declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipelines.operators.grouping import encode_keys, pairs
from tidelog.pipelines.operators.state.fold import Clock, Step
from tidelog.pipelines.operators.windows.anchors import SEED, UNTIL, Anchors, anchor_rows, anchored, gather_anchors
from tidelog.pipelines.operators.windows.grid import Grid
from tidelog.pipelines.operators.windows.grid_fold import Hops, diverted, panes_after, put_out, take_in, touched
from tidelog.pipelines.operators.windows.open_windows import open_windows
from tidelog.pipelines.operators.windows.panes import SEEN, Panes, gather, key_table, state_schema
from tidelog.pipelines.operators.windows.spec import Bounds, Spec, as_declared, bounds_of, integers, timed


@dataclass(frozen=True, slots=True)
class AlwaysFold:
    """As `GridFold`, but rows have a column `SEED`, and some of them are seeds (`anchors.py`)."""

    spec: Spec
    grid: Grid

    name: ClassVar[str] = "windows for every hop"
    version: ClassVar[int] = 1

    @property
    def state_schema(self) -> pa.Schema:
        return state_schema(self.spec).append(pa.field(UNTIL, pa.int64()))

    @property
    def output_schema(self) -> pa.Schema:
        return self.spec.output_schema

    def answer(self, state: pa.Table, clock: Clock) -> pa.Table:
        return open_windows(self, state, clock)

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        bounds = bounds_of(clock, self.spec.allowed or 0)
        is_anchor = state[UNTIL].is_valid()
        anchors_before, panes_before = state.filter(is_anchor), state.filter(pc.invert(is_anchor))
        seeds = as_declared(self.spec, rows.filter(rows[SEED]))
        taken = take_in(self.spec, self.grid, as_declared(self.spec, rows.filter(pc.invert(rows[SEED]))), bounds)
        keys = key_table(self.spec, panes_before, taken.rows.table, anchors_before, seeds)
        coded = encode_keys(keys, self.spec.by)
        panes = gather(self.spec, panes_before, taken.rows, coded, keys)
        codes = coded.codes[len(panes_before) + len(taken.rows.table) :]
        panes.seen[codes[: len(anchors_before)]] = integers(anchors_before, SEEN)
        times = timed(self.spec, seeds).times
        anchors = gather_anchors(self.grid, anchors_before, times, codes, len(coded.first))
        output = put_out(self.spec, self.grid, panes, self._hops(panes, anchors, bounds), None, bounds)
        later = diverted(self.spec, self.grid, taken, clock)
        after = self._state(panes, anchors, bounds)
        return Step(after, pa.concat_tables([output, later]), taken.counts)

    def _hops(self, panes: Panes, anchors: Anchors, bounds: Bounds) -> Hops:
        codes, numbers, _ = touched(self.spec, self.grid, panes, bounds)
        more_codes, more_numbers = anchored(self.grid, anchors, panes.seen, bounds)
        codes, numbers = np.concatenate((codes, more_codes)), np.concatenate((numbers, more_numbers))
        distinct = pairs(codes, numbers).first
        codes, numbers = codes[distinct], numbers[distinct]
        lasted = numbers >= self.grid.first(anchors.before[codes])
        return Hops(codes, numbers, lasted, numbers >= self.grid.first(anchors.begin[codes]))

    def _state(self, panes: Panes, anchors: Anchors, bounds: Bounds) -> pa.Table:
        there = panes_after(self.spec, self.grid, panes, bounds)
        there = there.append_column(self.state_schema.field(UNTIL), pa.nulls(len(there), pa.int64()))
        rows = anchor_rows(self.spec, self.grid, anchors, panes, bounds)
        return pa.concat_tables([there, pa.Table.from_arrays(rows, schema=self.state_schema)])
