"""Drives incremental snapshots: signals and commands come in, chunks are read, windows pass (`incremental.py` decides).

    signals     the topic PREFIX.signals, from the offset that the progress has; as Debezium's
    commands    `tidelog capture snapshot NAME`, by `__tidelog.commands`

Rules:
- What was asked for is stored before a chunk is read, with the offset of the signal or command: a crash does not forget
  it, and what is asked of a capture that is stopped, or starts, is done when it runs.
- A signal that cannot be followed is logged and passed over. A chunk that cannot be read is tried again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from logging import Logger
from typing import Any
from uuid import uuid4

from tidelog.capture import incremental, topics
from tidelog.capture.change import Event, SourceTable
from tidelog.capture.conditions import Keeps, keeps
from tidelog.capture.incremental import CHUNK_ROWS, ChunkWindow, Incremental
from tidelog.capture.newcomers import ASKED_BY
from tidelog.capture.progress import CaptureProgress
from tidelog.capture.settings import CaptureSettings
from tidelog.capture.snapshotting import key_of
from tidelog.capture.source import ChangeSource
from tidelog.capture.supervising import SNAPSHOT, Lookout
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control.captures import read_captures
from tidelog.control.reading import read, span
from tidelog.control.status import Commands, send_command
from tidelog.errors import SourceLost, TidelogError, UsageError

AGAIN_S = 1.0  # after a chunk that could not be read
KIND = "capture"
EXECUTE, PAUSE, RESUME, STOP = WAYS = ("execute", "pause", "resume", "stop")  # of a snapshot, as signals name them


def ask_for_snapshot(cluster: Cluster, name: str, tables: Sequence[str], what: str = EXECUTE) -> None:
    """Tells a running capture to read tables again, or what becomes of that. It must have such tables."""
    found = read_captures(cluster).get(name)
    if found is None:
        raise UsageError(f"no capture is called {name[:200]!r}; `tidelog capture status` lists them")
    if what not in WAYS:
        raise UsageError(f"{what[:100]!r} is nothing that a snapshot can be told; there are {', '.join(WAYS)}")
    if what == EXECUTE and not tables:
        raise UsageError("no tables are named; say them as schema.table")
    unknown = [table for table in tables if table not in found.tables]
    if unknown:
        raise UsageError(f"{unknown[0][:200]} is not captured by {name}; there are {', '.join(found.tables)}")
    send_command(cluster, KIND, name, SNAPSHOT, tables=list(tables), what=what)


class Chunking:
    def __init__(
        self,
        cluster: Cluster,
        settings: CaptureSettings,
        source: ChangeSource,
        progress: CaptureProgress,
        log: Logger,
        lookout: Lookout,
    ) -> None:
        self._cluster, self._settings, self._source, self._log = cluster, settings, source, log
        self._state: Incremental | None = incremental.from_fields(progress.incremental)
        self._next = self._state  # with the transaction that is under way
        self._signals = progress.signals
        self._commands = Commands(cluster, progress.commands)
        self._lookout, self._looks = lookout, -1
        self._not_before = 0.0
        self._said = ""  # of the last chunk that could not be read
        self._window: ChunkWindow | None = None
        self._over = False
        self.is_dirty = False  # whether what was asked for is not stored

    @property
    def is_busy(self) -> bool:
        return self._state is not None and not self._state.paused

    @property
    def waits_for_its_window(self) -> bool:
        return self._window is not None

    def look(self, progress: CaptureProgress) -> CaptureProgress:
        """Takes what it is told when there may be something, and asks for the next chunk."""
        now = time.monotonic()
        if self._is_due():
            for signal in (*self._told_by_commands(), *self._told_by_signals()):
                self._follow(signal)
        if self._window is None and self.is_busy and not self.is_dirty and now >= self._not_before:
            try:
                self._open_window()
            except SourceLost:
                raise
            except TidelogError as error:
                if str(error) != self._said:
                    self._log.warning("a chunk of %s cannot be read: %s; it is tried again", self._state, error)
                    self._said = str(error)
                self._window, self._not_before = None, now + AGAIN_S
        return progress

    def _is_due(self) -> bool:
        before, self._looks = self._looks, self._lookout.looks
        return self._looks != before

    def _told_by_commands(self) -> list[dict[str, Any]]:
        mine = [
            one
            for one in self._commands.next()
            if one.kind == KIND and one.name == self._settings.known_as and one.command == SNAPSHOT
        ]
        return [
            {
                "type": f"{one.arguments.get('what', EXECUTE)}-snapshot",
                "data": {"data-collections": one.arguments.get("tables")},
                "id": str(one.at_ms),
            }
            for one in mine
        ]

    def _told_by_signals(self) -> list[dict[str, Any]]:
        at = TopicPartition(topics.of_signals(self._settings.prefix), 0)
        topic = self._cluster.ask_metadata([at.topic]).topics.get(at.topic)
        if topic is None or not topic.led:
            return []  # to ask for its offsets would take a tenth of a second: it might have been made just now
        there = span(self._cluster, at, committed=True)
        if there is None or there.end <= self._signals:
            return []
        begin = max(self._signals, there.start)
        found = []
        for _, row in read(self._cluster, {at: begin}, {at: there.end}):
            try:
                signal = json.loads(row.value or b"")
                found.append(signal if isinstance(signal, dict) else {"type": repr(signal)})
            except ValueError as error:
                self._log.warning("signal at offset %d of %s is passed over: %s", row.offset, at.topic, error)
        self._signals, self.is_dirty = there.end, True
        return found

    def _follow(self, signal: dict[str, Any]) -> None:
        tables = self._tables()
        try:
            before, after = self._state, incremental.told(self._state, signal, [table.full_name for table in tables])
            known = {} if before is None else before.conditions
            for table in tables:
                if after is not None and after.conditions.get(table.full_name) != known.get(table.full_name):
                    self._keeps(after, table)  # which refuses what is no condition
            self._state = after
        except (ValueError, TypeError, AttributeError, UsageError) as error:
            self._log.warning("signal %s is passed over: %s", signal, error)
            return
        self._next, self.is_dirty = self._state, True
        if before is not None and (self._state is None or self._state.tables[:1] != before.tables[:1]):
            self._window = None

    def take_in(self, tables: Sequence[str], anew: Collection[str]) -> None:
        """Has these read, too; those `anew` from their beginning."""
        before = self._state
        self._state = self._next = incremental.with_tables(before, tables, ASKED_BY, anew=anew)
        self.is_dirty = True
        if before is not None and (before.tables[:1] != self._state.tables[:1] or before.tables[0] in anew):
            self._window = None

    def _tables(self) -> Sequence[SourceTable]:
        return self._source.tables()

    # Chunks -----------------------------------------------------------------------------------------------------------

    def _open_window(self) -> None:
        state = self._state
        assert state is not None
        table = next((one for one in self._tables() if one.full_name == state.tables[0]), None)
        if table is None or not table.key:
            self._leave_out(state, f"{state.tables[0]} has no primary key, or is gone")
            return
        try:
            keep = self._keeps(state, table)
        except UsageError as error:  # a column of it is gone, or is hidden by now
            self._leave_out(state, str(error))
            return
        if state.to is None:
            state = replace(state, to=self._source.last_key(table))
        number = uuid4().hex
        self._source.watermark(incremental.mark(number, "low"))
        rows = [] if state.to is None else self._source.chunk(table, state.after, state.to, CHUNK_ROWS)
        self._source.watermark(incremental.mark(number, "high"))
        self._window = incremental.window_of(number, table, rows, key_of(table), CHUNK_ROWS, keep)
        self._state = self._next = state

    def _leave_out(self, state: Incremental, why: str) -> None:
        """The first table, or what is left of it."""
        self._log.warning("%s; %s is left out of the snapshot", why, state.tables[0])
        left = state.tables[1:]
        self._state = self._next = replace(state, tables=left, after=None, to=None) if left else None
        self.is_dirty = True

    def _keeps(self, state: Incremental | None, table: SourceTable) -> Keeps | None:
        text = None if state is None else state.conditions.get(table.full_name)
        hidden = {*self._settings.exclude, *self._settings.mask}
        return None if text is None else keeps(table, text, hidden)

    def pass_through(self, events: Sequence[Event]) -> Sequence[Event]:
        if self._window is None or self._over:
            return events
        out, given = incremental.pass_through(self._window, events, key_of)
        if given is not None:
            assert self._state is not None
            self._over, self._next = True, incremental.after_window(self._state, self._window, given)
        return out

    def stored(self, progress: CaptureProgress) -> CaptureProgress:
        """With what is true when the transaction is committed."""
        return replace(
            progress,
            incremental=incremental.to_fields(self._next),
            signals=self._signals,
            commands=self._commands.position,
        )

    def commit(self) -> None:
        self.is_dirty = False
        if self._over:
            self._window, self._over, self._state = None, False, self._next
