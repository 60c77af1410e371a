"""Tables: which are captured, and what they look like, by information_schema and by the binlog's table maps.

Rules:
- A row of the binlog is read by its table map alone: names, types, signedness, character sets and the key are those of
  its position. So it does not matter how often a table was changed before the change is read.
- information_schema, which only knows today, adds what the map does not tell, and only to a column that the map has
  just like it: that a BINARY(16) is a UUID or an INET6, its default, its type in words.
- A table is the same object for snapshot and stream as long as nothing of it changes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from tidelog.capture.change import SourceColumn, SourceTable
from tidelog.capture.sources.mysql.kinds import MysqlKind, connect_schema, default_text, in_binlog, parse
from tidelog.capture.sources.mysql.packed import Reader, reader
from tidelog.capture.sources.mysql.session import query
from tidelog.capture.sources.mysql.table_map import MappedColumn, TableMap
from tidelog.errors import ConfigError, SourceLost, UsageError

_OWN = {"information_schema", "mysql", "performance_schema", "sys"}
_TYPES = ("BASE TABLE", "SYSTEM VERSIONED")
_COLUMNS = """SELECT c.TABLE_NAME, c.COLUMN_NAME, c.COLUMN_TYPE, c.IS_NULLABLE, c.COLUMN_DEFAULT, c.EXTRA
    FROM information_schema.COLUMNS c JOIN information_schema.TABLES t USING (TABLE_SCHEMA, TABLE_NAME)
    WHERE c.TABLE_SCHEMA = %s AND t.TABLE_TYPE IN %s {only} ORDER BY c.TABLE_NAME, c.ORDINAL_POSITION"""
_KEYS = """SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = %s AND INDEX_NAME = 'PRIMARY' ORDER BY TABLE_NAME, SEQ_IN_INDEX"""
_COLLATIONS = (
    "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID IS NOT NULL",
    "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS"
    " WHERE ID IS NOT NULL AND CHARACTER_SET_NAME IS NOT NULL",
)


class MysqlColumn(NamedTuple):
    """A column as information_schema has it today."""

    column: SourceColumn
    kind: MysqlKind


class Mapped(NamedTuple):
    """A table as of a table map, and how its rows are read."""

    table: SourceTable
    readers: tuple[Reader, ...]


class Shapes:
    def __init__(self, patterns: Sequence[str], database: str, mariadb: bool) -> None:
        self._patterns = _patterns(patterns, database)
        self._mariadb = mariadb
        self._lock = threading.Lock()
        self._wanted: dict[tuple[str, str], bool] = {}
        self._last: dict[tuple[str, str], SourceTable] = {}
        self._kinds: dict[SourceTable, tuple[MysqlKind, ...]] = {}

    def wants(self, database: str, table: str) -> bool:
        known = self._wanted.get((database, table))
        if known is None:
            name = f"{database}.{table}"
            ours = database.startswith("_tidelog_")
            known = database not in _OWN and not ours and any(fnmatchcase(name, pattern) for pattern in self._patterns)
            self._wanted[database, table] = known
        return known

    def names_database(self, database: str) -> bool:
        """Some table of it may be captured."""
        return any(fnmatchcase(database, pattern.split(".", 1)[0]) for pattern in self._patterns)

    def named_in(self, statement: str) -> bool:
        """It has the name of a database in it that may be captured: its own tables, or another's in a join."""
        words = set(re.findall(r"[\w$]+", statement))
        return any(pattern.split(".", 1)[0] in words for pattern in self._patterns)

    def load(self, connection: Any) -> list[SourceTable]:
        """All that are captured, as they are now."""
        found = query(connection, "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA ORDER BY SCHEMA_NAME")
        databases = [name for (name,) in found if name not in _OWN and self.names_database(name)]
        return [table for database in databases for table in self._load(connection, database, "", ())]

    def now(self, connection: Any, database: str, table: str) -> SourceTable | None:
        """One table as it is now; None where it is gone, or is not one that is captured."""
        tables = self._load(connection, database, "AND c.TABLE_NAME = %s", (table,))
        return tables[0] if tables else None

    def last(self, database: str, table: str) -> SourceTable | None:
        """The newest that was told."""
        return self._last.get((database, table))

    def kinds(self, table: SourceTable) -> tuple[MysqlKind, ...]:
        """Of any source's table: before a restart it was another one's."""
        known = self._kinds.get(table)
        if known is None:
            known = tuple(parse(column.declared, column.connect["optional"]) for column in table.columns)
            self._kinds[table] = known
        return known

    def same(self, table: SourceTable) -> SourceTable:
        """The object that is known for this shape of a table, if it is the newest."""
        with self._lock:
            last = self._last.get((table.schema, table.name))
        return last if last is not None and (last.columns, last.key) == (table.columns, table.key) else table

    def mapped(self, connection: Any, of: TableMap) -> Mapped:
        """A table map's table. It is looked up in information_schema, so callers keep the answer."""
        if not of.named:
            raise SourceLost(
                f"the binlog has rows of {of.database}.{of.table} that were written without the names of columns; "
                "SET GLOBAL binlog_row_metadata = 'FULL', and then take a new snapshot"
            )
        today = {told.column.name: told for told in self._described(connection, of.database, of.table)}
        pairs = [self._agreed(column, today.get(column.name)) for column in of.columns]
        columns, kinds = tuple(told.column for told in pairs), tuple(told.kind for told in pairs)
        readers = tuple(
            reader(column.code, column.meta, kind, column.decode)
            for column, kind in zip(of.columns, kinds, strict=True)
        )
        return Mapped(self._kept(of.database, of.table, columns, of.key, kinds), readers)

    def _agreed(self, column: MappedColumn, today: MysqlColumn | None) -> MysqlColumn:
        if today is not None and in_binlog(today.kind) == column.kind:
            return today
        declared = column.kind.name + (" unsigned" if column.kind.unsigned else "")
        return MysqlColumn(SourceColumn(column.name, connect_schema(column.kind), declared), column.kind)

    def _load(self, connection: Any, database: str, only: str, values: tuple[str, ...]) -> list[SourceTable]:
        rows = query(connection, _COLUMNS.format(only=only), [database, _TYPES, *values])
        keys: dict[str, list[str]] = {}
        for table, column in query(connection, _KEYS, [database]):
            keys.setdefault(table, []).append(column)
        tables: dict[str, list[MysqlColumn]] = {}
        for table, *told in rows:
            if self.wants(database, table):
                tables.setdefault(table, []).append(self._describe(f"{database}.{table}", *told))
        return [
            self._kept(
                database,
                name,
                tuple(described.column for described in columns),
                tuple(keys.get(name, ())),
                tuple(described.kind for described in columns),
            )
            for name, columns in tables.items()
        ]

    def _described(self, connection: Any, database: str, table: str) -> list[MysqlColumn]:
        rows = query(connection, _COLUMNS.format(only="AND c.TABLE_NAME = %s"), [database, _TYPES, table])
        return [self._describe(f"{database}.{table}", *told) for _, *told in rows]

    def _describe(
        self, table: str, name: str, declared: str, nullable: str, default: str | None, extra: str
    ) -> MysqlColumn:
        try:
            kind = parse(declared, nullable == "YES")
        except UsageError as error:
            raise UsageError(f"{table}.{name}: {error}") from None
        text = default_text(kind, default, self._mariadb, "DEFAULT_GENERATED" in (extra or ""))
        return MysqlColumn(SourceColumn(name, connect_schema(kind, text), declared), kind)

    def _kept(
        self,
        database: str,
        name: str,
        columns: tuple[SourceColumn, ...],
        key: tuple[str, ...],
        kinds: tuple[MysqlKind, ...],
    ) -> SourceTable:
        with self._lock:
            last = self._last.get((database, name))
            if last is None or (last.columns, last.key) != (columns, key):
                last = SourceTable(database, name, columns, key)
                self._last[database, name] = last
            self._kinds[last] = kinds
            return last


def collations(connection: Any) -> Mapping[int, str]:
    """The server's character sets by number of collation. MariaDB has the newest in one table, MySQL in the other."""
    names: dict[int, str] = {}
    import pymysql

    for sql in _COLLATIONS:
        try:
            names |= {int(number): name for number, name in query(connection, sql)}
        except pymysql.err.OperationalError as error:
            if error.args[0] != 1054:  # no such column
                raise
    return names


def _patterns(patterns: Sequence[str], database: str) -> list[str]:
    whole = [pattern if "." in pattern else f"{database}.{pattern}" for pattern in patterns] or [f"{database}.*"]
    bad = [pattern for pattern in whole if pattern.count(".") != 1 or pattern.split(".")[0] in _OWN]
    if bad:
        raise ConfigError(f"{bad[0]!r} does not name tables to capture; write database.table, with * for any letters")
    return whole
