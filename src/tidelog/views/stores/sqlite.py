"""Views as tables of a SQLite file: the default, with nothing to install. `sqlite3` of any kind reads them.

    _tidelog_format                version: of this layout; a higher one is refused
    _tidelog_places                view, generation, declared, shown, ends, mark: one row a generation
    _tidelog_VIEW_vGENERATION      the rows of one generation, by primary key (`sqlite_values.py` has the types)
    VIEW                           a SQL view: what is shown

Rules:
- A stretch is one transaction of SQLite, with the place that it reaches and, at a switch, the SQL view's new body:
  readers see whole micro-batches, in any process, and never wait for the applier (WAL).
- `synchronous` is NORMAL: a power cut may take the last transactions, whole; the applier's next start applies them
  again from the topic, since the place went with them.
- Who writes takes SQLite's one write lock first (BEGIN IMMEDIATE), and waits for it up to BUSY_S: several views, and
  their appliers, may share a file. Nothing slow is done while it is held: values are converted before.
- Names of tables and views are the same in any case here; a second view that differs by case alone is refused.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.control.marks import Ends
from tidelog.errors import AnotherApplier, NotShown, StorageError, UsageError
from tidelog.schema.column_types import STORED, quoted
from tidelog.schema.declaration import Declaration, Key, Row, from_fields, to_fields
from tidelog.views.changes import Stretch
from tidelog.views.stores import places, sqlite_statements, sqlite_values
from tidelog.views.stores.bounds import Bounds
from tidelog.views.stores.location import path_in, written
from tidelog.views.stores.sqlite_file import BUSY_S, VERSION, cut_wal, error_of, has_layout, identity, set_wal
from tidelog.views.stores.store import Ask, Page, Place, is_to_grow

STEPS = 10_000  # of SQLite's machine, some 0.1 ms, after which a query looks at the clock
PREFIX = "sqlite:///"
RESERVED = "sqlite_"
LAYOUT = (
    "CREATE TABLE IF NOT EXISTS _tidelog_format (version INTEGER NOT NULL)",
    "INSERT INTO _tidelog_format SELECT {version} WHERE NOT EXISTS (SELECT 1 FROM _tidelog_format)",
    "CREATE TABLE IF NOT EXISTS _tidelog_places (view TEXT NOT NULL, generation INTEGER NOT NULL,"
    " declared TEXT NOT NULL, shown INTEGER NOT NULL DEFAULT 0, ends TEXT NOT NULL DEFAULT '{{}}', mark TEXT,"
    " PRIMARY KEY (view, generation)) WITHOUT ROWID",
)


def connect(filled: str, view: str, url: str) -> SqliteStore:
    if not path_in(filled, PREFIX):
        raise UsageError("it has no file; write sqlite:///relative.db or sqlite:////absolute.db")
    if "?" in filled:
        raise UsageError("it has a question mark, and nothing may be asked here; write %3F for one in a file's name")
    return SqliteStore(Path(path_in(filled, PREFIX)), view, said=path_in(url, PREFIX))


class Kept(NamedTuple):
    """A row of _tidelog_places."""

    place: Place
    declared: Declaration
    shown: bool


class SqliteStore:
    sees = "whole micro-batches: each is one transaction of SQLite"
    alone = ""

    def __init__(self, path: Path, view: str, *, said: str | None = None) -> None:
        """`said`: the path as the URL was written."""
        self.path = path
        self.said = written(path, said)
        self.view = view
        self._opened: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    # What an applier does ---------------------------------------------------------------------------------------------

    def prepare(self, generation: int, declared: Declaration) -> None:
        with self._writing(make=True) as connection:
            self._check_names(connection)
            kept = self._kept(connection, generation)
            if kept is None:
                self.create(connection, generation, declared)
                connection.execute(
                    "INSERT INTO _tidelog_places (view, generation, declared) VALUES (?, ?, ?)",
                    (self.view, generation, json.dumps(to_fields(declared))),
                )
            elif is_to_grow(kept.declared, declared, f"{self.said}: generation {generation} of view {self.view}"):
                self._grow(connection, kept, declared)

    def apply(self, generation: int, stretch: Stretch, *, before: Ends, show: bool = False) -> None:
        declared = self._declared(generation)
        bind = sqlite_values.binder(declared)
        latest = stretch.latest()
        rows = [bind(change.after) for change in latest.values() if change.after is not None]
        gone = [sqlite_statements.bound_key(declared, change.key) for change in latest.values() if change.after is None]
        with self._writing() as connection:
            kept = self._kept(connection, generation)
            if kept is None:
                raise AnotherApplier(f"generation {generation} of view {self.view} is gone from {self.said}")
            place = places.moved(kept.place, stretch, before, view=self.view)
            if rows:
                connection.executemany(sqlite_statements.upsert(self.table(generation), declared), rows)
            if gone:
                connection.executemany(
                    f"DELETE FROM {self.table(generation)} WHERE {sqlite_statements.by_key(declared)}", gone
                )
            connection.execute(
                "UPDATE _tidelog_places SET ends = ?, mark = ? WHERE view = ? AND generation = ?",
                (places.ends_to_text(place.ends), places.mark_to_text(place.mark), self.view, generation),
            )
            if show and places.is_to_show(generation, self._number_shown(connection)):
                self._show(connection, generation, declared)

    def kept_row(self, generation: int, key: Key) -> Row | None:
        declared = self._declared(generation)
        with self._reading() as connection:
            if connection is None:
                return None
            found = connection.execute(
                f"SELECT {self._listed(declared)} FROM {self.table(generation)}"
                f" WHERE {sqlite_statements.by_key(declared)}",
                sqlite_statements.bound_key(declared, key),
            ).fetchone()
        return None if found is None else sqlite_values.reader(declared.columns)(found)

    def forget(self, generation: int) -> None:
        with self._writing() as connection:
            kept = self._kept(connection, generation)
            if kept is None:
                return
            if kept.shown:
                raise UsageError(f"generation {generation} of view {self.view} is shown by {self.said}; not forgotten")
            self.drop(connection, generation)
            connection.execute("DELETE FROM _tidelog_places WHERE view = ? AND generation = ?", (self.view, generation))

    def overwrite(self) -> None:
        """Nothing that was deleted is left in the file or beside it. It is written anew, so it takes as long as it is
        large; `StorageError` where somebody reads in one transaction for longer than BUSY_S.
        """
        with self._told():
            connection = self._connection(make=False)
            if connection is None:
                return
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("VACUUM")
            cut_wal(connection, self.said)

    # What readers do --------------------------------------------------------------------------------------------------

    def place(self, generation: int) -> Place | None:
        with self._reading() as connection:
            kept = self._kept(connection, generation) if connection is not None else None
        return kept.place if kept is not None else None

    def shown(self) -> int | None:
        with self._reading() as connection:
            return self._number_shown(connection) if connection is not None else None

    def generations(self) -> Mapping[int, Declaration]:
        with self._reading() as connection:
            found = self._all(connection) if connection is not None else []
        return {kept.place.generation: kept.declared for kept in found}

    def get(self, key: Key) -> tuple[Row | None, Place]:
        with self._reading() as connection:
            kept = self._demand_shown(connection)
            assert connection is not None
            found = connection.execute(
                f"{self._select(kept)} WHERE {sqlite_statements.by_key(kept.declared)}",
                sqlite_statements.bound_key(kept.declared, key),
            ).fetchone()
        return None if found is None else sqlite_values.reader(kept.declared.columns)(found), kept.place

    def read(self, ask: Ask) -> Page:
        bounds, rows = Bounds(ask), list[Row]()
        with self._reading(bounds) as connection:
            kept = self._demand_shown(connection)
            assert connection is not None
            conditions, parameters = self.conditions(kept, ask)
            where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
            order = ", ".join(sqlite_statements.ordered(kept.declared))
            query = f"{self._select(kept)}{where} ORDER BY {order} LIMIT ?"
            with closing(connection.execute(query, (*parameters, bounds.limit + 1))) as found:
                # One after the other: how many of them a page has room for is not known before.
                for row in map(sqlite_values.reader(kept.declared.columns), found):
                    if not bounds.takes(row):
                        return Page(rows, kept.place, True, kept.declared.key_of(rows[-1]) if rows else ask.after)
                    rows.append(row)
        return Page(rows, kept.place, False)

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    # What a store over the same file may do otherwise -----------------------------------------------------------------

    def table(self, generation: int) -> str:
        return quoted(f"_tidelog_{self.view}_v{generation}")

    def create(self, connection: sqlite3.Connection, generation: int, declared: Declaration) -> None:
        columns = [
            f"{quoted(name)} {STORED[kind].sqlite}{' NOT NULL' if name in declared.key else ''}"
            for name, kind in declared.columns
        ]
        key = ", ".join(map(quoted, declared.key))
        connection.execute(
            f"CREATE TABLE {self.table(generation)} ({', '.join(columns)}, PRIMARY KEY ({key})) WITHOUT ROWID"
        )

    def drop(self, connection: sqlite3.Connection, generation: int) -> None:
        connection.execute(f"DROP TABLE {self.table(generation)}")

    def conditions(self, kept: Kept, ask: Ask) -> tuple[list[str], list[Any]]:
        if ask.match is not None:
            raise UsageError(f"view {self.view} has no full text in {self.said}; use a sqlite+fts:// store")
        conditions, parameters = [], []
        if ask.where is not None:
            text, bound = sqlite_statements.condition(kept.declared, ask.where)
            conditions.append(text)
            parameters += bound
        if ask.after is not None:
            places_of_key = sqlite_statements.bound_key(kept.declared, ask.after, ordered=True)
            conditions.append(
                f"({', '.join(sqlite_statements.ordered(kept.declared))}) > ({', '.join('?' * len(places_of_key))})"
            )
            parameters += places_of_key
        return conditions, parameters

    # SQL --------------------------------------------------------------------------------------------------------------

    def _select(self, kept: Kept) -> str:
        return f"SELECT {self._listed(kept.declared)} FROM {self.table(kept.place.generation)}"

    @staticmethod
    def _listed(declared: Declaration) -> str:
        return ", ".join(quoted(name) for name, _ in declared.columns)

    def _show(self, connection: sqlite3.Connection, generation: int, declared: Declaration) -> None:
        columns = ", ".join(quoted(name) for name, _ in declared.columns)
        connection.execute(f"DROP VIEW IF EXISTS {quoted(self.view)}")
        connection.execute(f"CREATE VIEW {quoted(self.view)} AS SELECT {columns} FROM {self.table(generation)}")
        connection.execute(
            "UPDATE _tidelog_places SET shown = (generation = ?) WHERE view = ?", (generation, self.view)
        )

    def _grow(self, connection: sqlite3.Connection, kept: Kept, declared: Declaration) -> None:
        for name, kind in declared.columns[len(kept.declared.columns) :]:
            added = f"{quoted(name)} {STORED[kind].sqlite}"
            connection.execute(f"ALTER TABLE {self.table(kept.place.generation)} ADD COLUMN {added}")
        connection.execute(
            "UPDATE _tidelog_places SET declared = ? WHERE view = ? AND generation = ?",
            (json.dumps(to_fields(declared)), self.view, kept.place.generation),
        )
        if kept.shown:
            self._show(connection, kept.place.generation, declared)

    def _check_names(self, connection: sqlite3.Connection) -> None:
        if self.view.lower().startswith(RESERVED):
            raise UsageError(f"SQLite keeps names that begin with {RESERVED} for itself; rename {self.view}")
        other = connection.execute(
            "SELECT view FROM _tidelog_places WHERE lower(view) = lower(?) AND view <> ?", (self.view, self.view)
        ).fetchone()
        if other is not None:
            raise UsageError(
                f"{self.said} has a view {other[0]}, and {self.view} is the same name here; use another file"
            )
        taken = connection.execute(
            "SELECT type FROM sqlite_master WHERE lower(name) = lower(?)", (self.view,)
        ).fetchone()
        if taken is not None and (taken[0] != "view" or self._shown(connection) is None):
            raise UsageError(f"{self.said} has a {taken[0]} that is called {self.view}; use another file, or rename it")

    def _kept(self, connection: sqlite3.Connection, generation: int) -> Kept | None:
        return next((one for one in self._all(connection) if one.place.generation == generation), None)

    def _shown(self, connection: sqlite3.Connection) -> Kept | None:
        return next((one for one in self._all(connection) if one.shown), None)

    def _number_shown(self, connection: sqlite3.Connection) -> int | None:
        kept = self._shown(connection)
        return None if kept is None else kept.place.generation

    def _demand_shown(self, connection: sqlite3.Connection | None) -> Kept:
        kept = self._shown(connection) if connection is not None else None
        if kept is None:
            raise NotShown(f"view {self.view} is not shown by {self.said} yet; its applier is still building it")
        return kept

    def _all(self, connection: sqlite3.Connection) -> list[Kept]:
        found = connection.execute(
            "SELECT generation, declared, shown, ends, mark FROM _tidelog_places WHERE view = ?", (self.view,)
        ).fetchall()
        return [
            Kept(
                Place(number, places.ends_from_text(ends), places.mark_from_text(mark)),
                from_fields(json.loads(declared)),
                bool(shown),
            )
            for number, declared, shown, ends, mark in found
        ]

    def _declared(self, generation: int) -> Declaration:
        declared = self.generations().get(generation)
        if declared is None and not self.path.exists():
            raise StorageError(f"{self.said} is gone; it is made again from the topic")
        if declared is None:
            raise AnotherApplier(f"generation {generation} of view {self.view} is gone from {self.said}")
        return declared

    # The file ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self, *, make: bool = False) -> Iterator[sqlite3.Connection]:
        with self._told():
            if make:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = self._connection(make=make)
            if connection is None:
                raise StorageError(f"{self.said} is gone, or another file stands in its place")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def _reading(self, bounds: Bounds | None = None) -> Iterator[sqlite3.Connection | None]:
        """One instant of the file; None where it has nothing of ours."""
        with self._told():
            connection = self._connection(make=False)
            if connection is None:
                yield None
                return
            connection.execute("BEGIN")
            try:
                connection.set_progress_handler(None if bounds is None else lambda: bounds.is_late, STEPS)
                yield connection
            finally:
                connection.set_progress_handler(None, STEPS)
                connection.execute("ROLLBACK")

    def _connection(self, *, make: bool) -> sqlite3.Connection | None:
        there = identity(self.path)
        if self._opened is not None and there != self._file:
            self.close()  # what is open is a file that was deleted: nobody else would see what is written there
        if self._opened is None:
            if not make and there is None:
                return None
            self._opened = self._open(make=make)
            self._file = identity(self.path)
        return self._opened

    def _open(self, *, make: bool) -> sqlite3.Connection | None:
        connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            connection.create_function(sqlite_values.ORDER, 1, sqlite_values.order_of, deterministic=True)
            if make:
                set_wal(connection)
                connection.execute("BEGIN IMMEDIATE")
                for statement in LAYOUT:
                    connection.execute(statement.format(version=VERSION))
                connection.execute("COMMIT")
            connection.execute("PRAGMA synchronous = NORMAL")
            if not has_layout(connection, self.said):
                connection.close()
                return None
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of SQLite and the system as ours. The connection goes with them: the next call opens the file anew."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise error_of(self.said, error) from None  # its own text has the path as it is
