"""Deletions that a fold remembers, lest a row from before one comes later: when each was taken, and when it may go.

    state   _gone_since   null for a row; for a deletion, the time in ms at which it was taken

Rules:
- A deletion is kept for `deletes_kept` by the clock of the micro-batch that took it. By then it is forgotten, in the
  next step that reads its page.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipelines.operators.joins.matching import Mask, Numbers
from tidelog.pipelines.operators.state.fold import Clock

GONE_SINCE = "_gone_since"
NEVER = 2**63 - 1
DAY = 24 * 60 * 60 * 1000  # ms


def gone_since(gone: pa.Array | pa.ChunkedArray, clock: Clock) -> pa.Array | pa.ChunkedArray:
    """Of rows, for GONE_SINCE; null in `gone` is a row."""
    return pc.if_else(gone, pa.scalar(clock.now, pa.int64()), pa.scalar(None, pa.int64()))


def forgotten(state: pa.Table, clock: Clock, deletes_kept: int) -> Mask:
    """Deletions that are needed no more."""
    since: Numbers = pc.fill_null(state[GONE_SINCE], NEVER).to_numpy()
    found: Mask = since <= clock.now - deletes_kept
    return found
