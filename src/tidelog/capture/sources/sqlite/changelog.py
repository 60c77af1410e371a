"""Reading the table of changes: a stream of events.

Which changes were one transaction, SQLite does not tell a trigger. But a reader sees whole transactions only, and their
changes lie side by side. So the unit is what one look finds: every transaction lies in one unit, whole, and a unit may
have several (docs/decisions/sqlite_by_triggers.md). Its id is the number of its first change, which is the same after
a restart, when the same look finds more: the first rows are the same.

A look costs microseconds where nothing changed (`PRAGMA data_version`); between two the reader sleeps a little longer
each time.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

from tidelog.capture.change import (
    CREATE,
    DELETE,
    TRUNCATE,
    UPDATE,
    Begin,
    Commit,
    Event,
    Idle,
    Message,
    Position,
    RowChange,
    SchemaChange,
    SourceTable,
    Values,
)
from tidelog.capture.sources.sqlite.shapes import SCHEMA, quoted
from tidelog.capture.sources.sqlite.triggers import Names

WATERMARK = "tidelog.watermark"
FIRST_SLEEP_S, LONGEST_SLEEP_S = 0.001, 0.02
PRUNE_EVERY_S = 2.0
PRUNE_ROWS = 10_000  # at a time: the write lock is somebody else's, too
PRUNE_WAIT_MS = 50

ShapeOf = Callable[[int], tuple[SourceTable, Callable[[Sequence[Any]], Values]]]


class Changelog:
    """A `Stream`. `bring_in_step` is called where the file's schema changed; `shape_of` gives tables by number."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        names: Names,
        log: str,
        begin: int,
        bring_in_step: Callable[[], None],
        shape_of: ShapeOf,
    ) -> None:
        self._connection, self._names, self._log = connection, names, log
        self._bring_in_step, self._shape_of = bring_in_step, shape_of
        self._at = begin  # the last change that was given
        self._upto: int | None = None  # the last change of the unit that is being given
        self._looked_us = 0  # when it was looked for: all that was committed before is in it, or was given
        self._is_time_asked = False
        self._data_version: int | None = None
        self._schema_version: int | None = None
        self._confirmed, self._pruned_at = begin, time.monotonic()

    def read(self, limit: int, wait_s: float) -> Sequence[Event]:
        begins, now_us = self._upto is None, time.time_ns() // 1000
        if begins and not self._look(wait_s):
            return [Idle(self._position(self._at), now_us)] if wait_s > 0 else []
        self._looked_us = now_us if begins else self._looked_us
        assert self._upto is not None
        rows = self._connection.execute(
            f"SELECT * FROM {quoted(self._names.changes)} WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
            (self._at, self._upto, limit),
        ).fetchall()
        events: list[Event] = []
        if begins:
            first_us = rows[0][3] * 1000 if rows else 0
            events.append(Begin(str(self._at + 1), first_us))
        events += [self._event(row) for row in rows]
        if rows:
            self._at = rows[-1][0]
        if len(rows) < limit or self._at >= self._upto:
            self._at, self._upto = self._upto, None
            events.append(Commit(self._position(self._at), rows[-1][3] * 1000 if rows else 0))
            if self._is_time_asked:
                self._is_time_asked = False
                events.append(Idle(self._position(self._at), self._looked_us))
        return events

    def beat(self) -> None:
        """Asks for the time behind the unit that is being given, or the next one."""
        self._is_time_asked = True

    def confirm(self, position: Position) -> None:
        self._confirmed = max(self._confirmed, int(position["id"]))
        if time.monotonic() - self._pruned_at >= PRUNE_EVERY_S:
            self.prune()

    def close(self) -> None:
        self.prune()

    def prune(self) -> None:
        """Deletes what is confirmed, a stretch at a time; where somebody writes, another time."""
        self._pruned_at = time.monotonic()
        changes, state = quoted(self._names.changes), quoted(self._names.state)
        self._connection.execute(f"PRAGMA busy_timeout = {PRUNE_WAIT_MS}")
        try:
            while True:
                self._connection.execute("BEGIN IMMEDIATE")
                gone = self._connection.execute(
                    f"DELETE FROM {changes} WHERE id IN (SELECT id FROM {changes} WHERE id <= ? ORDER BY id LIMIT ?)",
                    (self._confirmed, PRUNE_ROWS),
                ).rowcount
                if gone:
                    self._connection.execute(f"UPDATE {state} SET pruned = max(pruned, ?)", (self._confirmed,))
                self._connection.execute("COMMIT")
                if gone < PRUNE_ROWS:
                    return
        except sqlite3.OperationalError:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        finally:
            self._connection.execute("PRAGMA busy_timeout = 10000")

    def _look(self, wait_s: float) -> bool:
        """Whether there is something; sets the end of the unit."""
        deadline, sleep_s = time.monotonic() + wait_s, FIRST_SLEEP_S
        while True:
            if self._is_news():
                (last,) = self._connection.execute(f"SELECT max(id) FROM {quoted(self._names.changes)}").fetchone()
                if last is not None and last > self._at:
                    self._upto = last
                    return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(sleep_s, left))
            sleep_s = min(2 * sleep_s, LONGEST_SLEEP_S)

    def _is_news(self) -> bool:
        """Whether somebody else has committed since. Our own writes (a watermark) count by `look_again`."""
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        if version == self._data_version:
            return False
        (schema,) = self._connection.execute("PRAGMA schema_version").fetchone()
        if schema != self._schema_version:
            self._bring_in_step()
            (self._schema_version,) = self._connection.execute("PRAGMA schema_version").fetchone()
        self._data_version = version
        return True

    def look_again(self) -> None:
        self._data_version = None

    def _position(self, at: int) -> Position:
        return {"log": self._log, "id": at}

    def _event(self, row: Sequence[Any]) -> Event:
        number, shape, op, at_ms = row[:4]
        if op == "w":
            return Message(WATERMARK, str(row[4]).encode(), True, (number, at_ms))
        table, read = self._shape_of(shape)
        if op == "s":
            return SchemaChange(table, "", SCHEMA, None, self._position(number))
        width = 4 + 2 * len(table.columns)
        before, after = row[4:width:2], row[5:width:2]
        where = (number, at_ms)
        if op == CREATE:
            return RowChange(table, CREATE, None, read(after), where)
        if op == UPDATE:
            return RowChange(table, UPDATE, read(before), read(after), where)
        if op == DELETE:
            return RowChange(table, DELETE, read(before), None, where)
        if op == "U":
            return RowChange(table, UPDATE, None, read(after), where)
        return RowChange(table, TRUNCATE, None, None, where)
