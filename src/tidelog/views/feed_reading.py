"""A view's changes from a cursor on, in small pieces: what a feed reads, whoever it is for.

    looking      for the next mark after the cursor: micro-batches that are not committed are not there
    reading      up to that mark's ends, partition by partition, a piece a fetch
    switching    the catalog says that another generation is live: on from where that one begins to count

Rules:
- A piece is never beyond a mark, and a mark is done before the next one is begun. A large micro-batch is many pieces:
  what is held is PIECE_BYTES of the topic at most, and what was read ahead with it.
- A topic without marks is read as far as it is committed.
- A cursor before the horizon, or before the start of the topic, is `CursorExpired`; one beyond its end is not of it.
- One thread, one cluster. A reader that is thrown away and made anew at its cursor goes on alike.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.consumer import Consumer, Fetched
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, NOT_FOUND, READ_COMMITTED, list_offsets
from tidelog.control import catalog, marks
from tidelog.control.catalog import CATALOG, VIEW, Generation, View, find_view
from tidelog.control.marks import Mark, partition_of_marks, read_mark
from tidelog.errors import BrokerError, CursorExpired, NotShown, UsageError
from tidelog.views import lifecycle
from tidelog.views.captured import PREFIX, captured_view, changes_of_table
from tidelog.views.changes import Change, changes_of
from tidelog.views.feeds import Cursor, after_switch, check_place, cursor_at, to_text
from tidelog.wire.error_code import ErrorCode

PIECE_BYTES = 256 << 10
WAIT_MS = 500
SLACK_MS = 60_000  # a mark's record may have been stamped that much before the mark


class Piece(NamedTuple):
    """Changes, in the order in which they are told, between two places."""

    start: Cursor
    changes: Sequence[Change]
    end: Cursor


class Switched(NamedTuple):
    end: Cursor  # where the new generation begins to count


class _Target(NamedTuple):
    offsets: tuple[int, ...]
    time_ms: int


def newest(cluster: Cluster, view: View) -> Cursor:
    """The end of what is committed by now."""
    generation = _live(view)
    if not generation.sink:
        return cursor_at(view, generation, _ends(cluster, generation), _now_ms())
    mark = read_mark(cluster, generation.sink)
    if mark is None:
        return after_switch(view)
    return cursor_at(view, generation, mark.ends, mark.time_ms)


def oldest(cluster: Cluster, view: View) -> Cursor:
    """The start of the live generation's topic."""
    generation = _live(view)
    return cursor_at(view, generation, _offsets(cluster, generation, EARLIEST))


def find(cluster: Cluster, name: str) -> tuple[View, int | None]:
    """A view, and where to look in the catalog for what becomes of it; a captured table, which the catalog has not."""
    if name.startswith(PREFIX):
        return captured_view(cluster, name.removeprefix(PREFIX)), None
    position = list_offsets(cluster, {CATALOG: LATEST}, isolation=READ_COMMITTED)[CATALOG].offset
    return find_view(cluster, name), position


class FeedReader:
    def __init__(
        self,
        cluster: Cluster,
        view: View,
        cursor: Cursor,
        *,
        catalog_from: int | None = None,
        from_start: bool = False,
        wait_ms: int = WAIT_MS,
    ) -> None:
        """`catalog_from`: where to look for a switch; without it the view is what it is. `from_start`: whatever
        compaction has left counts, in place of `CursorExpired`.
        """
        check_place(view, cursor)
        self.view = view
        self.cursor = cursor
        self._cluster = cluster
        self._from_start = from_start
        self._target: _Target | None = None
        self._news = Consumer(cluster, read_committed=True, max_wait_ms=wait_ms, max_bytes=PIECE_BYTES)
        self._data = Consumer(cluster, read_committed=True, max_wait_ms=wait_ms, max_bytes=PIECE_BYTES)
        self._data.max_partition_bytes = PIECE_BYTES
        if catalog_from is not None:
            self._news.assign({CATALOG: catalog_from})
        if cursor.generation == view.live:
            self._begin(cursor)

    def step(self) -> Piece | Switched | None:
        """The next piece; None where there is none, after waiting for one a while."""
        if self.cursor.generation != self.view.live:
            self._begin(after_switch(self.view))
            return Switched(self.cursor)
        if self._target is None:
            self._target = self._look()
        return None if self._target is None else self._read(self._target)

    # Beginning --------------------------------------------------------------------------------------------------------

    def _begin(self, cursor: Cursor) -> None:
        generation = _live(self.view)
        self.cursor = cursor
        self._declared = generation.declared
        self._partitions = [TopicPartition(generation.topic, index) for index in range(generation.partitions)]
        self._target = None
        self._marks: deque[Mark] = deque()
        self._held: dict[TopicPartition, deque[Change]] = {at: deque() for at in self._partitions}
        self._read_to = list(cursor.offsets)
        self._sink = partition_of_marks(generation.sink) if generation.sink else None
        try:
            self._check_range(generation)
            watched = {at: offset for at, offset in self._news.positions.items() if at == CATALOG}
            if self._sink is not None:
                watched[self._sink] = _place_among_marks(self._cluster, self._sink, cursor.time_ms)
        except BrokerError as error:
            if error.code in UNKNOWN_TOPIC:
                raise NotShown(
                    f"view {self.view.name} is begun, and its topics are not there yet; try again"
                ) from error
            raise
        self._news.assign(watched)

    def _check_range(self, generation: Generation) -> None:
        # Not of what is committed: a marker of this partition may come after the mark that told its end.
        starts, ends = (_offsets(self._cluster, generation, when) for when in (EARLIEST, LATEST))
        for at, offset in zip(self._partitions, self.cursor.offsets, strict=True):
            if offset > ends[at]:
                raise UsageError(
                    f"the cursor is at offset {offset} of {at}, which ends at {ends[at]}: it is of another topic of"
                    " that name; read the view, and begin where it says"
                )
            if offset < starts[at] and not self._from_start:
                raise self._expired()
        if self._sink is None and not self._from_start:
            young = _offsets(self._cluster, generation, _now_ms() - generation.declared.horizon_ms)
            for at, offset in zip(self._partitions, self.cursor.offsets, strict=True):
                if offset < (ends[at] if young[at] == NOT_FOUND else young[at]):
                    raise self._expired()

    def _expired(self) -> CursorExpired:
        return CursorExpired(
            f"the cursor is older than the horizon of view {self.view.name}, {self._declared.horizon_ms} ms; read the"
            " view, and begin where it says",
            to_text(newest(self._cluster, self.view)),
        )

    # Looking ----------------------------------------------------------------------------------------------------------

    def _look(self) -> _Target | None:
        if self._sink is None:
            return self._look_at_ends()
        if not self._marks:
            self._note(self._news.fetch())
        while self._marks and self.cursor.generation == self.view.live:
            mark = self._marks.popleft()
            offsets = tuple(mark.ends.get(at, 0) for at in self._partitions)
            if not self.cursor.reaches(offsets):
                if mark.time_ms < _now_ms() - self._declared.horizon_ms and not self._from_start:
                    raise self._expired()
                return _Target(offsets, mark.time_ms)
            self.cursor = self.cursor._replace(time_ms=max(self.cursor.time_ms, mark.time_ms))
        return None

    def _look_at_ends(self) -> _Target | None:
        """What has come is what there is to read."""
        if self._news.positions:
            self._news.max_wait_ms = 0
            self._note(self._news.fetch())
        if self.cursor.generation != self.view.live:
            return None
        self._fetch(dict(zip(self._partitions, self._read_to, strict=True)))
        offsets = tuple(self._read_to)
        return None if self.cursor.reaches(offsets) else _Target(offsets, _now_ms())

    def _note(self, found: Iterable[Fetched]) -> None:
        for fetched in found:
            for row in fetched.rows():
                if fetched.at == self._sink and row.value is not None:
                    self._marks.append(marks.decode(row.value))
                elif fetched.at == CATALOG:
                    known: catalog.Catalog = {(VIEW, self.view.name): self.view}
                    catalog.note(known, row.key or b"", row.value)
                    self.view = _still_there(known, self.view.name)
                    if self.view.live == self.cursor.generation:
                        self._declared = _live(self.view).declared  # it may have grown by columns

    # Reading ----------------------------------------------------------------------------------------------------------

    def _read(self, target: _Target) -> Piece:
        lacking = {
            at: self._read_to[index]
            for index, at in enumerate(self._partitions)
            if self._read_to[index] < target.offsets[index]
        }
        if lacking:
            self._fetch(lacking)
        start, changes, offsets = self.cursor, [], list(self.cursor.offsets)
        for index, at in enumerate(self._partitions):
            held = self._held[at]
            while held and held[0].offset < target.offsets[index]:
                changes.append(held.popleft())
            offsets[index] = max(offsets[index], min(self._read_to[index], target.offsets[index]))
        self.cursor = start._replace(offsets=tuple(offsets))
        if self.cursor.reaches(target.offsets):
            self.cursor, self._target = self.cursor._replace(time_ms=target.time_ms), None
        return Piece(start, changes, self.cursor)

    def _fetch(self, lacking: dict[TopicPartition, int]) -> None:
        self._data.assign(lacking)
        try:
            found = self._data.fetch()
        except BrokerError as error:
            if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise self._expired() from error
            raise
        for fetched in found:
            self._held[fetched.at].extend(self._changes(fetched))
            self._read_to[fetched.at.partition] = fetched.next_offset

    def _changes(self, fetched: Fetched) -> list[Change]:
        form = _live(self.view).captured
        if form is not None:
            return changes_of_table(self._declared, form, fetched.at, fetched.rows())
        return changes_of(self._declared, fetched.at, list(fetched.rows()))


def _live(view: View) -> Generation:
    if view.current is None:
        raise NotShown(f"view {view.name} has no live generation yet; try again")
    lifecycle.check_own_rows(view, "feed")
    return view.current


def _still_there(known: catalog.Catalog, name: str) -> View:
    found = known.get((VIEW, name))
    if not isinstance(found, View):
        raise UsageError(f"view {name!r} was taken away")
    return found


def _place_among_marks(cluster: Cluster, sink: TopicPartition, time_ms: int) -> int:
    """At or before the first mark after that time. The last mark is never compacted: where none is as young, the clock
    was set back while one was written, and all are read.
    """
    if time_ms:
        found = list_offsets(cluster, {sink: max(0, time_ms - SLACK_MS)})[sink].offset
        if found != NOT_FOUND:
            return found
    return list_offsets(cluster, {sink: EARLIEST})[sink].offset


def _offsets(cluster: Cluster, generation: Generation, when: int) -> dict[TopicPartition, int]:
    every = [TopicPartition(generation.topic, index) for index in range(generation.partitions)]
    return {at: one.offset for at, one in list_offsets(cluster, dict.fromkeys(every, when)).items()}


def _ends(cluster: Cluster, generation: Generation) -> dict[TopicPartition, int]:
    every = [TopicPartition(generation.topic, index) for index in range(generation.partitions)]
    found = list_offsets(cluster, dict.fromkeys(every, LATEST), isolation=READ_COMMITTED)
    return {at: one.offset for at, one in found.items()}


def _now_ms() -> int:
    return int(time.time() * 1000)
