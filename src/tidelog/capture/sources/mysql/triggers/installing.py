"""Brings triggers and shapes in step with the tables that are there.

    the capture is new                   triggers for each table; the snapshot reads the rows
    a table that was not captured        triggers; its rows are logged as created
    one with more columns                new triggers; rows that have something in a new column are logged as updated
    one with other columns, one that     new triggers; the table is logged as truncated, and all its rows as created:
    lost a trigger or logged an x, one   what happened to them meanwhile nobody saw
    that was truncated or made anew
    one that is gone, or is not wanted   its triggers go

TRUNCATE fires no trigger. It gives a table another number in InnoDB (as OPTIMIZE and some ALTERs do, which we cannot
tell from it), so numbers are kept with the shape and compared.

Triggers are made under a lock that waits for the transactions that have touched the table, while others wait behind it.
So it is waited for LOCK_S only, and asked for again after a pause.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from tidelog.capture.change import SourceTable
from tidelog.capture.sources.mysql.kinds import MysqlKind
from tidelog.capture.sources.mysql.session import query, quoted
from tidelog.capture.sources.mysql.shapes import Shapes
from tidelog.capture.sources.mysql.triggers.statements import (
    EVENTS,
    MysqlNames,
    create_tables,
    create_triggers,
    log_rows,
)
from tidelog.errors import Disconnected

LOCK_S = 1
PAUSE_S, PATIENCE_S = 0.25, 60.0
LOCKED = {1205, 1213}

_WATCHED = """SELECT COLUMN_NAME FROM information_schema.STATISTICS
        WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0
    UNION SELECT COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE
        WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND REFERENCED_TABLE_NAME IS NOT NULL ORDER BY 1"""
_NUMBERS = "SELECT NAME, TABLE_ID FROM information_schema.INNODB_SYS_TABLES WHERE NAME LIKE %s OR NAME LIKE %s"


class LiveShape(NamedTuple):
    shape: int
    described: str
    ids: str


class TableNow(NamedTuple):
    """A table as it is now."""

    table: SourceTable
    columns: Sequence[tuple[str, MysqlKind]]
    watched: Sequence[str]  # columns by which an update may be ignored
    described: str
    ids: str

    @property
    def name(self) -> tuple[str, str]:
        return self.table.schema, self.table.name


def is_installed(connection: Any, names: MysqlNames) -> bool:
    sql = "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME IN %s"
    ((count,),) = query(connection, sql, [names.database, ("changes", "shapes", "state")])
    return int(count) == 3


def install(connection: Any, names: MysqlNames, shapes: Shapes, lost: frozenset[int] = frozenset()) -> None:
    """What `prepare` does, and the stream now and then. `lost` are shapes of which an x was logged."""
    if not is_installed(connection, names):
        _create(connection, names)
    ((ready,),) = query(connection, f"SELECT MAX(ready) FROM {names.state}")
    live = live_shapes(connection, names)
    had = {(database, name) for database, name in query(connection, f"SELECT DISTINCT db, name FROM {names.shapes}")}
    _drop_moved(connection, names)
    made = _triggers(connection, names)
    now = captured_tables(connection, shapes)
    for one in now:
        before = live.pop(one.name, None)
        whole = before is not None and made.get((*one.name, before.shape)) == len(EVENTS) and before.shape not in lost
        if before is not None and whole and (before.described, before.ids) == (one.described, one.ids):
            continue
        _renew(connection, names, one, before if whole else None, known=one.name in had, ready=bool(int(ready)))
    for (_, table), before in live.items():
        _drop_triggers(connection, names, table)
        query(connection, f"UPDATE {names.shapes} SET live = FALSE WHERE shape = {before.shape}")
    if not int(ready):
        query(connection, f"UPDATE {names.state} SET ready = TRUE")


def remove(connection: Any, names: MysqlNames) -> list[str]:
    done = []
    for database, trigger, table, _ in _named(connection, names):
        patiently(connection, partial(query, connection, f"DROP TRIGGER IF EXISTS {quoted(database, trigger)}"))
        done.append(f"dropped the trigger {trigger} of {database}.{table}")
    there = query(connection, "SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s", [names.database])
    if there:
        query(connection, f"DROP DATABASE {quoted(names.database)}")
        done.append(f"dropped the database {names.database}")
    return done


def live_shapes(connection: Any, names: MysqlNames) -> dict[tuple[str, str], LiveShape]:
    found = query(connection, f"SELECT db, name, shape, described, ids FROM {names.shapes} WHERE live ORDER BY shape")
    return {(database, name): LiveShape(int(shape), described, ids) for database, name, shape, described, ids in found}


def captured_tables(connection: Any, shapes: Shapes) -> list[TableNow]:
    found = []
    for table in shapes.load(connection):
        columns = list(zip((column.name for column in table.columns), shapes.kinds(table), strict=True))
        watched = [name for (name,) in query(connection, _WATCHED, [table.schema, table.name] * 2)]
        found.append(TableNow(table, columns, watched, described(table, watched), numbers(connection, table)))
    return found


def described(table: SourceTable, watched: Sequence[str]) -> str:
    columns = [[column.name, column.declared, column.connect] for column in table.columns]
    return json.dumps({"columns": columns, "key": list(table.key), "watched": list(watched)})


def numbers(connection: Any, table: SourceTable) -> str:
    """Of the table, or of each of its partitions."""
    plain = f"{table.schema}/{table.name}".replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%")
    found = query(connection, _NUMBERS, [plain, f"{plain}#P#%"])
    return json.dumps(sorted([name, int(number)] for name, number in found))


def patiently(connection: Any, step: Callable[[], Any]) -> Any:
    import pymysql

    deadline = time.monotonic() + PATIENCE_S
    query(connection, f"SET SESSION lock_wait_timeout = {LOCK_S}, innodb_lock_wait_timeout = {LOCK_S}")
    while True:
        try:
            return step()
        except pymysql.err.OperationalError as error:
            query(connection, "ROLLBACK")
            if error.args[0] not in LOCKED:
                raise
            if time.monotonic() >= deadline:
                raise Disconnected(
                    f"triggers wait for a table that a transaction has had for more than {PATIENCE_S:.0f} s;"
                    " end that transaction"
                ) from None
        time.sleep(PAUSE_S)


def _create(connection: Any, names: MysqlNames) -> None:
    query(connection, f"CREATE DATABASE IF NOT EXISTS {quoted(names.database)}")
    for statement in create_tables(names):
        query(connection, statement)
    query(connection, f"DELETE FROM {names.state}")
    query(connection, f"UPDATE {names.shapes} SET live = FALSE")
    query(connection, f"INSERT INTO {names.state} VALUES (%s, FALSE, 0)", [os.urandom(6).hex()])


def _named(connection: Any, names: MysqlNames) -> list[tuple[str, str, str, str]]:
    columns = "TRIGGER_SCHEMA, TRIGGER_NAME, EVENT_OBJECT_TABLE, ACTION_STATEMENT"
    found = query(connection, f"SELECT {columns} FROM information_schema.TRIGGERS")
    return [(database, name, table, body) for database, name, table, body in found if names.has(name)]


def _triggers(connection: Any, names: MysqlNames) -> Mapping[tuple[str, str, int], int]:
    """How many each table has that log a shape."""
    made: dict[tuple[str, str, int], int] = {}
    for database, _, table, body in _named(connection, names):
        shape = re.search(r"VALUES \((\d+),", body)
        if shape is not None:
            at = (database, table, int(shape[1]))
            made[at] = made.get(at, 0) + 1
    return made


def _renew(
    connection: Any, names: MysqlNames, one: TableNow, before: LiveShape | None, *, known: bool, ready: bool
) -> None:
    """`before` is the shape that it had, if its triggers have seen everything since; `known`: it was captured."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {names.shapes} (db, name, described, ids, live) VALUES (%s, %s, %s, %s, FALSE)",
            (*one.name, one.described, one.ids),
        )
        shape = int(cursor.lastrowid)
    for statement in create_triggers(names, shape, *one.name, one.columns, one.watched):
        patiently(connection, partial(query, connection, statement))
    patiently(connection, partial(_log, connection, names, shape, one, _added(before, one), known=known, ready=ready))


def _log(
    connection: Any,
    names: MysqlNames,
    shape: int,
    one: TableNow,
    added: Sequence[tuple[str, str]] | None,
    *,
    known: bool,
    ready: bool,
) -> None:
    """One transaction. The lock of rows is of REPEATABLE READ: no row can be written between."""
    query(connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    query(connection, "START TRANSACTION")
    query(connection, f"UPDATE {names.shapes} SET live = (shape = {shape}) WHERE db = %s AND name = %s", one.name)
    if ready:
        query(connection, f"INSERT INTO {names.changes} (shape, op) VALUES ({shape}, 's')")
        if added is not None:
            where = " OR ".join(f"NOT (r.{quoted(name)} <=> {default})" for name, default in added)
            query(connection, log_rows(names, shape, "U", one.name, one.columns, where))
        else:
            if known:
                query(connection, f"INSERT INTO {names.changes} (shape, op) VALUES ({shape}, 't')")
            query(connection, log_rows(names, shape, "c", one.name, one.columns))
    query(connection, "COMMIT")


def _added(before: LiveShape | None, one: TableNow) -> list[tuple[str, str]] | None:
    """Columns that are new, with their defaults, where nothing else is; None: all rows are to be told."""
    if before is None or before.ids != one.ids:
        return None
    had = json.loads(before.described)
    then = {name: [name, declared, connect] for name, declared, connect in had["columns"]}
    now = json.loads(one.described)
    kept = [column for column in now["columns"] if column[0] in then]
    added = [column[0] for column in now["columns"] if column[0] not in then]
    if had["key"] != now["key"] or kept != had["columns"] or not added:
        return None
    return [(name, f"DEFAULT(r.{quoted(name)})") for name in added]


def _drop_moved(connection: Any, names: MysqlNames) -> None:
    """Those of tables that have got another name: they log rows of it under the old one."""
    for database, trigger, table, _ in _named(connection, names):
        if trigger != names.trigger(table, trigger[-1]):
            patiently(connection, partial(query, connection, f"DROP TRIGGER IF EXISTS {quoted(database, trigger)}"))


def _drop_triggers(connection: Any, names: MysqlNames, table: str) -> None:
    for database, trigger, of, _ in _named(connection, names):
        if of == table:
            patiently(connection, partial(query, connection, f"DROP TRIGGER IF EXISTS {quoted(database, trigger)}"))
