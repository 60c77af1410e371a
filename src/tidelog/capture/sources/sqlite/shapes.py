"""What tables of a SQLite file look like, and SQL by which their rows are told apart.

A *shape* is one state of one table's columns, with a number. Triggers are made for a shape and write its number with
every change, so that a change is read by the columns that it was written with, whatever the table has since.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from tidelog.capture.change import SourceColumn, SourceTable
from tidelog.capture.sources.sqlite.values import connect_schema

SCHEMA = "main"
OURS = "_tidelog_"
GENERATED = (2, 3)


class UniqueIndex(NamedTuple):
    """Columns with their collations. One with an expression in it has none."""

    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SqliteTable:
    """A table as the file has it."""

    name: str
    columns: tuple[tuple[str, str, bool], ...]  # name, declared type, whether it may be null
    key: tuple[str, ...]
    has_rowid: bool
    unique: tuple[UniqueIndex, ...] = ()
    defaults: tuple[str | None, ...] = ()

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.columns]

    def to_text(self) -> str:
        return json.dumps([self.columns, self.key, self.has_rowid, self.unique, self.defaults])

    @classmethod
    def from_text(cls, name: str, content: str) -> SqliteTable:
        columns, key, has_rowid, unique, defaults = json.loads(content)
        indexes = tuple(UniqueIndex(tuple((column, coll) for column, coll in one[0])) for one in unique)
        return cls(name, tuple((c, d, n) for c, d, n in columns), tuple(key), has_rowid, indexes, tuple(defaults))

    def table(self) -> SourceTable:
        columns = tuple(
            SourceColumn(name, connect_schema(declared, optional=optional), declared)
            for name, declared, optional in self.columns
        )
        return SourceTable(SCHEMA, self.name, columns, self.key)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def matches(name: str, patterns: Sequence[str]) -> bool:
    full = f"{SCHEMA}.{name}"
    return any(fnmatchcase(full, one if "." in one or one == "*" else f"{SCHEMA}.{one}") for one in patterns)


def captured_names(connection: sqlite3.Connection, patterns: Sequence[str]) -> list[str]:
    """Tables that match, by name; no virtual ones, whose rows no trigger sees, and none of ours."""
    listed = connection.execute("SELECT name, type FROM pragma_table_list WHERE schema = 'main'").fetchall()
    return sorted(
        name
        for name, kind in listed
        if kind == "table" and not name.startswith(("sqlite_", OURS)) and matches(name, patterns)
    )


def described(connection: sqlite3.Connection, name: str) -> SqliteTable:
    said = connection.execute("SELECT * FROM pragma_table_xinfo(?)", (name,)).fetchall()
    rows = [row for row in said if row[6] == 0 or row[6] in GENERATED]
    key = tuple(row[1] for row in sorted((row for row in rows if row[5]), key=lambda row: row[5]))
    (without_rowid,) = connection.execute(
        "SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?", (name,)
    ).fetchone()
    columns = tuple((row[1], row[2] or "", not row[3] and row[1] not in key) for row in rows)
    return SqliteTable(name, columns, key, not without_rowid, _unique(connection, name), tuple(row[4] for row in rows))


def _unique(connection: sqlite3.Connection, name: str) -> tuple[UniqueIndex, ...]:
    found = []
    for row in connection.execute('SELECT name FROM pragma_index_list(?) WHERE "unique"', (name,)).fetchall():
        parts = connection.execute("SELECT name, coll FROM pragma_index_xinfo(?) WHERE key", row).fetchall()
        found.append(UniqueIndex(tuple(parts) if all(part[0] is not None for part in parts) else ()))
    return tuple(found)


# SQL of one table -----------------------------------------------------------------------------------------------------


def conflicting(one: SqliteTable, new: str, row: str) -> str:
    """Whether a row would have to go for the new one. More than those may be said to: who asks looks again later."""
    ways = [f"{row}.rowid = {new}.rowid"] if one.has_rowid else []
    if one.key:
        ways.append(_equal([(column, "") for column in one.key], new, row))
    ways += [_equal(index.columns, new, row) for index in one.unique if index.columns]
    return " OR ".join(dict.fromkeys(ways)) or "0"


def _equal(columns: Sequence[tuple[str, str]], new: str, row: str) -> str:
    def one(column: str, collation: str) -> str:
        by = f" COLLATE {quoted(collation)}" if collation and collation != "BINARY" else ""
        return f"{row}.{quoted(column)} = {new}.{quoted(column)}{by}"

    return "(" + " AND ".join(one(column, collation) for column, collation in columns) + ")"


def typed(one: SqliteTable) -> list[str]:
    return [str(connect_schema(declared, optional=True)["type"]) for _, declared, _ in one.columns]


def row_list(one: SqliteTable, prefix: str = "") -> str:
    return ", ".join(f"{prefix}{quoted(name)}" for name in one.names)


def parameters(values: Sequence[Any]) -> str:
    return ", ".join("?" for _ in values)
