"""Views in PostgreSQL: `postgresql://user:${PASSWORD}@host:5432/database?schema=NAME`.

    table  "revenue.v3"              one a generation; the declared columns, the key's as primary key
    view   "revenue"                 the one that is shown: this is what other programs read
    table  "_tidelog_generations"    view, generation, declared, ends, mark
    table  "_tidelog_shown"          view, generation

Rules:
- `apply` stages the rows in a temporary table before it takes any lock, then locks the generation's row, compares,
  changes, notes and shows: one transaction, and short where others wait for it.
- Names are quoted, values are bound: neither is ever part of a statement's text. A name of more than 63 bytes, which
  the server would cut, is cut here, with a piece of its hash so that two stay two; so is one that every table has.
- Text is compared by code point (COLLATE "C"), as everywhere in Tidelog.
- PostgreSQL's text holds no character 0: it is kept as 1 1, and 1 as 1 2. Order and difference stay; `get` and `read`
  give back what was written. A key of more than about 2,700 bytes does not fit its index, and is refused by the server.
- Where the columns allow it the SQL view is replaced and keeps its grants; otherwise it is dropped and made anew, which
  PostgreSQL refuses while something of somebody else's depends on it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tidelog.control.marks import Ends
from tidelog.errors import AnotherApplier, NotShown, UsageError
from tidelog.schema.column_types import JSON, STORED
from tidelog.schema.declaration import Declaration, Key, Row, from_fields, to_fields
from tidelog.views.changes import Change, Stretch
from tidelog.views.stores.bounds import Bounds
from tidelog.views.stores.places import ends_from_text, ends_to_text, is_to_show, mark_from_text, mark_to_text, moved
from tidelog.views.stores.postgres_session import Connection, PostgresSession
from tidelog.views.stores.postgres_values import (
    asked,
    bound,
    columns_of,
    cut,
    from_postgres,
    key_columns,
    key_values,
    quoted,
    rows_of,
)
from tidelog.views.stores.store import Ask, Page, Place, is_to_grow

NO_SUCH_TABLE = "42P01"
TRIES = 3
GONE = "_tidelog_gone"
STAGE = "_tidelog_stage"
Found = TypeVar("Found")


def connect(url: str, view: str) -> PostgresStore:
    """Nothing is opened before it is needed."""
    return PostgresStore(url, view)


class PostgresStore:
    sees = "a reader sees a micro-batch whole or not at all"
    alone = ""

    def __init__(self, url: str, view: str) -> None:
        self._session = PostgresSession(url)
        self._view = view
        self._staged: tuple[int, Declaration] | None = None  # which connection has a stage, and for what columns
        self._ready = False

    # What is there -------------------------------------------------------------------------------------------------

    def prepare(self, generation: int, declared: Declaration) -> None:
        with self._session.transaction() as sql:
            self._make_ready(sql)
            self._check_name(sql)
            found = self._find(sql, generation)
            if found is None:
                sql.execute(f"CREATE TABLE {self._table(generation)} ({columns_of(declared)})", ())
                sql.execute(
                    f"INSERT INTO {self._name('_tidelog_generations')} VALUES (%s, %s, %s, '{{}}', NULL)",
                    (self._view, generation, json.dumps(to_fields(declared))),
                )
            elif is_to_grow(
                found[0], declared, f"{self._session.address}: generation {generation} of view {self._view}"
            ):
                self._grow(sql, generation, found[0], declared)

    def _check_name(self, sql: Connection) -> None:
        """What is there by the view's name, and is not what is shown, is somebody else's: it would be replaced."""
        if self._shown(sql) is None and self._is_there(sql, self._view):
            raise UsageError(
                f"{self._session.address} has a table or view {self._name(self._view)} already; name another schema in"
                " the URL, or call it otherwise"
            )

    def _make_ready(self, sql: Connection) -> None:
        """Two that come first at once would both make the tables: one of them waits here."""
        self._take_turn(sql)
        found = sql.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (cut(self._session.schema),)).fetchone()
        if found is None:
            sql.execute(f"CREATE SCHEMA {quoted(self._session.schema)}", ())
        sql.execute(
            f"CREATE TABLE IF NOT EXISTS {self._name('_tidelog_generations')} (view text, generation bigint,"
            " declared text NOT NULL, ends text NOT NULL, mark text, PRIMARY KEY (view, generation))",
            (),
        )
        sql.execute(
            f"CREATE TABLE IF NOT EXISTS {self._name('_tidelog_shown')} (view text PRIMARY KEY, generation bigint)", ()
        )

    def _take_turn(self, sql: Connection) -> None:
        sql.execute("SELECT pg_advisory_xact_lock(hashtext('tidelog'), hashtext(%s))", (self._session.schema,))

    def _grow(self, sql: Connection, generation: int, old: Declaration, new: Declaration) -> None:
        for name, kind in new.columns[len(old.columns) :]:
            sql.execute(f"ALTER TABLE {self._table(generation)} ADD COLUMN {quoted(name)} {STORED[kind].postgres}", ())
        sql.execute(
            f"UPDATE {self._name('_tidelog_generations')} SET declared = %s WHERE view = %s AND generation = %s",
            (json.dumps(to_fields(new)), self._view, generation),
        )
        if self._shown(sql) == generation:
            self._point(sql, generation, old, new)

    def place(self, generation: int) -> Place | None:
        with self._session.transaction(snapshot=True) as sql:
            found = self._find(sql, generation)
        return None if found is None else found[1]

    def shown(self) -> int | None:
        with self._session.transaction(snapshot=True) as sql:
            return self._shown(sql) if self._has_tables(sql) else None

    def generations(self) -> Mapping[int, Declaration]:
        with self._session.transaction(snapshot=True) as sql:
            if not self._has_tables(sql):
                return {}
            found = sql.execute(
                f"SELECT generation, declared FROM {self._name('_tidelog_generations')} WHERE view = %s ORDER BY 1",
                (self._view,),
            )
            return {number: from_fields(json.loads(text)) for number, text in found}

    def forget(self, generation: int) -> None:
        with self._session.transaction() as sql:
            if not self._has_tables(sql):
                return
            if self._shown(sql) == generation:
                raise UsageError(f"generation {generation} of view {self._view} is shown; it cannot be forgotten")
            sql.execute(f"DROP TABLE IF EXISTS {self._table(generation)}", ())
            sql.execute(
                f"DELETE FROM {self._name('_tidelog_generations')} WHERE view = %s AND generation = %s",
                (self._view, generation),
            )

    # Change --------------------------------------------------------------------------------------------------------

    def apply(self, generation: int, stretch: Stretch, *, before: Ends, show: bool = False) -> None:
        with self._session.transaction() as sql:
            found = self._find(sql, generation)
            if found is None:
                raise self._gone(generation)
            latest = stretch.latest().values()
            if latest:
                self._stage(sql, found[0], latest)
            stored = self._find(sql, generation, lock=True)
            if stored is None:
                raise self._gone(generation)
            place = moved(stored[1], stretch, before, view=self._view)
            if latest:
                self._change(sql, generation, found[0], latest)
            sql.execute(
                f"UPDATE {self._name('_tidelog_generations')} SET ends = %s, mark = %s"
                " WHERE view = %s AND generation = %s",
                (ends_to_text(place.ends), mark_to_text(place.mark), self._view, generation),
            )
            if show:
                self._show(sql, generation, found[0])
        if latest:
            self._staged = (self._session.opened, found[0])  # it is there once that is committed

    def _gone(self, generation: int) -> AnotherApplier:
        return AnotherApplier(f"generation {generation} of view {self._view} is gone from {self._session.address}")

    def _stage(self, sql: Connection, declared: Declaration, changes: Iterable[Change]) -> None:
        if self._staged != (self._session.opened, declared):
            sql.execute(f"DROP TABLE IF EXISTS pg_temp.{STAGE}", ())
            plain = ", ".join(f"{quoted(name)} {STORED[kind].copied}" for name, kind in declared.columns)
            sql.execute(f"CREATE TEMP TABLE {STAGE} ({plain}, {GONE} bool) ON COMMIT DELETE ROWS", ())
            self._staged = None
        with sql.cursor() as cursor, cursor.copy(f"COPY pg_temp.{STAGE} FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types([*(STORED[kind].copied for _, kind in declared.columns), "bool"])
            for row in rows_of(declared, changes):
                copy.write_row(row)

    def _change(self, sql: Connection, generation: int, declared: Declaration, changes: Collection[Change]) -> None:
        """What is staged, into the table."""
        table, names = self._table(generation), [quoted(column.name) for column in declared.columns]
        keys, rest = names[: len(declared.key)], names[len(declared.key) :]
        gone = sum(change.after is None for change in changes)
        if gone:
            same = " AND ".join(f"old.{key} = new.{key}" for key in keys)
            sql.execute(f"DELETE FROM {table} AS old USING pg_temp.{STAGE} AS new WHERE new.{GONE} AND {same}", ())
        if gone == len(changes):
            return
        taken = ", ".join(
            f"{name}::json" if column.type == JSON else name
            for name, column in zip(names, declared.columns, strict=True)
        )
        update = f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in rest)}" if rest else "NOTHING"
        sql.execute(
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {taken} FROM pg_temp.{STAGE} WHERE NOT {GONE}"
            f" ON CONFLICT ({', '.join(keys)}) DO {update}",
            (),
        )

    def _show(self, sql: Connection, generation: int, declared: Declaration) -> None:
        self._take_turn(sql)
        shown = self._shown(sql)
        if not is_to_show(generation, shown):
            return
        before = None if shown is None else self._find(sql, shown)
        self._point(sql, generation, before[0] if before else None, declared)
        sql.execute(
            f"INSERT INTO {self._name('_tidelog_shown')} VALUES (%s, %s)"
            " ON CONFLICT (view) DO UPDATE SET generation = excluded.generation",
            (self._view, generation),
        )

    def _point(self, sql: Connection, generation: int, old: Declaration | None, new: Declaration) -> None:
        """The SQL view at this generation."""
        if old is not None and old.columns != new.columns[: len(old.columns)]:
            sql.execute(f"DROP VIEW IF EXISTS {self._name(self._view)}", ())
        names = ", ".join(quoted(column.name) for column in new.columns)
        sql.execute(
            f"CREATE OR REPLACE VIEW {self._name(self._view)} AS SELECT {names} FROM {self._table(generation)}", ()
        )

    # Reading -------------------------------------------------------------------------------------------------------

    def get(self, key: Key) -> tuple[Row | None, Place]:
        def look(sql: Connection) -> tuple[Row | None, Place]:
            declared, place = self._current(sql)
            return self._one(sql, declared, place.generation, key), place

        return self._looked(look)

    def kept_row(self, generation: int, key: Key) -> Row | None:
        def look(sql: Connection) -> Row | None:
            found = self._find(sql, generation)
            return None if found is None else self._one(sql, found[0], generation, key)

        return self._looked(look)

    def _one(self, sql: Connection, declared: Declaration, generation: int, key: Key) -> Row | None:
        same = " AND ".join(f"{quoted(name)} = {bound(kind)}" for name, kind in key_columns(declared))
        rows = self._select(sql, declared, generation, same, key_values(declared, key), 1)
        return rows[0] if rows else None

    def read(self, ask: Ask) -> Page:
        if ask.match is not None:
            raise UsageError("this store has no full text; a store sqlite+fts:///FILE?columns=NAME has")

        def look(sql: Connection) -> Page:
            bounds, rows, last = Bounds(ask), list[Row](), ask.after
            declared, place = self._current(sql)
            while True:
                chunk = bounds.chunk(bounds.limit - len(rows) + 1)
                if bounds.left_s is not None:
                    self._session.bounded = True
                    sql.execute(f"SET LOCAL statement_timeout = {math.ceil(bounds.left_s * 1000)}")
                conditions, values = asked(declared, ask._replace(after=last))
                found = self._select(sql, declared, place.generation, " AND ".join(conditions), values, chunk)
                for row in found:
                    bounds.looked_at(row)
                    if not bounds.takes(row):
                        return Page(rows, place, True, last)
                    rows.append(row)
                    last = declared.key_of(row)
                if len(found) < chunk:
                    return Page(rows, place, False)

        return self._looked(look)

    def _looked(self, look: Callable[[Connection], Found]) -> Found:
        """At one instant. A generation that is forgotten while it is looked at makes for another look."""
        for tries in range(TRIES, 0, -1):
            try:
                with self._session.transaction(snapshot=True) as sql:
                    return look(sql)
            except UsageError:
                if tries == 1 or self._session.refusal != NO_SUCH_TABLE:
                    raise
        raise AssertionError("the last try returns or raises")

    def _select(
        self, sql: Connection, declared: Declaration, generation: int, where: str, values: Sequence[Any], limit: int
    ) -> list[Row]:
        names = ", ".join(quoted(column.name) for column in declared.columns)
        keys = ", ".join(quoted(name) for name in declared.key)
        found = sql.execute(
            f"SELECT {names} FROM {self._table(generation)} WHERE {where} ORDER BY {keys} LIMIT %s",
            (*values, limit),
            binary=True,
        )
        return [
            {name: from_postgres(kind, value) for (name, kind), value in zip(declared.columns, row, strict=True)}
            for row in found
        ]

    def _current(self, sql: Connection) -> tuple[Declaration, Place]:
        shown = self._shown(sql) if self._has_tables(sql) else None
        found = None if shown is None else self._find(sql, shown)
        if found is None:
            raise NotShown(f"view {self._view} is not shown by {self._session.address} yet; its applier is building it")
        return found

    # One row of ours -----------------------------------------------------------------------------------------------

    def _has_tables(self, sql: Connection) -> bool:
        if not self._ready:
            self._ready = self._is_there(sql, "_tidelog_shown")
        return self._ready

    def _is_there(self, sql: Connection, name: str) -> bool:
        named = self._name(name).replace("%%", "%")  # here it is a value, and no part of a statement
        row = sql.execute("SELECT to_regclass(%s)", (named,)).fetchone()
        return row is not None and row[0] is not None

    def _shown(self, sql: Connection) -> int | None:
        row = sql.execute(
            f"SELECT generation FROM {self._name('_tidelog_shown')} WHERE view = %s", (self._view,)
        ).fetchone()
        return None if row is None else row[0]

    def _find(self, sql: Connection, generation: int, *, lock: bool = False) -> tuple[Declaration, Place] | None:
        if not self._has_tables(sql):
            return None
        row = sql.execute(
            f"SELECT declared, ends, mark FROM {self._name('_tidelog_generations')} WHERE view = %s AND generation = %s"
            + (" FOR UPDATE" if lock else ""),
            (self._view, generation),
        ).fetchone()
        if row is None:
            return None
        declared = from_fields(json.loads(row[0]))
        return declared, Place(generation, ends_from_text(row[1]), mark_from_text(row[2]))

    def _name(self, name: str) -> str:
        return f"{quoted(self._session.schema)}.{quoted(name)}"

    def _table(self, generation: int) -> str:
        return self._name(f"{self._view}.v{generation}")

    def close(self) -> None:
        self._session.close()
