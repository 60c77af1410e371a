"""Rows of all captured tables at one position of the binlog, by several connections that see the same.

    FLUSH TABLES WITH READ LOCK -> START TRANSACTION WITH CONSISTENT SNAPSHOT on each -> the position -> UNLOCK TABLES

Nothing is written for so long; it is milliseconds once the lock is had, and the lock is waited for at most
LOCK_SECONDS. Without the right to it, MariaDB tells the position of one such transaction by itself
(Binlog_snapshot_position), so one connection reads everything. MySQL needs the right.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from tidelog.capture.change import Position, SourceTable, Values
from tidelog.capture.sources.mysql import session
from tidelog.capture.sources.mysql.ends import here, snapshot_end
from tidelog.capture.sources.mysql.keys import Key, between, order, selected
from tidelog.capture.sources.mysql.kinds import from_text
from tidelog.capture.sources.mysql.positions import position
from tidelog.capture.sources.mysql.session import MysqlSettings, query, quoted
from tidelog.capture.sources.mysql.shapes import Shapes
from tidelog.errors import UsageError

READERS = 4
LOCK_SECONDS = 60
_NO_RIGHT = {1044, 1045, 1142, 1227}
_TRANSACTION = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"


class BinlogSnapshot:
    def __init__(self, wanted: MysqlSettings, shapes: Shapes, mariadb: bool) -> None:
        self._settings, self._shapes = wanted, shapes
        self._connections: list[Any] = []
        self._side = session.connect(wanted)  # for counts and bounds, which need not be of the position
        self._side_lock = threading.Lock()
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        try:
            with session.mapped(wanted):
                self.position: Position = self._open(mariadb)
                self._tables = shapes.load(self._connections[0])
        except BaseException:
            self.close()
            raise
        for connection in self._connections:
            self._free.put(connection)

    def tables(self) -> Sequence[SourceTable]:
        return self._tables

    def count(self, table: SourceTable) -> int:
        with self._side_lock, session.mapped(self._settings):
            found = query(
                self._side,
                "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
                [table.schema, table.name],
            )
        return int(found[0][0] or 0) if found else 0

    def split(self, table: SourceTable, parts: int) -> Sequence[tuple[Values | None, Values | None]]:
        if not table.key or parts < 2:
            return [(None, None)]
        with self._side_lock, session.mapped(self._settings):
            bounds = _bounds(self._side, self._shapes, table, parts)
        ends: list[Values | None] = [None, *bounds, None]
        return list(pairwise(ends))

    def rows(
        self, table: SourceTable, after: Values | None, to: Values | None, size: int
    ) -> Iterator[Sequence[Values]]:
        from pymysql.cursors import SSCursor

        key = key_of(self._shapes, table)
        condition, values = between(key, after, to)
        sql = select(self._shapes, table) + f" WHERE {condition}" + (f" ORDER BY {order(key)}" if key else "")
        with self._reader() as connection, connection.cursor(SSCursor) as cursor:
            cursor.execute(sql, values or None)
            converters = converters_of(self._shapes, table)
            while batch := cursor.fetchmany(size):
                yield [as_values(converters, row) for row in batch]

    def close(self) -> None:
        for connection in (*self._connections, self._side):
            session.end(connection)
        self._connections = []

    def _reader(self) -> _Reader:
        return _Reader(self._free, self._settings)

    def _open(self, mariadb: bool) -> Position:
        import pymysql

        self._connections = [self._connect() for _ in range(READERS)]
        lock = self._connect()
        try:
            query(lock, f"SET SESSION lock_wait_timeout = {LOCK_SECONDS}")
            query(lock, "FLUSH TABLES WITH READ LOCK")
            for connection in self._connections:
                query(connection, _TRANSACTION)
            return here(lock, mariadb)  # and the lock ends with its connection
        except pymysql.err.OperationalError as error:
            if error.args[0] not in _NO_RIGHT:
                raise
        finally:
            session.end(lock)
        return self._open_alone(mariadb)

    def _open_alone(self, mariadb: bool) -> Position:
        if not mariadb:
            raise UsageError(
                f"{self._settings.user} may not lock tables for a snapshot; "
                f"GRANT RELOAD ON *.* TO {self._settings.user}"
            )
        while len(self._connections) > 1:
            session.end(self._connections.pop())
        connection = self._connections[0]
        query(connection, _TRANSACTION)
        file, pos = snapshot_end(connection)
        ((gtid,),) = query(connection, "SELECT BINLOG_GTID_POS(%s, %s)", [file, pos])
        return position(str(gtid or ""), file, pos)

    def _connect(self) -> Any:
        connection = session.connect(self._settings)
        query(connection, _ISOLATION)
        # A reader that waits for the log must not be taken for one that is gone.
        query(connection, "SET SESSION net_write_timeout = 3600, wait_timeout = 86400")
        return connection


class _Reader:
    """One of the snapshot's connections, for as long as it is used."""

    def __init__(self, free: queue.SimpleQueue[Any], settings: MysqlSettings) -> None:
        self._free = free
        self._mapped = session.mapped(settings)
        self._connection: Any = None

    def __enter__(self) -> Any:
        self._connection = self._free.get()
        self._mapped.__enter__()
        return self._connection

    def __exit__(self, *error: Any) -> None:
        self._free.put(self._connection)
        self._mapped.__exit__(*error)


def key_of(shapes: Shapes, table: SourceTable) -> Key:
    kinds = dict(zip((column.name for column in table.columns), shapes.kinds(table), strict=True))
    return [(name, kinds[name]) for name in table.key]


def select(shapes: Shapes, table: SourceTable) -> str:
    pairs = zip(table.columns, shapes.kinds(table), strict=True)
    columns = ", ".join(selected(column.name, kind) for column, kind in pairs)
    return f"SELECT {columns} FROM {quoted(table.schema, table.name)}"


def converters_of(shapes: Shapes, table: SourceTable) -> list[Any]:
    return [from_text(kind) for kind in shapes.kinds(table)]


def as_values(converters: Sequence[Any], row: Sequence[Any]) -> Values:
    return tuple("null" if value is None else convert(value) for convert, value in zip(converters, row, strict=True))


def keys_by_order(connection: Any, shapes: Shapes, table: SourceTable, rest: str) -> list[Values]:
    key = key_of(shapes, table)
    columns = ", ".join(selected(*column) for column in key)
    rows = query(connection, f"SELECT {columns} FROM {quoted(table.schema, table.name)} ORDER BY {rest}")
    converters = [from_text(kind) for _, kind in key]
    return [as_values(converters, row) for row in rows]


def _bounds(connection: Any, shapes: Shapes, table: SourceTable, parts: int) -> list[Values]:
    """Ends of all ranges but the last. A number is cut evenly, without a look at the rows; other keys are counted."""
    key = key_of(shapes, table)
    name = quoted(table.schema, table.name)
    if len(key) == 1 and key[0][1].name.startswith("int"):
        column = quoted(key[0][0])
        ((low, high),) = query(connection, f"SELECT MIN({column}), MAX({column}) FROM {name}")
        return [] if low is None else [(str(bound),) for bound in cuts(int(low), int(high), parts)]
    ((count,),) = query(connection, f"SELECT COUNT(*) FROM {name}")
    found = [
        keys_by_order(connection, shapes, table, f"{order(key)} LIMIT 1 OFFSET {int(count) * part // parts}")
        for part in range(1, parts)
        if int(count) >= parts
    ]
    return [keys[0] for keys in found if keys]


def cuts(low: int, high: int, parts: int) -> list[int]:
    """Numbers that cut low..high into parts about as large, each below `high`."""
    span = high - low + 1
    parts = min(parts, span)
    return [low + span * part // parts - 1 for part in range(1, parts)]
