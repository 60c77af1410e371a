"""What windows answer to who asks them: the windows of a key that are not over, with what is in them now.

It is what the fold would put out if time ended: the same code over the same state, without lateness, and nothing of it
is kept. Windows that are over have been put out, and are left out here, also while they may still be corrected.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipelines.operators.state.fold import END_OF_TIME, HASH, Clock
from tidelog.pipelines.operators.windows.anchors import SEED
from tidelog.pipelines.operators.windows.spec import BEGINNING, MICROSECONDS, TIME, Spec

TOLD = "_told"  # of sessions: put out already


def open_windows(fold: Any, state: pa.Table, clock: Clock) -> pa.Table:
    """`fold` has a `spec`; the state is that of one key."""
    spec: Spec = fold.spec
    final = replace(spec, allowed=None, early=False, diverts=False, interval=None)
    rows = pa.schema([pa.field(HASH, pa.int64()), *spec.rows, pa.field(SEED, pa.bool_())]).empty_table()
    made = replace(fold, spec=final).step(_untold(state), rows, Clock(END_OF_TIME, clock.now)).output
    reached = BEGINNING if clock.watermark is None else clock.watermark * MICROSECONDS
    still = pc.greater_equal(made[TIME].cast(pa.int64()), reached)
    return made.filter(still).drop_columns([TIME])


def _untold(state: pa.Table) -> pa.Table:
    if TOLD not in state.schema.names:
        return state
    place = state.schema.get_field_index(TOLD)
    return state.set_column(place, state.schema.field(TOLD), pa.array([False] * len(state), pa.bool_()))
