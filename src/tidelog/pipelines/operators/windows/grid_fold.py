"""Tumbling and hopping windows as a fold: rows into panes, panes into windows, windows put out by one rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.pipelines.operators.grouping import Booleans, Integers, encode_keys, expand, pairs
from tidelog.pipelines.operators.state.fold import Clock, Step
from tidelog.pipelines.operators.windows.firing import Windows, fire, fire_in_slices
from tidelog.pipelines.operators.windows.grid import Grid, Lateness, candidates, late_windows, lateness, needed
from tidelog.pipelines.operators.windows.open_windows import open_windows
from tidelog.pipelines.operators.windows.output import HALF_OPEN, late_rows, result_rows
from tidelog.pipelines.operators.windows.panes import (
    PANE,
    SEEN,
    Panes,
    Rows,
    Within,
    gather,
    kept,
    key_table,
    state_schema,
)
from tidelog.pipelines.operators.windows.spec import (
    Bounds,
    Spec,
    Timed,
    as_declared,
    bounds_of,
    counted,
    integers,
    timed,
)


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

    def answer(self, state: pa.Table, clock: Clock) -> pa.Table:
        return open_windows(self, state, clock)

    def held(self, state: pa.Table) -> int:
        ends = self.grid.ends(self.grid.last(integers(state, PANE)))
        return 0 if self.spec.early else int(np.count_nonzero(ends > integers(state, SEEN)))

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        bounds = bounds_of(clock, self.spec.allowed or 0)
        taken = take_in(self.spec, self.grid, as_declared(self.spec, rows), bounds)
        keys = key_table(self.spec, state, taken.rows.table)
        panes = gather(self.spec, state, taken.rows, encode_keys(keys, self.spec.by), keys)
        codes, numbers, own = touched(self.spec, self.grid, panes, bounds)
        inside = own if self.grid.tumbles else None
        no = np.zeros(len(codes), np.bool_)
        output = put_out(self.spec, self.grid, panes, Hops(codes, numbers, no, no), inside, bounds)
        later = diverted(self.spec, self.grid, taken, clock)
        return Step(panes_after(self.spec, self.grid, panes, bounds), pa.concat_tables([output, later]), taken.counts)


class Taken(NamedTuple):
    """Rows as they were given, which of them are taken, and what became of all."""

    given: pa.Table
    timed: Timed
    panes: Integers
    lateness: Lateness
    rows: Rows
    counts: dict[str, int]


def take_in(spec: Spec, grid: Grid, rows: pa.Table, bounds: Bounds) -> Taken:
    """A row is taken if there is a window that is not over for it."""
    given = timed(spec, rows)
    panes = grid.panes(given.times)
    found = lateness(grid, panes, bounds)
    open_ = found.late < found.windows
    counts = counted(spec, int(found.windows.sum()), int(found.late.sum()), len(given.untimed))
    return Taken(rows, given, panes, found, Rows(given.only(rows, open_), given.times[open_], panes[open_]), counts)


def diverted(spec: Spec, grid: Grid, taken: Taken, clock: Clock) -> pa.Table:
    if not spec.diverts:
        return spec.output_schema.empty_table()
    late = late_windows(grid, taken.timed.places, taken.panes, taken.lateness.late)
    return late_rows(spec, taken.given, late, taken.timed.untimed, clock, HALF_OPEN)


class Hops(NamedTuple):
    """Windows by code and number; `lasted` and `lasting`: there without a row, before this step and now."""

    codes: Integers
    numbers: Integers
    lasted: Booleans
    lasting: Booleans


def touched(spec: Spec, grid: Grid, panes: Panes, bounds: Bounds) -> tuple[Integers, Integers, Within]:
    """Codes and numbers of windows that panes may cause to be put out, each once; and which panes did so."""
    owners, numbers = expand(*candidates(grid, panes, spec.early, bounds))
    codes = panes.codes[owners]
    if grid.tumbles:
        return codes, numbers, Within(np.arange(len(owners)), owners)
    found = pairs(codes, numbers)
    return codes[found.first], numbers[found.first], Within(found.codes, owners)


def put_out(spec: Spec, grid: Grid, panes: Panes, hops: Hops, inside: Within | None, bounds: Bounds) -> pa.Table:
    """`inside` is known where each window is one pane."""
    if not len(hops.codes):
        return spec.output_schema.empty_table()
    starts, ends = grid.starts(hops.numbers), grid.ends(hops.numbers)
    stood = np.ones(len(hops.codes), np.bool_)
    windows = Windows(hops.codes, starts, ends, stood, hops.lasted, hops.lasting)
    if inside is None:
        return result_rows(spec, panes.keys, fire_in_slices(spec, panes, windows, bounds))
    return result_rows(spec, panes.keys, fire(spec, panes, windows, inside, bounds))


def panes_after(spec: Spec, grid: Grid, panes: Panes, bounds: Bounds) -> pa.Table:
    keep, due = needed(grid, panes.starts, spec.early, spec.allowed or 0, bounds)
    return kept(spec, panes, keep, bounds.reached, due)
