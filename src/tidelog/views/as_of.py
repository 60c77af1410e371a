"""A view as it was at a time, recomputed from its topic: all changes up to the newest mark at or before it.

    generation    the newest one that was live then: since its mark that reached `live`; the first one since ever
    mark          the newest one at or before the time; before the first there was nothing
    rows          the last change of each key up to that mark's ends

Rules:
- Compaction leaves what is younger than the horizon as it was, so every time within it can be told. An older one only
  if nothing has ever been older than the horizon; else it is refused, and the earliest time that can be told is named.
- A topic without marks is told by its records' own times, and these say whether any is older than the horizon. Once its
  first records are deleted no past of it can be told: rows of keys that have not changed since are missing.
- The rows of a view are held in memory while it is recomputed. Marks are not: of all that are read, those are kept that
  the answer takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, NOT_FOUND, READ_COMMITTED, list_offsets
from tidelog.control import marks as marks_topics
from tidelog.control.catalog import Generation, View, find_view
from tidelog.control.marks import Ends, Mark, each_mark
from tidelog.control.reading import read
from tidelog.errors import CursorExpired, UsageError
from tidelog.record.columns import Row as Record
from tidelog.schema.declaration import Declaration, Key, Row
from tidelog.views.changes import changes_of
from tidelog.views.lifecycle import check_own_rows
from tidelog.views.reading import reached

Rows = dict[Key, Row]


class AsOf(NamedTuple):
    generation: int
    mark: Mark | None  # None: before the first, or a topic without marks
    declared: Declaration
    rows: list[Row]  # in the order of the key
    begins_ms: int | None = None  # where the time is before the first mark: when that was written


class GenerationHistory(NamedTuple):
    """A generation and its marks, the oldest first; `needed` are enough."""

    generation: Generation
    marks: list[Mark]
    has_older: bool = False  # a topic without marks: whether records of it are older than the horizon

    @property
    def live_since_ms(self) -> int | None:
        """None where it was never live. The first generation is live from its beginning."""
        return live_since(self.generation, self.marks)


# Decisions ------------------------------------------------------------------------------------------------------------


def live_since(generation: Generation, marks: Iterable[Mark]) -> int | None:
    """No further than to the mark that says so."""
    live = generation.live
    if live is None:
        return None
    return 0 if not live else next((one.time_ms for one in marks if reached(live, one.ends)), None)


def needed(generation: Generation, marks: Iterable[Mark], at_ms: int) -> list[Mark]:
    """Of all marks, the oldest first: the first one, the one that reached `live`, and the newest by `at_ms`."""
    first: tuple[int, Mark] | None = None
    live: tuple[int, Mark] | None = None
    then: tuple[int, Mark] | None = None
    for place in enumerate(marks):
        first = first or place
        if live is None and generation.live and reached(generation.live, place[1].ends):
            live = place
        if place[1].time_ms <= at_ms:
            then = place
    kept = dict(one for one in (first, live, then) if one is not None)
    return [kept[number] for number in sorted(kept)]


def earliest_ms(history: GenerationHistory, now_ms: int) -> int:
    """The earliest time that can be told; 0: any."""
    oldest = now_ms - history.generation.declared.horizon_ms
    cut = history.has_older or (bool(history.marks) and history.marks[0].time_ms < oldest)
    return max(oldest if cut else 0, history.live_since_ms or 0)


def live_then(histories: list[GenerationHistory], at_ms: int) -> GenerationHistory | None:
    """`histories` are of generations that were live, the newest first."""
    return next((one for one in histories if one.live_since_ms is not None and one.live_since_ms <= at_ms), None)


def mark_at(history: GenerationHistory, at_ms: int) -> Mark | None:
    return next((one for one in reversed(history.marks) if one.time_ms <= at_ms), None)


# The shell ------------------------------------------------------------------------------------------------------------


def as_of(
    cluster: Cluster,
    name: str,
    at_ms: int,
    *,
    keep: Callable[[Row], bool] = lambda row: True,
    now_ms: int | None = None,
) -> AsOf:
    """The rows of view `name` at `at_ms`, those that `keep` says."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    view = find_view(cluster, name)
    if at_ms > now:
        raise UsageError(f"{said(at_ms)} is in the future; ask for a time in the past")
    history = _history(cluster, view, at_ms, now)
    generation = history.generation
    if not generation.sink:
        return AsOf(
            generation.number, None, generation.declared, _sorted(_until_time(cluster, generation, at_ms), keep)
        )
    mark = mark_at(history, at_ms)
    rows = {} if mark is None else _until(cluster, generation, mark.ends)
    begins_ms = history.marks[0].time_ms if mark is None and history.marks else None
    return AsOf(generation.number, mark, generation.declared, _sorted(rows, keep), begins_ms)


def _history(cluster: Cluster, view: View, at_ms: int, now_ms: int) -> GenerationHistory:
    check_own_rows(view, "past")
    live = [one for one in reversed(view.generations) if one.live is not None]
    histories = [
        GenerationHistory(one, needed(one, _marks(cluster, one), at_ms), _has_older(cluster, view, one, now_ms))
        for one in live
    ]
    if not histories:
        raise UsageError(f"view {view.name} has never been live, so it has no past")
    found = live_then(histories, at_ms)
    earliest = earliest_ms(found or histories[-1], now_ms)
    if found is None or at_ms < earliest:
        raise CursorExpired(
            f"view {view.name} as of {said(at_ms)} is not known any more; the earliest time is {said(earliest)}",
            said(earliest),
        )
    return found


def said(at_ms: int) -> str:
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return f"@{at_ms}"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _marks(cluster: Cluster, generation: Generation) -> Iterable[Mark]:
    if not generation.sink:
        return ()
    at = marks_topics.partition_of_marks(generation.sink)
    known = cluster.ask_metadata([at.topic]).topics.get(at.topic)
    if known is None or not known.led:
        return ()
    end = list_offsets(cluster, {at: LATEST}, isolation=READ_COMMITTED)[at].offset
    return each_mark(cluster, generation.sink, end)


def _has_older(cluster: Cluster, view: View, generation: Generation, now_ms: int) -> bool:
    if generation.sink:
        return False
    partitions = cluster.partitions(generation.topic)
    horizon = max(0, now_ms - generation.declared.horizon_ms)
    starts, young, ends = (list_offsets(cluster, dict.fromkeys(partitions, at)) for at in (EARLIEST, horizon, LATEST))
    if cut := [at for at in partitions if starts[at].offset > 0]:
        raise CursorExpired(
            f"{cut[0]} begins at offset {starts[cut[0]].offset}, what was before is deleted: the past of view"
            f" {view.name} is not known",
            None,
        )
    return any((ends if young[at].offset == NOT_FOUND else young)[at].offset > 0 for at in partitions)


def _until(cluster: Cluster, generation: Generation, ends: Ends) -> Rows:
    here = {at: end for at, end in ends.items() if at.topic == generation.topic}
    rows: Rows = {}
    for at, record in _records(cluster, here):
        _fold(rows, generation.declared, at, record)
    return rows


def _until_time(cluster: Cluster, generation: Generation, at_ms: int) -> Rows:
    partitions = cluster.partitions(generation.topic)
    latest = list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation=READ_COMMITTED)
    rows: Rows = {}
    for at, record in _records(cluster, {at: found.offset for at, found in latest.items()}):
        if record.timestamp <= at_ms:
            _fold(rows, generation.declared, at, record)
    return rows


def _fold(rows: Rows, declared: Declaration, at: TopicPartition, record: Record) -> None:
    for change in changes_of(declared, at, [record], tombstones=True):
        if change.after is None:
            rows.pop(change.key, None)
        else:
            rows[change.key] = change.after


def _records(cluster: Cluster, ends: Ends) -> Iterator[tuple[TopicPartition, Record]]:
    """Committed ones from the start up to `ends`, which may lie a little beyond."""
    starts = list_offsets(cluster, dict.fromkeys(ends, EARLIEST))
    return read(cluster, {at: one.offset for at, one in starts.items()}, ends)


def _sorted(rows: Rows, keep: Callable[[Row], bool]) -> list[Row]:
    return [rows[key] for key in sorted(rows) if keep(rows[key])]
