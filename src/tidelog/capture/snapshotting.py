"""The initial snapshot: all rows of all tables at one position, read by ranges of keys in several threads.

    whether      by mode, as Debezium names them, and by what is stored (`decide`)
    plan         what is left of each table: ranges (after, to). It lies in the progress, and shrinks with the rows that
                 are stored: a range's `after` is the key of its last stored row
    words        Debezium's, of each row: first, first_in_data_collection, true, last_in_data_collection, last

Rules:
- Tables come one after the other, ranges of one table side by side. Threads read; one thread writes.
- The position of the first attempt stays. After a crash the next attempt sees the tables later, reads only what is
  left, and the stream then begins at the first attempt's position: changes between are told again over rows that have
  them already, and the last event of each key is its newest state. To begin the stream at the second position would
  lose what happened to rows that were stored before (docs/decisions/snapshots_go_on.md).
- One row is held back, since whether it is the last is known by the next. A range is done when its rows are stored.
- A table without a key has one range, and cannot be gone on with in the middle: after a crash it is read again, and
  rows of it may be there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from queue import Queue
from threading import Event, Thread
from typing import Any, NamedTuple

from tidelog.capture.change import Position, SourceTable, Values
from tidelog.capture.source import SourceSnapshot
from tidelog.errors import UsageError

MODES = INITIAL, INITIAL_ONLY, ALWAYS, NO_DATA, WHEN_NEEDED = (
    *("initial", "initial_only", "always", "no_data"),
    "when_needed",
)
PARTS = 4  # ranges of a table, and threads that read them
CHUNK_ROWS = 2_000
CHUNKS_AHEAD = 4

Range = tuple[Values | None, Values | None]
Plan = dict[str, list[Range]]
Row = tuple[SourceTable, Values, str]  # with Debezium's word


def decide(mode: str, position: Position | None, snapshot: Mapping[str, Any] | None, *, first: bool) -> bool:
    """Whether rows are to be read now. `first`: since the process began, nothing was read."""
    if mode not in MODES:
        raise UsageError(f"{mode!r} is not a way to take a snapshot; there are {', '.join(MODES)}")
    if snapshot is not None:
        return mode != NO_DATA
    if mode == ALWAYS:
        return first
    return mode != NO_DATA and position is None


def to_fields(position: Position, plan: Plan, *, begun: bool) -> dict[str, Any]:
    tables = {name: [[_listed(after), _listed(to)] for after, to in ranges] for name, ranges in plan.items()}
    return {"position": dict(position), "begun": begun, "tables": tables}


def plan_of(content: Mapping[str, Any]) -> Plan:
    return {name: [(_edge(after), _edge(to)) for after, to in ranges] for name, ranges in content["tables"].items()}


def _listed(edge: Values | None) -> list[str] | None:
    return None if edge is None else list(edge)


def _edge(listed: Sequence[str] | None) -> Values | None:
    return None if listed is None else tuple(listed)


class Chunk(NamedTuple):
    number: int  # of its range
    rows: Sequence[Values]
    ends: bool  # the range


class HeldRows(NamedTuple):
    table: SourceTable
    number: int
    values: Values
    first: bool  # of its table


class SnapshotReading:
    """One attempt. `batches` gives rows with their words, and the plan when those are stored."""

    def __init__(
        self,
        snapshot: SourceSnapshot,
        content: Mapping[str, Any] | None,
        *,
        parts: int = PARTS,
        without: Collection[str] = (),
    ) -> None:
        """Tables `without` which it is are read by chunks, which those without a key cannot be."""
        self._snapshot = snapshot
        self.tables = [table for table in snapshot.tables() if not table.key or table.full_name not in without]
        self.position: Position = snapshot.position if content is None else content["position"]
        self._begun = content is not None and bool(content["begun"])
        old = {} if content is None else plan_of(content)
        self.plan: Plan = {
            table.full_name: old[table.full_name] if table.full_name in old else list(snapshot.split(table, parts))
            for table in self.tables
        }
        self._held: HeldRows | None = None
        self._stop = Event()
        self.done = 0

    @property
    def total(self) -> int:
        return sum(self._snapshot.count(table) for table in self.tables if self.plan[table.full_name])

    def fields(self) -> dict[str, Any]:
        return to_fields(self.position, self.plan, begun=self._begun)

    def batches(self) -> Iterator[list[Row]]:
        """Each is to be stored, with `fields()` as it is then, before the next is asked for."""
        try:
            for table in self.tables:
                yield from self._table(table)
            if self._held is not None:
                last, self._held = self._held, None
                self._stored(last.table, last.number, last.values)
                yield [(last.table, last.values, "last")]
        finally:
            self._stop.set()

    def _table(self, table: SourceTable) -> Iterator[list[Row]]:
        ranges = self.plan[table.full_name]
        self._last: dict[int, Values] = {}
        self._ended: set[int] = set()
        self._whole = list(ranges)
        first = True
        for chunk in self._chunks(table, ranges):
            rows: list[Row] = []
            for values in chunk.rows:
                self._release(rows, table)
                self._held = HeldRows(table, chunk.number, values, first)
                first = False
            if chunk.ends:
                self._ended.add(chunk.number)
            self._plan_again(table)
            if rows:
                yield rows
        self._plan_again(table)

    def _release(self, rows: list[Row], table: SourceTable) -> None:
        """The row that was held back: another one has come."""
        held = self._held
        if held is None:
            return
        inside = held.table is table
        word = "true" if inside else "last_in_data_collection"
        if held.first and inside:
            word = "first_in_data_collection"
        if not self._begun:
            word, self._begun = "first", True
        rows.append((held.table, held.values, word))
        if inside:
            self._last[held.number] = held.values
            self.done += 1
        else:
            self._stored(held.table, held.number, held.values)

    def _stored(self, table: SourceTable, number: int, values: Values) -> None:
        """The last row of a table that was read before this one."""
        self.done += 1
        self._begun = True
        self.plan[table.full_name] = []

    def _plan_again(self, table: SourceTable) -> None:
        held = self._held if self._held is not None and self._held.table is table else None
        left: list[Range] = []
        for number, (after, to) in enumerate(self._whole):
            if number in self._ended and (held is None or held.number != number):
                continue
            if number in self._last and table.key:
                after = key_of(table)(self._last[number])
            left.append((after, to))
        self.plan[table.full_name] = left

    def _chunks(self, table: SourceTable, ranges: Sequence[Range]) -> Iterator[Chunk]:
        """From as many threads as there are ranges, up to PARTS."""
        queue: Queue[Chunk | BaseException] = Queue(CHUNKS_AHEAD)
        waiting = list(enumerate(ranges))
        threads = [
            Thread(target=self._read, args=(table, waiting, queue), daemon=True, name=f"snapshot-{number}")
            for number in range(min(PARTS, len(ranges)))
        ]
        for thread in threads:
            thread.start()
        for _ in range(len(ranges)):
            while True:
                chunk = queue.get()
                if isinstance(chunk, BaseException):
                    self._stop.set()
                    raise chunk
                yield chunk
                if chunk.ends:
                    break

    def _read(self, table: SourceTable, waiting: list[tuple[int, Range]], queue: Queue[Chunk | BaseException]) -> None:
        try:
            while waiting and not self._stop.is_set():
                try:
                    number, (after, to) = waiting.pop(0)
                except IndexError:  # another thread took it
                    return
                for rows in self._snapshot.rows(table, after, to, CHUNK_ROWS):
                    self._put(queue, Chunk(number, rows, ends=False))
                self._put(queue, Chunk(number, (), ends=True))
        except BaseException as error:
            self._put(queue, error)

    def _put(self, queue: Queue[Chunk | BaseException], one: Chunk | BaseException) -> None:
        from queue import Full

        while not self._stop.is_set():
            try:
                queue.put(one, timeout=0.1)
                return
            except Full:
                continue


def key_of(table: SourceTable) -> Callable[[Values], Values]:
    names = [column.name for column in table.columns]
    places = [names.index(name) for name in table.key]
    return lambda values: tuple([values[at] for at in places])
