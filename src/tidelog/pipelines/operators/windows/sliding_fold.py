"""Sliding windows: what each record closes and opens. Both ends belong to the window, as in Kafka Streams.

    records      t1      t2              of one key; d is the size
    windows  [t1-d,t1]                   one that ends with each record: it has entered
                   [t1+1,t1+1+d]         one that begins behind it: it has left; there only if it holds another record
                 [t2-d,t2]

Rules:
- Times are whole milliseconds here, so that "behind" means something; windows are equal when they begin together.
- A window does not begin before 1970 and end behind it: records with 0 <= t < d share the window [0, d].
- A window is over when the watermark is behind its last instant. A row is counted by the window that ends with it. One
  that is late for it still counts in windows that are open; one that could be in none of them is gone.
- Inside, a window [a, b] is [a, b + 1 ms) like any other, and `window_time` is the last microsecond of that. At b the
  watermark may already have been when the window was open, and Spark ends a query whose results are not beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from tidelog.pipelines.operators.grouping import Integers, encode_keys, pairs
from tidelog.pipelines.operators.state.fold import Clock, Step
from tidelog.pipelines.operators.windows.firing import Windows, fire_in_slices
from tidelog.pipelines.operators.windows.open_windows import open_windows
from tidelog.pipelines.operators.windows.output import LateRows, Span, late_rows, result_rows
from tidelog.pipelines.operators.windows.panes import Panes, Rows, gather, kept, key_table, state_schema
from tidelog.pipelines.operators.windows.spec import MICROSECONDS, Bounds, Spec, as_declared, bounds_of, counted, timed

INCLUSIVE = Span(shown=-MICROSECONDS)


@dataclass(frozen=True, slots=True)
class SlidingFold:
    """`size` is in microseconds; a window holds records that are no further apart than that."""

    spec: Spec
    size: int

    name: ClassVar[str] = "sliding windows"
    version: ClassVar[int] = 1

    @property
    def state_schema(self) -> pa.Schema:
        return state_schema(self.spec)

    @property
    def output_schema(self) -> pa.Schema:
        return self.spec.output_schema

    def answer(self, state: pa.Table, clock: Clock) -> pa.Table:
        return open_windows(self, state, clock)

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        bounds = bounds_of(clock, self.spec.allowed or 0)
        rows = as_declared(self.spec, rows)
        given = timed(self.spec, rows)
        panes_of_rows = given.times - np.mod(given.times, MICROSECONDS)
        taken = panes_of_rows + self.length > bounds.late
        kept_rows = Rows(given.only(rows, taken), given.times[taken], panes_of_rows[taken])
        keys = key_table(self.spec, state, kept_rows.table)
        panes = gather(self.spec, state, kept_rows, encode_keys(keys, self.spec.by), keys)
        output = self._results(panes, bounds)
        own = self.entered(panes_of_rows)
        late = own + self.length <= bounds.late
        if self.spec.diverts:
            told = LateRows(given.places[late], own[late], own[late] + self.length)
            output = pa.concat_tables([output, late_rows(self.spec, rows, told, given.untimed, clock, INCLUSIVE)])
        counts = counted(self.spec, len(own), int(late.sum()), len(given.untimed))
        return Step(self._state(panes, bounds), output, counts)

    @property
    def length(self) -> int:
        return self.size + MICROSECONDS

    def entered(self, panes: Integers) -> Integers:
        """Where the window begins that ends with each record."""
        return np.where((panes >= 0) & (panes < self.size), 0, panes - self.size)

    def left(self, panes: Integers) -> Integers:
        """Where the window begins that each record is the first to have left."""
        return panes + MICROSECONDS

    def _results(self, panes: Panes, bounds: Bounds) -> pa.Table:
        windows = self._windows(panes, bounds)
        if not len(windows.codes):
            return self.output_schema.empty_table()
        return result_rows(self.spec, panes.keys, fire_in_slices(self.spec, panes, windows, bounds), INCLUSIVE)

    def _windows(self, panes: Panes, bounds: Bounds) -> Windows:
        """Those that may have to be put out: they still take rows, or have ended since the state was written."""
        starts = np.concatenate((self.entered(panes.starts), self.left(panes.starts)))
        codes, ends = np.tile(panes.codes, 2), starts + self.length
        old = np.tile(np.arange(len(panes.codes)) < panes.old, 2)
        if self.spec.early:
            touched = np.zeros(len(panes.seen), np.bool_)
            touched[panes.codes[panes.changed]] = True
            wanted = (ends > bounds.late) & touched[codes]
        else:
            wanted = (ends <= bounds.reached) & (ends > np.minimum(panes.seen[codes], bounds.late))
        starts, codes, old = starts[wanted], codes[wanted], old[wanted]
        found = pairs(codes, starts)
        stood = np.zeros(len(found.first), np.bool_)
        stood[found.codes[old]] = True
        starts, no = starts[found.first], np.zeros(len(found.first), np.bool_)
        return Windows(codes[found.first], starts, starts + self.length, stood, no, no)

    def _state(self, panes: Panes, bounds: Bounds) -> pa.Table:
        entered, left = (each + self.length for each in (self.entered(panes.starts), self.left(panes.starts)))
        gone = left + (self.spec.allowed or 0)
        due = gone
        if not self.spec.early:
            due = np.where(entered > bounds.reached, entered, np.where(left > bounds.reached, left, gone))
        return kept(self.spec, panes, gone > bounds.reached, bounds.reached, due)
