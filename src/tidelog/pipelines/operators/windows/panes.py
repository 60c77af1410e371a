"""Panes: rows put together over stretches of time so short that every window is made of whole ones.

    windows of 5 minutes, every 2     |----0----|
                                          |----2----|
                                              |----4----|
    panes of 1 minute                 |.|.|.|.|.|.|.|.|.|       the greatest that fits: here 1, for 4 every 2 it is 2

A row is put into one pane, not into each of its windows: what a row costs does not grow with the windows that overlap.
A window's result is made of its panes when it is put out. Old panes, of the state, stand before those that are new.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.pipelines.operators.grouping import Booleans, Groups, Integers, Keys, Moments, expand, in_order, pairs
from tidelog.pipelines.operators.state.fold import DUE
from tidelog.pipelines.operators.windows.spec import (
    BEGINNING,
    MICROSECONDS,
    Columns,
    Spec,
    add,
    columns_of,
    integers,
    lift,
    reduce,
    take,
)

PANE = "_pane"  # int64, microseconds: where it begins
MOST_PAIRS = 1 << 18  # of windows and panes in memory at once; one window has as many panes as it has
SEEN = "_seen"  # int64, microseconds: the watermark when the state was written; which windows have been put out


class Panes(NamedTuple):
    """The panes of a step. Keys are numbered: `codes` says whose each pane is, `key_rows` where a key stands in `keys`.

    The first `old` panes are those of the state, in its order; `before` is what they held.
    """

    keys: pa.Table
    key_rows: Integers
    codes: Integers
    starts: Integers
    columns: Columns
    before: Columns
    old: int
    changed: Booleans
    seen: Integers  # by code


def state_schema(spec: Spec) -> pa.Schema:
    own = [pa.field(PANE, pa.int64()), pa.field(SEEN, pa.int64()), pa.field(DUE, pa.int64())]
    return pa.schema([*spec.key_schema, *spec.state_fields, *own])


class Rows(NamedTuple):
    """Rows that are taken, when they were, and where the pane of each begins."""

    table: pa.Table
    times: Integers
    panes: Integers


def gather(spec: Spec, state: pa.Table, taken: Rows, coded: Keys, keys: pa.Table) -> Panes:
    """State and rows put together. `keys` has their keys, those of the state first, and may have more behind them."""
    rows = taken.table
    begun = np.concatenate((integers(state, PANE), taken.panes))
    found = pairs(coded.codes[: len(begun)], begun)
    before = columns_of(spec, state)
    groups = Groups(found.codes, len(found.first))
    changed = np.zeros(groups.size, np.bool_)
    changed[found.codes[len(state) :]] = True
    seen = np.full(len(coded.first), BEGINNING, np.int64)
    seen[coded.codes[: len(state)]] = integers(state, SEEN)
    columns = reduce(spec, add(before, lift(spec, rows, taken.times)), groups) if len(rows) else before
    whose, begins = coded.codes[found.first], begun[found.first]
    return Panes(keys, coded.first, whose, begins, columns, before, len(state), changed, seen)


def key_table(spec: Spec, *tables: pa.Table) -> pa.Table:
    names = spec.key_schema.names
    return pa.concat_tables([table.select(names) for table in tables]).combine_chunks()


def kept(spec: Spec, panes: Panes, keep: Booleans, seen: int, due: Integers) -> pa.Table:
    """The state after the step: the panes that are still needed, and when to look at each again, in microseconds."""
    places = np.flatnonzero(keep)
    keys = panes.keys.take(pa.array(panes.key_rows[panes.codes[places]]))
    own = [panes.starts[places], np.full(len(places), seen), milliseconds(due[places])]
    arrays = [*keys.columns, *take(panes.columns, places), *(pa.array(each, pa.int64()) for each in own)]
    return pa.Table.from_arrays(arrays, schema=state_schema(spec))


def milliseconds(times: Integers) -> Integers:
    return -(-times // MICROSECONDS)


class Within(NamedTuple):
    """Which panes lie in which windows: for each pair the window's number and the pane's."""

    windows: Integers
    panes: Integers


class WindowRange(NamedTuple):
    """Windows from `begin` to `end`, and what lies in them, with windows numbered from `begin` on."""

    begin: int
    end: int
    inside: Within


def slices(panes: Panes, codes: Integers, starts: Integers, ends: Integers) -> Iterator[WindowRange]:
    """The panes that begin in windows [start, end) of the key `codes`, for some windows at a time.

    Where a key has many rows in the time of a window, each of its windows has many panes: all pairs of them at once
    would take memory by the square of the rows.
    """
    here = Moments(panes.codes, panes.starts)
    moments, first, last = in_order(here, Moments(codes, starts), Moments(codes, ends))
    order = np.argsort(moments, kind="stable")
    ordered = moments[order]
    low, high = np.searchsorted(ordered, first), np.searchsorted(ordered, last)
    until, begin = np.cumsum(high - low), 0
    while begin < len(low):
        before = int(until[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(until, before + MOST_PAIRS, side="right")))
        windows, places = expand(low[begin:end], (high - low)[begin:end])
        yield WindowRange(begin, end, Within(windows, order[places]))
        begin = end


def combine(spec: Spec, columns: Columns, found: Within, size: int) -> list[pa.Array]:
    """What is in each of `size` windows."""
    return reduce(spec, take(columns, found.panes), Groups(found.windows, size))
