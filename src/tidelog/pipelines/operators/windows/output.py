"""Rows of windows' results: plain, or as a changelog, with rows that came too late beside them.

    _op _seq   window_start window_end window_time   the keys   the aggregates   _late

`_op` and `_seq` are there in a changelog only, `_late` where late rows are a side output. A row that came too late has
its keys and `_late`, and nothing else. `window_time` is the last microsecond of the window's last millisecond: what
later operators take for the event time of a result, so that it falls into the larger window that its own lies in. Only
a session can end within a millisecond. Watermarks are of whole ones: one may stand at the beginning of that millisecond
while the session is open, and Spark ends a query whose results are not beyond the watermark of the micro-batch before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.pipelines.operators.changelog import RETRACTIONS, of_changes
from tidelog.pipelines.operators.grouping import Integers
from tidelog.pipelines.operators.state.fold import Clock
from tidelog.pipelines.operators.windows.spec import BEGINNING, LATE, MICROSECONDS, TIMESTAMP, Columns, Spec, finish

TOO_LATE = "its window was over"
NO_TIME = "it has no event time"


class Results(NamedTuple):
    """Windows to put out: of which key (a row of `Keys`), from when until when, with what, and in which order."""

    op: str
    key_rows: Integers
    starts: Integers
    ends: Integers
    columns: Columns
    order: Integers


class Span(NamedTuple):
    """How the end of a window is told: `shown` after its end."""

    shown: int = 0


HALF_OPEN = Span()


def result_rows(spec: Spec, keys: pa.Table, results: list[Results], span: Span = HALF_OPEN) -> pa.Table:
    """In a changelog, what is taken back comes before all that is put in its place."""
    gone, gone_ops = _ordered(spec, keys, [part for part in results if part.op in RETRACTIONS], span)
    come, come_ops = _ordered(spec, keys, [part for part in results if part.op not in RETRACTIONS], span)
    return of_changes(gone, come, gone_ops, come_ops) if spec.changelog else come


def _ordered(spec: Spec, keys: pa.Table, results: list[Results], span: Span) -> tuple[pa.Table, pa.Array]:
    parts = [part for part in results if len(part.starts)]
    if not parts:
        return spec.plain_schema.empty_table(), pa.array([], pa.string())
    whole = pa.concat_tables([_part(spec, keys, part, span) for part in parts])
    if not spec.changelog:
        return whole, pa.nulls(len(whole), pa.string())
    order = np.argsort(np.concatenate([part.order for part in parts]), kind="stable")
    whose = np.repeat(np.arange(len(parts)), [len(part.starts) for part in parts])
    ops = pa.array([part.op for part in parts], pa.string()).take(pa.array(whose[order]))
    return whole.take(pa.array(order)), ops


def _part(spec: Spec, keys: pa.Table, part: Results, span: Span) -> pa.Table:
    last = -(-part.ends // MICROSECONDS) * MICROSECONDS - 1
    times = [_timestamps(each) for each in (part.starts, part.ends + span.shown, last)]
    place = pa.array(part.key_rows)
    by = [keys[name].combine_chunks().take(place) for name in spec.by]
    late = [pa.nulls(len(part.starts), spec.late_type)] if spec.diverts else []
    return pa.Table.from_arrays([*times, *by, *finish(spec, part.columns), *late], schema=spec.plain_schema)


class LateRows(NamedTuple):
    """Rows that came too late for a window, once for each such window; `places` are theirs among all rows."""

    places: Integers
    starts: Integers
    ends: Integers


def late_rows(spec: Spec, rows: pa.Table, late: LateRows, untimed: Integers, clock: Clock, span: Span) -> pa.Table:
    """What is put out of rows that were late for a window, and of those that have no event time at all."""
    schema, size = spec.output_schema, len(late.places) + len(untimed)
    if not spec.diverts or not size:
        return schema.empty_table()
    kept = rows.select(spec.rows.names).take(pa.array(np.concatenate((late.places, untimed)))).combine_chunks()
    no_window = np.full(len(untimed), BEGINNING)
    starts = _timestamps(np.concatenate((late.starts, no_window)))
    ends = _timestamps(np.concatenate((late.ends + span.shown, no_window)))
    why = pa.array([TOO_LATE] * len(late.places) + [NO_TIME] * len(untimed), pa.string())
    reached = BEGINNING if clock.late is None else clock.late * MICROSECONDS
    row = pa.StructArray.from_arrays([kept[field.name].combine_chunks() for field in spec.rows], fields=list(spec.rows))
    told = [starts, ends, why, _timestamps(np.full(size, reached)), row]
    found = pa.StructArray.from_arrays(told, fields=list(spec.late_type))
    columns = {name: kept[name] for name in spec.by} | {LATE: found}
    arrays = [columns[field.name] if field.name in columns else pa.nulls(size, field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _timestamps(times: Integers) -> pa.Array:
    return pa.array(times, mask=times == BEGINNING).cast(TIMESTAMP)
