"""Tumbling and hopping windows as a fold: rows into panes, panes into windows, windows put out by one rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from tidelog.pipelines.operators.grouping import encode_keys, expand, pairs
from tidelog.pipelines.operators.state.fold import Clock, Step
from tidelog.pipelines.operators.windows.firing import Windows, fire
from tidelog.pipelines.operators.windows.grid import Grid, candidates, late_windows, lateness, needed
from tidelog.pipelines.operators.windows.output import HALF_OPEN, late_rows, result_rows
from tidelog.pipelines.operators.windows.panes import Panes, Rows, Within, gather, kept, key_table, state_schema, within
from tidelog.pipelines.operators.windows.spec import Bounds, Spec, as_declared, bounds_of, counted, timed


@dataclass(frozen=True, slots=True)
class GridFold:
    spec: Spec
    grid: Grid

    name: ClassVar[str] = "windows on a grid"
    version: ClassVar[int] = 1

    @property
    def state_schema(self) -> pa.Schema:
        return state_schema(self.spec)

    @property
    def output_schema(self) -> pa.Schema:
        return self.spec.output_schema

    def upgrade(self, state: pa.Table, version: int) -> pa.Table:
        raise AssertionError(f"version {version} has never been written")

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        bounds = bounds_of(clock, self.spec.allowed or 0)
        rows = as_declared(self.spec, rows)
        given = timed(self.spec, rows)
        starts = self.grid.panes(given.times)
        found = lateness(self.grid, starts, bounds)
        taken = found.late < found.windows
        kept_rows = Rows(given.only(rows, taken), given.times[taken], starts[taken])
        keys = key_table(self.spec, state, kept_rows.table)
        panes = gather(self.spec, state, kept_rows, encode_keys(keys, self.spec.by), keys)
        output = self._results(panes, bounds)
        if self.spec.diverts:
            late = late_windows(self.grid, given.places, starts, found.late)
            output = pa.concat_tables([output, late_rows(self.spec, rows, late, given.untimed, clock, HALF_OPEN)])
        counts = counted(self.spec, int(found.windows.sum()), int(found.late.sum()), len(given.untimed))
        return Step(self._state(panes, bounds), output, counts)

    def _results(self, panes: Panes, bounds: Bounds) -> pa.Table:
        begin, number = candidates(self.grid, panes, self.spec.early, bounds)
        owners, numbers = expand(begin, number)
        if not len(owners):
            return self.output_schema.empty_table()
        codes = panes.codes[owners]
        if self.grid.tumbles:
            inside = Within(np.arange(len(owners)), owners)
        else:
            distinct = pairs(codes, numbers).first
            codes, numbers = codes[distinct], numbers[distinct]
            inside = within(panes, codes, self.grid.starts(numbers), self.grid.ends(numbers))
        yes, no = np.ones(len(codes), np.bool_), np.zeros(len(codes), np.bool_)
        windows = Windows(codes, self.grid.starts(numbers), self.grid.ends(numbers), yes, no, no)
        return result_rows(self.spec, panes.keys, fire(self.spec, panes, windows, inside, bounds))

    def _state(self, panes: Panes, bounds: Bounds) -> pa.Table:
        keep, due = needed(self.grid, panes.starts, self.spec.early, self.spec.allowed or 0, bounds)
        return kept(self.spec, panes, keep, bounds.reached, due)
