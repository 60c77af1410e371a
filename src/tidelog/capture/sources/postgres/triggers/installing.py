"""Brings functions, triggers and shapes in step with the tables that are there. Each table in a transaction of its own.

    the capture is new                  triggers for each table; the snapshot reads the rows
    a table that was not captured       triggers; its rows are logged as created, behind a truncate if rows were told
                                        under its name before
    one with other columns              its function is made anew, for which nobody waits
    one that lost its triggers,         is logged as truncated, and all its rows as created: what became of them
    or had them switched off            meanwhile nobody saw
    one that is gone, or is not wanted  its function goes, and with it the triggers

Rules:
- A trigger is made under a lock that waits for the writers of its table, and later writers wait behind it. So it is
  waited for LOCK_MS only, and asked for again after a pause: a long transaction of the application holds up the
  capture, and not the application.
- Whoever has the right TRIGGER on a table may make one, but only the table's owner may drop it. So functions are
  dropped, of which the triggers are a part.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple, TypeVar

from tidelog.capture.sources.postgres.catalog import Catalog, ListedTable
from tidelog.capture.sources.postgres.reading import name_of
from tidelog.capture.sources.postgres.session import SqlSession, TableLocked
from tidelog.capture.sources.postgres.triggers.functions import (
    DESCRIBED,
    SUM,
    PostgresNames,
    create_function,
    create_schema,
    create_tables,
    create_triggers,
    log_rows,
)
from tidelog.errors import Disconnected, UsageError

LOCK_MS = 500
LOCK_PAUSE_S, LOCK_S = 0.25, 60.0
FIRING = ("O", "A")  # of pg_trigger.tgenabled

_TRIGGERS = "SELECT tgrelid, tgenabled::text FROM pg_trigger WHERE tgname = ANY(%s) AND NOT tgisinternal"
KEY = """coalesce((SELECT array_agg(a.attname::text ORDER BY k.place)
    FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k(number, place) JOIN pg_attribute a ON a.attnum = k.number
    WHERE i.indrelid = {} AND a.attrelid = i.indrelid AND i.indisprimary), '{{}}')"""
T = TypeVar("T")


class Steps(NamedTuple):
    """What is out of step."""

    new: list[ListedTable]  # without a shape
    changed: list[ListedTable]  # with other columns
    unseen: list[ListedTable]  # whose triggers are gone or off
    gone: list[int]

    @property
    def none(self) -> bool:
        return not any(self)


def is_installed(session: SqlSession, names: PostgresNames) -> bool:
    """Whether all of it is there: what is there in part is made anew, and has another name in positions."""
    tables = [names.changes, names.shapes, names.state]
    return bool(session.one("SELECT bool_and(to_regclass(t) IS NOT NULL) FROM unnest(%s::text[]) AS t", [tables]))


def install(session: SqlSession, names: PostgresNames, catalog: Catalog, told: Collection[str] = ()) -> Steps:
    """What `prepare` does, and the stream now and then; nothing where all is in step. `told` are names, schema.table,
    of which the log has rows."""
    if not is_installed(session, names):
        _create(session, names)
    ready = bool(session.one(f"SELECT bool_or(ready) FROM {names.state}"))
    steps = steps_of(session, names, catalog)
    for table in (*steps.new, *steps.unseen):
        known = table in steps.unseen or table.full_name in told or _was_named(session, names, table)
        patiently(session, partial(_capture, session, names, table, rows=ready, truncated=ready and known))
    for table in steps.changed:
        patiently(session, partial(_capture, session, names, table, rows=False, truncated=False))
    for rel in steps.gone:
        patiently(session, partial(_retire, session, names, rel))
    if not ready:
        session.query(f"UPDATE {names.state} SET ready = true")
    return steps


def remove(session: SqlSession, names: PostgresNames) -> list[str]:
    if not session.query("SELECT 1 FROM pg_namespace WHERE nspname = %s", [names.schema]):
        return []
    tables = session.query(
        "SELECT DISTINCT c.oid::regclass::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        " WHERE t.tgname = %s AND t.tgparentid = 0 ORDER BY 1",
        [names.row_trigger],
    )
    patiently(session, lambda: session.query(f"DROP SCHEMA {name_of(names.schema)} CASCADE"))
    return [
        *(f"dropped the triggers {names.row_trigger} of {table}" for (table,) in tables),
        f"dropped the schema {names.schema}",
    ]


def steps_of(session: SqlSession, names: PostgresNames, catalog: Catalog) -> Steps:
    live = {int(rel): int(sig) for rel, sig in session.query(f"SELECT rel, sig FROM {names.shapes} WHERE live")}
    listed = catalog.listed()
    sums = session.query(
        f"SELECT r.id, {SUM.format('r.id')} FROM unnest(%s::oid[]) AS r(id)", [[table.id for table in listed]]
    )
    sig_of = {int(rel): sig for rel, sig in sums}
    firing: dict[int, int] = {}
    for rel, enabled in session.query(_TRIGGERS, [[names.row_trigger, names.truncate_trigger]]):
        firing[int(rel)] = firing.get(int(rel), 0) + (enabled in FIRING)
    known = [table for table in listed if table.id in live]
    unseen = [table for table in known if firing.get(table.id, 0) < 2]
    return Steps(
        new=[table for table in listed if table.id not in live],
        changed=[table for table in known if table not in unseen and live[table.id] != sig_of[table.id]],
        unseen=unseen,
        gone=[rel for rel in live if rel not in {table.id for table in listed}],
    )


def patiently(session: SqlSession, step: Callable[[], T]) -> T:
    """Does it as soon as the locks that it needs are free, without a long wait in front of others."""
    deadline = time.monotonic() + LOCK_S
    connection = session.opened()
    while True:
        try:
            with session.telling(), connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {LOCK_MS}")
                return step()
        except TableLocked:
            if time.monotonic() >= deadline:
                raise Disconnected(
                    f"{session.address}: triggers wait for a table that a transaction has had for more than"
                    f" {LOCK_S:.0f} s; end that transaction"
                ) from None
        time.sleep(LOCK_PAUSE_S)


def _create(session: SqlSession, names: PostgresNames) -> None:
    def create() -> None:
        if not session.query("SELECT 1 FROM pg_namespace WHERE nspname = %s", [names.schema]):
            session.query(create_schema(names))
        for statement in create_tables(names):
            session.query(statement)
        session.query(f"DELETE FROM {names.state}")
        session.query(f"DELETE FROM {names.shapes}")
        session.query(f"INSERT INTO {names.state} VALUES (%s, false)", [os.urandom(6).hex()])

    try:
        patiently(session, create)
    except UsageError as error:
        raise UsageError(
            f"{error}; let the database's owner run: CREATE SCHEMA {name_of(names.schema)} AUTHORIZATION the user"
        ) from None


def _capture(session: SqlSession, names: PostgresNames, table: ListedTable, *, rows: bool, truncated: bool) -> None:
    whole = name_of(table.schema, table.name)
    rel = table.id
    sig, described = session.query(f"SELECT {SUM.format(rel)}, {DESCRIBED.format(rel)}")[0]
    session.query(create_function(names, rel, int(sig)))
    there = session.query(_TRIGGERS + " AND tgrelid = %s", [[names.row_trigger, names.truncate_trigger], rel])
    if len([enabled for _, enabled in there if enabled in FIRING]) < 2:
        for statement in create_triggers(names, rel, whole):
            session.query(statement)
        sig, described = session.query(f"SELECT {SUM.format(rel)}, {DESCRIBED.format(rel)}")[0]  # now it is locked
        session.query(create_function(names, rel, int(sig)))
    session.query(f"UPDATE {names.shapes} SET live = false WHERE rel = %s AND live", [rel])
    session.query(
        f"INSERT INTO {names.shapes} VALUES (%s, %s, %s, {KEY.format(rel)}, %s, %s, true)"
        " ON CONFLICT (rel, sig) DO UPDATE"
        " SET (key, schema, name, live) = (excluded.key, excluded.schema, excluded.name, true)",
        [rel, sig, described, table.schema, table.name],
    )
    if truncated:
        session.query(f"INSERT INTO {names.changes} (rel, op) VALUES (%s, 't')", [rel])
    if rows:
        session.query(log_rows(names, rel, int(sig), whole if table.partitioned else f"ONLY {whole}"))


def _was_named(session: SqlSession, names: PostgresNames, table: ListedTable) -> bool:
    """Whether another table was captured under its name."""
    statement = f"SELECT 1 FROM {names.shapes} WHERE (schema, name) = (%s, %s) AND rel <> %s LIMIT 1"
    return bool(session.query(statement, [table.schema, table.name, table.id]))


def _retire(session: SqlSession, names: PostgresNames, rel: int) -> None:
    session.query(f"DROP FUNCTION IF EXISTS {names.function(rel)}() CASCADE")
    session.query(f"UPDATE {names.shapes} SET live = false WHERE rel = %s", [rel])
