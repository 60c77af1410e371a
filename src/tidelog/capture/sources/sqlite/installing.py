"""Brings triggers and shapes in step with the tables that are there, under the file's write lock.

    a table that was not captured      a shape and triggers; its rows are logged as created, unless the capture is new
                                       itself: then the snapshot reads them
    one with more columns              a new shape and triggers; rows that have something in a new column by now are
                                       logged: they were changed since, and the old triggers did not see it
    one with other columns             a new shape and triggers
    one that lost its triggers         (made anew under its old name, as SQLite advises for large changes) is logged as
                                       truncated, and all its rows as created: what became of them meanwhile nobody saw
    one that is gone                   its shape is not live any more. If the name comes back, it is as one that
                                       lost its triggers

All of it in one transaction: no write of anybody lies between the look and the new triggers.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence

from tidelog.capture.sources.sqlite.shapes import SqliteTable, captured_names, described, quoted
from tidelog.capture.sources.sqlite.triggers import NOW_MS, Names, create_tables, create_triggers, log_rows, widen


def is_installed(connection: sqlite3.Connection, names: Names) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (names.state,)).fetchone()
    return found is not None


def install(connection: sqlite3.Connection, names: Names, patterns: Sequence[str]) -> None:
    """What `prepare` does; nothing where all is in step."""
    if is_installed(connection, names) and not _steps(connection, names, patterns):
        return
    with Immediately(connection):
        fresh = not is_installed(connection, names)
        if fresh:
            for statement in create_tables(names):
                connection.execute(statement)
            connection.execute(f"INSERT INTO {quoted(names.state)} VALUES (?, 0)", (os.urandom(6).hex(),))
        _bring(connection, names, patterns, fresh=fresh)


def remove(connection: sqlite3.Connection, names: Names) -> list[str]:
    done = []
    with Immediately(connection):
        for name, table in _triggers(connection, names):
            connection.execute(f"DROP TRIGGER {quoted(name)}")
            done.append(f"trigger {name} of table {table} is dropped")
        for name in names.tables:
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone():
                connection.execute(f"DROP TABLE {quoted(name)}")
                done.append(f"table {name} is dropped")
    return done


class Immediately:
    """A transaction that has the write lock from its beginning."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        self._connection.execute("COMMIT" if kind is None else "ROLLBACK")


def live_shapes(connection: sqlite3.Connection, names: Names) -> dict[str, tuple[int, SqliteTable]]:
    found = connection.execute(
        f"SELECT name, shape, described FROM {quoted(names.shapes)} WHERE live ORDER BY shape"
    ).fetchall()
    return {name: (shape, SqliteTable.from_text(name, text)) for name, shape, text in found}


def _triggers(connection: sqlite3.Connection, names: Names) -> list[tuple[str, str]]:
    found = connection.execute("SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger'").fetchall()
    return [(name, table) for name, table in found if names.shape_of(name) is not None]


def _has_triggers(connection: sqlite3.Connection, names: Names, shape: int, table: str) -> bool:
    found = set(_triggers(connection, names))
    return all((names.trigger(shape, what), table) in found for what in ("bi", "ai", "au", "ad"))


def _steps(connection: sqlite3.Connection, names: Names, patterns: Sequence[str]) -> bool:
    """Whether anything is out of step."""
    live = live_shapes(connection, names)
    there = captured_names(connection, patterns)
    if set(live) != set(there):
        return True
    return any(
        described(connection, name) != live[name][1] or not _has_triggers(connection, names, live[name][0], name)
        for name in there
    )


def _bring(connection: sqlite3.Connection, names: Names, patterns: Sequence[str], *, fresh: bool) -> None:
    live = live_shapes(connection, names)
    had = {name for (name,) in connection.execute(f"SELECT DISTINCT name FROM {quoted(names.shapes)}")}
    there = captured_names(connection, patterns)
    for name in [name for name in live if name not in there]:
        _retire(connection, names, live[name][0])
    for name in there:
        now = described(connection, name)
        before = live.get(name)
        seen = before is not None and _has_triggers(connection, names, before[0], name)
        if before is not None and seen and before[1] == now:
            continue
        if before is not None:
            _retire(connection, names, before[0])
        shape = _make(connection, names, now)
        if fresh:
            continue
        _log(connection, names, shape, now, before[1] if seen and before is not None else None, known=name in had)


def _retire(connection: sqlite3.Connection, names: Names, shape: int) -> None:
    connection.execute(f"UPDATE {quoted(names.shapes)} SET live = 0 WHERE shape = ?", (shape,))
    connection.execute(f"DELETE FROM {quoted(names.replaced)} WHERE shape = ?", (shape,))
    for name, _ in _triggers(connection, names):
        if names.shape_of(name) == shape:
            connection.execute(f"DROP TRIGGER {quoted(name)}")


def _make(connection: sqlite3.Connection, names: Names, now: SqliteTable) -> int:
    have = len(connection.execute("SELECT 1 FROM pragma_table_info(?)", (names.replaced,)).fetchall()) - 2
    for statement in widen(names, have, len(now.columns)):
        connection.execute(statement)
    added = connection.execute(
        f"INSERT INTO {quoted(names.shapes)} (name, described, live) VALUES (?, ?, 1)", (now.name, now.to_text())
    )
    shape = added.lastrowid
    assert shape is not None, "it has just been inserted"
    for statement in create_triggers(names, shape, now):
        connection.execute(statement)
    return shape


def _log(
    connection: sqlite3.Connection,
    names: Names,
    shape: int,
    now: SqliteTable,
    before: SqliteTable | None,
    *,
    known: bool,
) -> None:
    """`before` is the shape that it had, if its triggers have seen everything since; `known`: it was captured."""
    changes = quoted(names.changes)
    connection.execute(f"INSERT INTO {changes} (shape, op, at) VALUES (?, 's', {NOW_MS})", (shape,))
    if before is None:
        if known:
            connection.execute(f"INSERT INTO {changes} (shape, op, at) VALUES (?, 't', {NOW_MS})", (shape,))
        connection.execute(log_rows(names, shape, now, "c"))
    elif len(now.columns) > len(before.columns):
        added = [at for at, name in enumerate(now.names) if name not in before.names]
        changed = [f"{quoted(now.names[at])} IS NOT ({now.defaults[at] or 'NULL'})" for at in added]
        connection.execute(log_rows(names, shape, now, "U", " OR ".join(changed) or "0"))
