"""Whether the place that a store has is one of this log: its mark must be found again among the sink's marks.

    found       it goes on from there
    not found   the log was wiped, or restored from a backup that is older than the store, or is another cluster's. What
                lies before the place is then not what the store has, whatever the offsets say
    not asked   there is no mark, or it is so old that compaction may have taken it (`reading.is_left_behind` judges it)

Rules:
- Offsets alone tell nothing: a topic that was made again passes those of the old one. A name and a generation's number
  are the same too. A mark is the same only if it is the same micro-batch of the same query, committed at the same time.
- Marks of the horizon are never compacted (docs/formats/mark.md), so one that is younger and not there was never there.
- One that is stamped otherwise than it says is still found: where it is not near its time, all marks are read.
"""

from __future__ import annotations

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, READ_COMMITTED, list_offsets
from tidelog.control.marks import Mark, decode
from tidelog.control.reading import read

CLOCKS_APART_MS = 60_000


def is_kept(mark: Mark, now_ms: int, horizon_ms: int) -> bool:
    """Whether it is too young to be compacted."""
    return mark.time_ms - CLOCKS_APART_MS > now_ms - horizon_ms


def offset_of(cluster: Cluster, at: TopicPartition, mark: Mark, near: int) -> int | None:
    """Where it stands in `at`, which has the sink's marks; None: nowhere. `near` is just before it, by its time."""
    start = list_offsets(cluster, {at: EARLIEST})[at].offset
    end = list_offsets(cluster, {at: LATEST}, isolation=READ_COMMITTED)[at].offset
    found = _found(cluster, at, mark, near, end)
    return _found(cluster, at, mark, start, near) if found is None and near > start else found


def _found(cluster: Cluster, at: TopicPartition, mark: Mark, begin: int, end: int) -> int | None:
    rows = (row for _, row in read(cluster, {at: begin}, {at: end}))
    return next((row.offset for row in rows if row.value is not None and decode(row.value) == mark), None)
