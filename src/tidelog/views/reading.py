"""From marks and rows to stretches: what may be applied together, and what is read next. Pure, but for `opened` below.

    marks      ---->  known marks, the oldest first      \\
    partitions ---->  rows that were read, by partition   >---  stretch: rows between the ends before and a mark's ends
    place      ---->  ends before, and the mark there    /

Rules:
- A micro-batch is there when every partition has been read up to its `ends`: the markers of one transaction arrive
  partition by partition. A stretch ends where a mark does, at the last one that is there: several at once for who is
  behind. A later mark than could be is as good: marks that compaction took, or that were never read, are not missed.
- `ends` has the next offset after the rows and before the transaction's own marker, so positions come to lie beyond it.
- `Pace.WHOLE` holds a micro-batch in memory until all of it is there, however large (rows as columns, as they came).
  `Pace.ANY` is for who builds aside, where nobody looks: a stretch may end anywhere when more than HELD_BYTES are held.
  Of a view that is older than its horizon, all that lies before the first mark that is kept is one such micro-batch.
- `Pace.ASIDE` is for who builds aside together with others: a stretch may end anywhere below `free`, which nobody shows
  who has not passed it everywhere (`sharing.py`). Beyond, whole micro-batches: who shows what all of them have built
  then knows that no partition ends within one.
- `Pace.BATCHES` is for a topic without marks: what was read is a stretch, by record batch.
- Rows are read ahead of their mark by READ_AHEAD_BYTES a partition at most, and by HELD_BYTES in all; beyond, only as
  far as the next mark says. Marks are asked for first, then what the next one needs: an answer that is full leaves out
  what was asked for last.
- A topic without marks has its records' own times for that, looked at when it is opened.
- Who was away beyond the horizon cannot go on (`LeftBehind`): of what compaction has taken since, deletes are missing.
  Nor can who has a place of another log (`same_log.py`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Fetched
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, NOT_FOUND, READ_COMMITTED, list_offsets
from tidelog.control import marks as marks_topics
from tidelog.control.catalog import Generation
from tidelog.control.marks import Ends, Mark, partition_of_marks
from tidelog.errors import CursorExpired
from tidelog.record.columns import Columns
from tidelog.record.columns import Row as Record
from tidelog.schema.declaration import Declaration
from tidelog.views.changes import Change, Stretch, changes_of
from tidelog.views.same_log import is_kept, offset_of
from tidelog.views.stores.store import Place

HELD_BYTES = 32 << 20
READ_AHEAD_BYTES = 8 << 20
MARKS_AHEAD = 10_000
SLACK_MS = 60_000  # a mark's record may have been stamped that much before the mark

Positions = dict[TopicPartition, int]
Fold = Callable[[Sequence[tuple[TopicPartition, Sequence[Record]]]], list[Change]]  # records by partition


class LeftBehind(CursorExpired):
    """What lies between the place and now is no longer whole."""


class Pace(Enum):
    WHOLE = "whole micro-batches"
    ANY = "wherever it is full"
    ASIDE = "wherever it is full, below where others may show it"
    BATCHES = "record batches"


# Decisions ------------------------------------------------------------------------------------------------------------


def reached(ends: Ends, positions: Ends) -> bool:
    return all(positions.get(at, 0) >= end for at, end in ends.items())


def there(known: Sequence[Ends], positions: Ends) -> int:
    """How many of the marks, the oldest first, have all their rows read."""
    return next((count for count, ends in enumerate(known) if not reached(ends, positions)), len(known))


def cut(applied: Ends, positions: Ends, mark: Ends, free: Ends) -> dict[TopicPartition, int]:
    """As far as was read, and no further than a mark that is not there yet, nor than it is free to be cut."""
    return {at: max(end, min(positions[at], mark[at], free.get(at, 0))) for at, end in applied.items()}


def is_news(mark: Mark, ends: Ends, applied: Ends, last: Mark | None) -> bool:
    """Whether a mark lies beyond what is applied. One without rows has equal ends, and is told by its number."""
    if not reached(applied, ends):
        return False
    same_query = last is not None and last.query_id == mark.query_id
    return not (same_query and last is not None and mark.batch_id <= last.batch_id)


def is_left_behind(last: Mark | None, first: Mark, *, seen: bool, now_ms: int, horizon_ms: int) -> bool:
    """`first` is the next mark that there is, `seen` whether `last` itself still stands before it: marks of the horizon
    are all there, so an older one that is gone was followed by others that may be gone too.
    """
    oldest = now_ms - horizon_ms
    return first.time_ms < oldest or (not seen and last is not None and last.time_ms < oldest)


# What was read --------------------------------------------------------------------------------------------------------


class _Run(NamedTuple):
    """Decoded batches of one partition."""

    next_offset: int
    columns: Sequence[Columns]
    size: int


class Inbox:
    """Rows of one partition that are read and not yet in a stretch."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.size = 0
        self._runs: deque[_Run] = deque()

    def note(self, fetched: Fetched) -> None:
        """What follows on what is here. Of one fetch, some may be for a reading that was given up for this one."""
        if fetched.offset != self.position:
            return
        columns = fetched.columns()
        run = _Run(fetched.next_offset, columns, max(len(fetched.batches), sum(map(_bytes_of, columns))))
        self.position = fetched.next_offset
        self.size += run.size
        self._runs.append(run)

    def take(self, start: int, end: int) -> list[Record]:
        """Rows from `start` up to and without `end`; what lies before `end` is forgotten."""
        found: list[Record] = []
        for run in self._runs:
            for columns in run.columns:
                if columns.count and columns.offsets[0] >= end:
                    break
                found += [row for row in columns.rows() if start <= row.offset < end]
        while self._runs and self._runs[0].next_offset <= end:
            self.size -= self._runs.popleft().size
        return found


def _bytes_of(columns: Columns) -> int:
    return len(memoryview(columns.keys.data)) + len(memoryview(columns.values.data))


class Reading:
    """Of one generation's topic, or of some of its partitions, from a place on. The caller fetches."""

    def __init__(
        self,
        declared: Declaration,
        partitions: Iterable[TopicPartition],
        place: Place,
        starts: Ends,
        *,
        marks_from: tuple[TopicPartition, int] | None,
        pace: Pace,
        free: Ends | None = None,
        fold: Fold | None = None,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        """`marks_from`: the sink's partition of marks, and where to read on there; None for a topic without marks.
        `free`: for `Pace.ASIDE`, the ends of a mark that all have passed before anybody shows it. `fold`: makes changes
        of the topic's records, where they are not changes themselves.
        """
        self.declared = declared
        self.partitions = tuple(partitions)
        self.before: Ends = {at: place.ends[at] for at in self.partitions if at in place.ends}  # as the store has them
        self.ends: Positions = {at: place.ends.get(at, starts[at]) for at in self.partitions}
        self.last = place.mark
        self.pace = pace
        self.rows = 0  # that were handed out
        self._free = free or {}
        self._fold = fold
        self._marks_from = marks_from
        self._marks: deque[tuple[Mark, Ends]] = deque()
        self._inboxes = {at: Inbox(self.ends[at]) for at in self.partitions}
        self._seen = False
        self._now_ms = now_ms

    # What to fetch ----------------------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """Bytes that were read and are not applied."""
        return sum(inbox.size for inbox in self._inboxes.values())

    def wanted(self) -> Positions:
        """Where to fetch from next, in the order of need."""
        marks: Positions = {}
        if self._marks_from is not None and len(self._marks) < MARKS_AHEAD:
            marks[self._marks_from[0]] = self._marks_from[1]
        aim = self._marks[0][1] if self._marks else {}
        needed = {at: inbox.position for at, inbox in self._inboxes.items() if inbox.position < aim.get(at, 0)}
        has_room = self.held < HELD_BYTES
        ahead = {
            at: inbox.position for at, inbox in self._inboxes.items() if has_room and inbox.size < READ_AHEAD_BYTES
        }
        return marks | needed | ahead

    def note(self, fetched: Fetched) -> None:
        if self._marks_from is not None and fetched.at == self._marks_from[0]:
            if fetched.offset != self._marks_from[1]:
                return
            self._marks_from = (fetched.at, fetched.next_offset)
            for row in fetched.rows():
                if row.value is not None:
                    self.note_mark(marks_topics.decode(row.value))
        elif fetched.at in self._inboxes:
            self._inboxes[fetched.at].note(fetched)

    def note_mark(self, mark: Mark) -> None:
        ends = {at: mark.ends.get(at, self.ends[at]) for at in self.partitions}
        known = self._marks[-1][1] if self._marks else self.ends
        last = self._marks[-1][0] if self._marks else self.last
        if not is_news(mark, ends, known, last):
            self._seen |= mark == self.last
            return
        if self.pace is Pace.WHOLE and is_left_behind(
            last, mark, seen=self._seen, now_ms=self._now_ms(), horizon_ms=self.declared.horizon_ms
        ):
            raise LeftBehind(
                f"{self._said()} is applied up to a mark that is older than the horizon of"
                f" {self.declared.horizon_ms} ms; it is built again"
            )
        self._seen = True
        self._marks.append((mark, ends))

    def _said(self) -> str:
        return self.partitions[0].topic if self.partitions else "nothing"

    # What to apply ----------------------------------------------------------------------------------------------------

    @property
    def positions(self) -> Positions:
        return {at: inbox.position for at, inbox in self._inboxes.items()}

    @property
    def behind(self) -> int:
        """Records up to the newest mark that is known."""
        aim = self._marks[-1][1] if self._marks else self.ends
        return sum(max(0, aim[at] - end) for at, end in self.ends.items())

    def next(self) -> Stretch | None:
        """What can be applied now; None: fetch first."""
        positions = self.positions
        if self.pace is Pace.BATCHES:
            return self._stretch(positions, None) if positions != self.ends else None
        count = there([ends for _, ends in self._marks], positions)
        if count:
            mark, ends = [self._marks.popleft() for _ in range(count)][-1]
            return self._stretch(ends, mark)
        if self._marks and self.held > HELD_BYTES:
            return self._part(self._marks[0][1], positions)
        return None

    def _part(self, mark: Ends, positions: Ends) -> Stretch | None:
        """Of a micro-batch that is not there yet, where nobody looks."""
        free: Ends = {}
        if self.pace is Pace.ANY:
            free = mark
        elif self.pace is Pace.ASIDE:
            free = self._free
        ends = cut(self.ends, positions, mark, free)
        return self._stretch(ends, None) if ends != self.ends else None

    @property
    def is_whole(self) -> bool:
        """Whether what is applied ends where a mark does. Before the first mark nobody has computed anything: a view
        without rows would be taken for the answer.
        """
        if self.pace is Pace.BATCHES:
            return True
        return self.last is not None and all(self.last.ends.get(at, end) == end for at, end in self.ends.items())

    def is_whole_at(self, stretch: Stretch) -> bool:
        return self.pace is Pace.BATCHES or stretch.mark is not None

    def shown(self) -> None:
        """From now on readers look."""
        if self.pace is not Pace.BATCHES:
            self.pace = Pace.WHOLE

    def nothing(self) -> Stretch:
        """A stretch without changes, for what is shown where it stands."""
        return Stretch([], self.ends, self.last)

    def applied(self, stretch: Stretch) -> None:
        self.before = self.ends = dict(stretch.ends)
        self.last = stretch.mark or self.last
        self.rows += len(stretch.changes)

    def _stretch(self, ends: Ends, mark: Mark | None) -> Stretch:
        changes: list[Change] = []
        taken = [(at, rows) for at in self.partitions if (rows := self._inboxes[at].take(self.ends[at], ends[at]))]
        if self._fold is not None:
            changes = self._fold(taken)
        else:
            for at, rows in taken:
                # A pipeline writes what is declared; any other producer may say more than a view has.
                exact = self._marks_from is not None
                changes += changes_of(self.declared, at, rows, tombstones=True, exact=exact)
        return Stretch(changes, dict(ends), mark)


# The shell ------------------------------------------------------------------------------------------------------------


def opened(
    cluster: Cluster,
    generation: Generation,
    place: Place,
    *,
    pace: Pace,
    partitions: Iterable[TopicPartition] | None = None,
    free: Ends | None = None,
    fold: Fold | None = None,
) -> Reading:
    """A reading of this generation's topic from `place` on; all partitions by default."""
    every = list(cluster.partitions(generation.topic) if partitions is None else partitions)
    starts = _offsets(cluster, every, EARLIEST)
    if gone := [at for at in every if at in place.ends and place.ends[at] < starts[at]]:
        raise LeftBehind(
            f"{gone[0]} begins at offset {starts[gone[0]]}, and the store has it up to {place.ends[gone[0]]};"
            " it is built again"
        )
    if not generation.sink and pace is Pace.WHOLE:
        _check_horizon(cluster, generation, place, every)
    marks_from = None
    if generation.sink:
        at = partition_of_marks(generation.sink)
        marks_from = (at, _start_of_marks(cluster, at, place.mark, generation))
    return Reading(
        generation.declared,
        every,
        place,
        starts,
        marks_from=marks_from,
        pace=pace if generation.sink else Pace.BATCHES,
        free=free,
        fold=fold,
    )


def _check_horizon(
    cluster: Cluster, generation: Generation, place: Place, partitions: Iterable[TopicPartition]
) -> None:
    """Of a topic without marks: what comes next must be younger than the horizon, or of its deletes some are gone."""
    horizon_ms = generation.declared.horizon_ms
    read = [at for at in partitions if at in place.ends]
    oldest_ms = max(0, int(time.time() * 1000) - horizon_ms)
    young, ends = _offsets(cluster, read, oldest_ms), _offsets(cluster, read, LATEST)
    for at in read:
        if place.ends[at] < (ends[at] if young[at] == NOT_FOUND else young[at]):
            raise LeftBehind(
                f"{at} is applied up to offset {place.ends[at]}, and what comes next is older than the horizon of"
                f" {horizon_ms} ms; it is built again"
            )


def _start_of_marks(cluster: Cluster, at: TopicPartition, last: Mark | None, generation: Generation) -> int:
    """The mark that was applied last. One that may be compacted is looked for by its time; later is not a fault: it
    is then the next one that is not missed.
    """
    if last is None:
        return _offsets(cluster, [at], EARLIEST)[at]
    near = _offsets(cluster, [at], max(0, last.time_ms - SLACK_MS))[at]
    if near == NOT_FOUND:
        near = list_offsets(cluster, {at: LATEST}, isolation=READ_COMMITTED)[at].offset
    if not is_kept(last, int(time.time() * 1000), generation.declared.horizon_ms):
        return near
    found = offset_of(cluster, at, last, near)
    if found is None:
        raise LeftBehind(
            f"{generation.topic} is applied up to micro-batch {last.batch_id} of query {last.query_id}, which this log"
            " does not have: it was created again or restored from an older backup, or the store belongs to another log"
            " (then stop this applier now); it is built again"
        )
    return found


def _offsets(cluster: Cluster, partitions: Iterable[TopicPartition], when: int) -> dict[TopicPartition, int]:
    wanted: Mapping[TopicPartition, int] = dict.fromkeys(partitions, when)
    return {at: found.offset for at, found in list_offsets(cluster, wanted).items()}
