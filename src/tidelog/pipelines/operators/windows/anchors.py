"""Keys whose windows are put out also when nothing is in them: from when on, and how far.

    anchor     |.............................  of a declared key: from the earliest row of all keys on
    rows               x x          x
    windows    [0][0][2   ][0][0][1   ][0]...  one for every hop, as far as the watermark is

Rules:
- A declared key hears of the rows of others by *seeds*: rows with nothing but a key and a time, made from each task's
  earliest and latest row. A seed is in no window, and counts nowhere.
- In a batch, which has no watermark to go by, windows go on until the one with the latest row of all keys.
- An anchor is a row of state with `_until`; panes have none.
- More than HOPS_AT_ONCE windows of a key at once are refused: some row's time is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import UsageError
from tidelog.pipelines.operators.grouping import Groups, Integers, expand
from tidelog.pipelines.operators.windows.grid import Grid
from tidelog.pipelines.operators.windows.panes import PANE, Panes, milliseconds
from tidelog.pipelines.operators.windows.spec import (
    BEGINNING,
    END_OF_DAYS,
    Bounds,
    Spec,
    integers,
    reduce,
)

SEED = "_seed"  # bool, in rows
HOPS_AT_ONCE = 1_000_000  # a row from the year 9999 would ask for billions
UNTIL = "_until"  # int64, microseconds, in state: the latest row of all keys


class Anchors(NamedTuple):
    """By code: from which pane on windows are put out, from which they were before this step, and the latest row.

    END_OF_DAYS where a key has none.
    """

    begin: Integers
    before: Integers
    until: Integers


def gather_anchors(grid: Grid, state: pa.Table, seeds: Integers, codes: Integers, size: int) -> Anchors:
    """`codes` are those of the state's anchors, then those of the seeds, which are times."""
    old, until = np.full(size, END_OF_DAYS), np.full(size, BEGINNING)
    old[codes[: len(state)]] = integers(state, PANE)
    begin = old.copy()
    np.minimum.at(begin, codes[len(state) :], grid.panes(seeds))
    np.maximum.at(until, codes, np.concatenate((integers(state, UNTIL), seeds)))
    return Anchors(begin, old, until)


def anchored(grid: Grid, anchors: Anchors, seen: Integers, bounds: Bounds) -> tuple[Integers, Integers]:
    """Codes and numbers of windows that have ended, and so are put out whether anything is in them or not."""
    codes = np.flatnonzero(anchors.begin < END_OF_DAYS)
    begin, before = anchors.begin[codes], anchors.before[codes]
    told, takes = grid.ended(seen[codes]) + 1, grid.ended(bounds.late) + 1
    since = np.where(before == END_OF_DAYS, takes, np.where(begin < before, np.minimum(told, takes), told))
    first = np.maximum(grid.first(begin), since)
    last = grid.ended(bounds.reached)
    if bounds.reached == END_OF_DAYS:
        last = grid.last(grid.panes(anchors.until[codes]))
    hops = np.maximum(last - first + 1, 0)
    if (most := int(hops.max(initial=0))) > HOPS_AT_ONCE:
        raise UsageError(
            f"{most} windows of a key are to be put out at once, more than {HOPS_AT_ONCE}: event time has jumped; "
            "leave out rows whose time is wrong, before event_time"
        )
    owners, numbers = expand(first, hops)
    return codes[owners], numbers


def anchor_rows(spec: Spec, grid: Grid, anchors: Anchors, panes: Panes, bounds: Bounds) -> list[pa.Array]:
    """The state of anchors: keys, aggregates of nothing, and its own columns."""
    codes = np.flatnonzero(anchors.begin < END_OF_DAYS)
    begin = anchors.begin[codes]
    nothing = [pa.array([], field.type) for field in spec.state_fields]
    empty = reduce(spec, nothing, Groups(np.array([], np.int64), len(codes)))
    due = grid.ends(np.maximum(grid.first(begin), grid.ended(bounds.reached) + 1))
    own = [begin, np.full(len(codes), bounds.reached), milliseconds(due), anchors.until[codes]]
    whose = panes.keys.take(pa.array(panes.key_rows[codes]))
    return [*whose.columns, *empty, *(pa.array(each, pa.int64()) for each in own)]


def seeding(time: str, declared: pa.Table) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: the rows of a task, then for each declared key a seed at their earliest and latest time."""

    def seeded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spans = []
        schema = None
        for batch in batches:
            schema = batch.schema
            spans.append(pc.min_max(batch.column(schema.get_field_index(time))))
            yield _with_seed(batch, batch.columns, False)
        found = [span[name] for span in spans for name in ("min", "max") if span[name].is_valid]
        if schema is None or not found:
            return
        times = pc.min_max(pa.array([each.as_py() for each in found], found[0].type))
        for name in ("min", "max"):
            by = [field for field in schema if field.name in declared.column_names]
            known = {field.name: declared[field.name].combine_chunks().cast(field.type) for field in by}
            known[time] = pa.array([times[name].as_py()] * len(declared), found[0].type)
            columns = [known.get(field.name, pa.nulls(len(declared), field.type)) for field in schema]
            yield _with_seed(pa.RecordBatch.from_arrays(columns, schema=schema), columns, True)

    return seeded


def _with_seed(batch: pa.RecordBatch, columns: list[pa.Array], seed: bool) -> pa.RecordBatch:
    flags = pa.array(np.full(len(batch), seed))
    return pa.RecordBatch.from_arrays([*columns, flags], schema=batch.schema.append(pa.field(SEED, pa.bool_())))
