"""Which windows are put out in a step, and with what: one rule for all windows that are made of panes.

    a window   open ----- end ------ end + allowed ----->
    early      +I -U+U    |          |                      whenever it has changed
    correct               +I -U+U    |                      at its end, and whenever a late row has changed it
    else                  +I                                once, at its end

Rules:
- A window that takes no more rows is put out as it was before the rows of this step, although they may have changed a
  pane that it shares with a younger window.
- What was put out before need not be kept: it is what the panes of the state add up to.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.pipelines.operators.changelog import AFTER, BEFORE, INSERT
from tidelog.pipelines.operators.grouping import Booleans, Integers
from tidelog.pipelines.operators.windows.output import Results
from tidelog.pipelines.operators.windows.panes import Panes, Within, combine, slices
from tidelog.pipelines.operators.windows.spec import Bounds, Columns, Spec


class Windows(NamedTuple):
    """Windows [start, end) that may have to be put out, each once.

    A window is there when it holds a row; `lasting` ones are, and `lasted` ones were before this step, without one.
    `stood`: it was there before, if it held a row then.
    """

    codes: Integers
    starts: Integers
    ends: Integers
    stood: Booleans
    lasted: Booleans
    lasting: Booleans


class Firing(NamedTuple):
    """Windows by their place: put out for the first time, as it is now or as it was; and told anew."""

    now: Integers
    as_it_was: Integers
    again: Integers


def fire_in_slices(spec: Spec, panes: Panes, windows: Windows, bounds: Bounds) -> list[Results]:
    """As `fire`, where it is not known what lies in which window, and that may be too much for memory at once."""
    found: list[Results] = []
    for begin, end, inside in slices(panes, windows.codes, windows.starts, windows.ends):
        some = Windows._make(each[begin:end] for each in windows)
        found += [part._replace(order=part.order + begin) for part in fire(spec, panes, some, inside, bounds)]
    return found


def fire(spec: Spec, panes: Panes, windows: Windows, inside: Within, bounds: Bounds) -> list[Results]:
    found = decide(spec, panes, windows, bounds, inside)
    before = Within(inside.windows[inside.panes < panes.old], inside.panes[inside.panes < panes.old])

    def results(op: str, which: Integers, old: bool) -> Results:
        columns = _values(spec, panes.before if old else panes.columns, before if old else inside, which, windows)
        key_rows = panes.key_rows[windows.codes[which]]
        return Results(op, key_rows, windows.starts[which], windows.ends[which], columns, which)

    return [
        results(INSERT, found.now, False),
        results(INSERT, found.as_it_was, True),
        results(BEFORE, found.again, True),
        results(AFTER, found.again, False),
    ]


def decide(spec: Spec, panes: Panes, windows: Windows, bounds: Bounds, inside: Within) -> Firing:
    size, ends = len(windows.codes), windows.ends
    old = _any(inside.windows[inside.panes < panes.old], size)
    new = _any(inside.windows, size) | windows.lasting
    changed = _any(inside.windows[panes.changed[inside.panes]], size)
    held = windows.stood & old
    stood = held | windows.lasted
    full = ends <= bounds.late
    told = (stood & (ends <= panes.seen[windows.codes])) | (held & spec.early)
    due = new & (spec.early | (ends <= bounds.reached))
    return Firing(
        now=np.flatnonzero(due & ~told & ~full),
        as_it_was=np.flatnonzero(due & ~told & full & stood),
        again=np.flatnonzero(due & told & ~full & changed),
    )


def _any(owners: Integers, size: int) -> Booleans:
    found = np.zeros(size, np.bool_)
    found[owners] = True
    return found


def _values(spec: Spec, columns: Columns, inside: Within, which: Integers, windows: Windows) -> list[pa.Array]:
    """The contents of those windows alone."""
    number = np.full(len(windows.codes), -1, np.int64)
    number[which] = np.arange(len(which))
    owners = number[inside.windows]
    return combine(spec, columns, Within(owners[owners >= 0], inside.panes[owners >= 0]), len(which))
