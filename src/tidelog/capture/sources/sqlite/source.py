"""A SQLite file as a source: `sqlite:///shop.db`. Triggers log every change to a table of the same file.

    prepare     makes that table and the triggers, for each table that is captured (`installing.py`, `triggers.py`)
    snapshot    several connections, each with a read transaction begun while nobody could write: they see the same
                rows, and the last change that these rows contain
    stream      the changes after that (`changelog.py`)
    confirm     deletes changes that are stored in the log; nothing else ever deletes one
    remove      takes triggers and tables away

    position    {"log":"a1b2c3","id":12}: the number of the last change, and which table of changes: one that was
                removed and made again, or a file that was restored from a backup, does not go on where the log is

Rules:
- Nothing else in the file is written. The journal mode stays what it is; without WAL, writers wait for a snapshot.
- A file that is locked for long, or cannot be opened, is `Disconnected`: it may be there again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import islice, pairwise
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any
from urllib.parse import unquote

from tidelog import __version__
from tidelog.capture.change import Begin, CheckFinding, Position, RowChange, SourceLag, SourceTable, Values
from tidelog.capture.source import Newcomer
from tidelog.capture.sources.sqlite import installing
from tidelog.capture.sources.sqlite.changelog import Changelog
from tidelog.capture.sources.sqlite.shapes import (
    SCHEMA,
    SqliteTable,
    captured_names,
    described,
    quoted,
    row_list,
    typed,
)
from tidelog.capture.sources.sqlite.triggers import NOW_MS, Names
from tidelog.capture.sources.sqlite.values import bound, reader
from tidelog.errors import Disconnected, SourceLost, UsageError

PREFIX = "sqlite:///"
BUSY_S = 10.0
READERS = 4
ROWS_WORTH_SPLITTING = 10_000
OLDEST = (3, 37, 0)  # has pragma_table_list
SNAPSHOT_WORDS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"


def _field(name: str, kind: str, *, optional: bool = False) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": name}


SOURCE_SCHEMA: Mapping[str, Any] = {
    "type": "struct",
    "fields": [
        *(_field(name, "string") for name in ("version", "connector", "name")),
        _field("ts_ms", "int64"),
        {
            "type": "string",
            "optional": True,
            "name": "io.debezium.data.Enum",
            "version": 1,
            "parameters": {"allowed": SNAPSHOT_WORDS},
            "default": "false",
            "field": "snapshot",
        },
        _field("db", "string"),
        _field("sequence", "string", optional=True),
        *(_field(name, "int64", optional=True) for name in ("ts_us", "ts_ns")),
        *(_field(name, "string") for name in ("schema", "table")),
        _field("change_id", "int64", optional=True),
    ],
    "optional": False,
    "name": "io.tidelog.connector.sqlite.Source",
    "version": 1,
}


def connect(url: str, name: str, tables: Sequence[str]) -> SQLiteSource:
    path = unquote(url.removeprefix(PREFIX).partition("?")[0])
    if not url.startswith(PREFIX) or not path:
        raise UsageError("it has no file; write sqlite:///relative.db or sqlite:////absolute.db")
    return SQLiteSource(Path(path), name, tables)


@contextmanager
def told() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise Disconnected(f"the SQLite file cannot be read or written now: {error}") from error
    except sqlite3.DatabaseError as error:
        raise SourceLost(f"the SQLite file is damaged, or is not one: {error}") from error


class SQLiteSource:
    connector = "sqlite"
    source_schema = SOURCE_SCHEMA

    def __init__(self, path: Path, name: str, tables: Sequence[str]) -> None:
        self.path, self.database = path, path.stem
        self._names = Names(name)
        self._patterns = list(tables)
        self._opened: sqlite3.Connection | None = None
        self._shapes: dict[int, tuple[SourceTable, Any, SqliteTable]] = {}
        self._stream: Changelog | None = None
        self._heads: dict[tuple[str, str, str], tuple[str, str]] = {}

    # Checking ---------------------------------------------------------------------------------------------------------

    def check(self) -> Sequence[CheckFinding]:
        if not self.path.is_file():
            return [CheckFinding("error", f"the file {self.path} does not exist", "name the file of the database")]
        if sqlite3.sqlite_version_info < OLDEST:
            return [CheckFinding("error", f"Python's SQLite is {sqlite3.sqlite_version}", "use one from 3.37 on")]
        with told():
            names = captured_names(self._connection, self._patterns)
            if not names:
                return [CheckFinding("error", f"no table of {self.path} matches {', '.join(self._patterns)}")]
            (mode,) = self._connection.execute("PRAGMA journal_mode").fetchone()
            found = [CheckFinding("ok", f"{len(names)} tables are captured: {', '.join(names)}")]
            if mode != "wal":
                found.append(
                    CheckFinding(
                        "warning", f"journal_mode is {mode}: writers wait for a snapshot", "PRAGMA journal_mode=WAL"
                    )
                )
            return found + [one for name in names for one in _findings(described(self._connection, name))]

    def prepare(self) -> None:
        if not self.path.is_file():
            raise UsageError(f"the file {self.path} does not exist; name the file of the database")
        with told():
            installing.install(self._connection, self._names, self._patterns)

    def remove(self) -> Sequence[str]:
        with told():
            return installing.remove(self._connection, self._names)

    # Reading ----------------------------------------------------------------------------------------------------------

    def snapshot(self) -> SQLiteSnapshot:
        with told(), ExitStack() as opened:
            readers = [opened.enter_context(closing(self._connect())) for _ in range(READERS)]
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for one in readers:
                    one.execute("BEGIN")
                    one.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
            finally:
                self._connection.execute("ROLLBACK")  # without WAL a commit, of nothing too, would wait for the readers
            (last,) = (
                readers[0]
                .execute(
                    "SELECT max((SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?), pruned)"
                    f" FROM {quoted(self._names.state)}",
                    (self._names.changes,),
                )
                .fetchone()
            )
            live = installing.live_shapes(readers[0], self._names)
            tables = {self._shape(number)[0]: one for number, one in live.values()}
            made = SQLiteSnapshot({"log": self._log(), "id": last}, tables, readers)
            opened.pop_all()
            return made

    def stream(self, position: Position) -> Changelog:
        with told():
            log, begin = self._log(), int(position["id"])
            (pruned,) = self._connection.execute(f"SELECT pruned FROM {quoted(self._names.state)}").fetchone()
            found = self._connection.execute(
                "SELECT seq FROM sqlite_sequence WHERE name = ?", (self._names.changes,)
            ).fetchone()
        last = max(found[0] if found else 0, pruned)
        if position.get("log") != log or begin < pruned or begin > last:
            raise SourceLost(
                f"{self.path} does not have the changes after {dict(position)}: its table of changes is {log!r}, from"
                f" {pruned} to {last}; the file was restored, or the capture's triggers were removed: capture again"
                " with --snapshot when_needed"
            )
        self._stream = Changelog(
            self._connection, self._names, log, begin, self._bring_in_step, lambda shape: self._shape(shape)[:2]
        )
        return self._stream

    def newcomers(self, known: Mapping[str, str]) -> Sequence[Newcomer]:
        return ()  # their rows are logged when they get their triggers

    def tables(self) -> Sequence[SourceTable]:
        with told():
            live = installing.live_shapes(self._connection, self._names)
            return [self._shape(number)[0] for number, _ in live.values()]

    def chunk(self, table: SourceTable, after: Values | None, to: Values | None, size: int) -> Sequence[Values]:
        one = self._live(table)
        with told():
            return list(_rows(self._connection, one, after, to, f" LIMIT {int(size)}"))

    def last_key(self, table: SourceTable) -> Values | None:
        one = self._live(table)
        order = ", ".join(f"{quoted(name)} DESC" for name in one.key)
        with told():
            row = self._connection.execute(
                f"SELECT {row_list(one)} FROM {quoted(one.name)} ORDER BY {order} LIMIT 1"
            ).fetchone()
        if row is None:
            return None
        values = reader(typed(one))(row)
        return tuple(values[one.names.index(name)] for name in one.key)

    def watermark(self, text: str) -> None:
        with told():
            columns = self._connection.execute("SELECT 1 FROM pragma_table_info(?)", (self._names.changes,)).fetchall()
            assert len(columns) > 4, "a captured table has columns"
            self._connection.execute(
                f"INSERT INTO {quoted(self._names.changes)} (op, at, b0) VALUES ('w', {NOW_MS}, ?)", (text,)
            )
        if self._stream is not None:
            self._stream.look_again()

    def source_block(self, row: RowChange, begin: Begin, snapshot: str, name: str) -> str:
        if isinstance(row.where, tuple):
            number, at_ms = row.where
        else:  # of a snapshot, or of nothing that was logged
            number, at_ms = "null", begin.commit_us // 1000
        head = self._heads.get((name, row.table.name, snapshot))
        if head is None:
            texts = [reader(["string"])([text])[0] for text in (__version__, name, self.database, row.table.name)]
            head = (
                f'{{"version":{texts[0]},"connector":"sqlite","name":{texts[1]},"ts_ms":',
                f',"snapshot":"{snapshot}","db":{texts[2]},"sequence":null,"ts_us":%d,"ts_ns":%d,"schema":"{SCHEMA}",'
                f'"table":{texts[3].replace("%", "%%")},"change_id":%s}}',
            )
            self._heads[name, row.table.name, snapshot] = head
        return f"{head[0]}{at_ms}{head[1] % (at_ms * 1_000, at_ms * 1_000_000, number)}"

    def lag(self) -> SourceLag:
        with told():
            oldest, now = self._connection.execute(
                f"SELECT (SELECT at FROM {quoted(self._names.changes)} ORDER BY id LIMIT 1), {NOW_MS}"
            ).fetchone()
        return SourceLag(None, 0.0 if oldest is None else max(0.0, (now - oldest) / 1000), None)

    def heartbeat(self) -> None:
        """An idle file keeps nothing back."""
        if self._stream is not None:
            self._stream.beat()

    def close(self) -> None:
        if self._stream is not None and self._opened is not None:
            self._stream.close()
        if self._opened is not None:
            self._opened.close()
        self._stream = self._opened = None

    # Within -----------------------------------------------------------------------------------------------------------

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            self._opened = self._connect()
        return self._opened

    def _connect(self) -> sqlite3.Connection:
        made = sqlite3.connect(
            f"file:{self.path.absolute().as_uri().removeprefix('file:')}?mode=rw",
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
        made.text_factory = lambda text: str(text, "utf-8", "replace")
        return made

    def _log(self) -> str:
        (log,) = self._connection.execute(f"SELECT log FROM {quoted(self._names.state)}").fetchone()
        return str(log)

    def _bring_in_step(self) -> None:
        with told():
            installing.install(self._connection, self._names, self._patterns)

    def _shape(self, number: int) -> tuple[SourceTable, Any, SqliteTable]:
        known = self._shapes.get(number)
        if known is None:
            name, text = self._connection.execute(
                f"SELECT name, described FROM {quoted(self._names.shapes)} WHERE shape = ?", (number,)
            ).fetchone()
            one = SqliteTable.from_text(name, text)
            known = self._shapes[number] = (one.table(), reader(typed(one)), one)
        return known

    def _live(self, table: SourceTable) -> SqliteTable:
        found = installing.live_shapes(self._connection, self._names).get(table.name)
        if found is None or not found[1].key:
            raise UsageError(
                f"{table.full_name} is not captured, or has no primary key; an incremental snapshot needs it"
            )
        return found[1]


class SQLiteSnapshot:
    def __init__(
        self, position: Position, tables: Mapping[SourceTable, SqliteTable], readers: Sequence[sqlite3.Connection]
    ) -> None:
        self.position = position
        self._tables = tables
        self._readers = list(readers)
        self._free: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        self._first, self._lock = readers[0], Lock()
        for one in readers[1:]:
            self._free.put(one)

    def tables(self) -> Sequence[SourceTable]:
        return list(self._tables)

    def count(self, table: SourceTable) -> int:
        with told(), self._lock:
            (found,) = self._first.execute(f"SELECT count(*) FROM {quoted(table.name)}").fetchone()
        return int(found)

    def split(self, table: SourceTable, parts: int) -> Sequence[tuple[Values | None, Values | None]]:
        """Only of an INTEGER PRIMARY KEY: its least and largest tell how to."""
        one = self._tables[table]
        if len(one.key) != 1 or not one.has_rowid or self.count(table) < ROWS_WORTH_SPLITTING:
            return [(None, None)]
        key = quoted(one.key[0])
        with told(), self._lock:
            low, high, kind = self._first.execute(
                f"SELECT min({key}), max({key}), group_concat(DISTINCT typeof({key})) FROM {quoted(one.name)}"
            ).fetchone()
        if kind != "integer":
            return [(None, None)]
        bounds = [str(low + (high - low) * at // parts) for at in range(1, parts)]
        edges: list[Values | None] = [None, *((bound,) for bound in dict.fromkeys(bounds)), None]
        return list(pairwise(edges))

    def rows(
        self, table: SourceTable, after: Values | None, to: Values | None, size: int
    ) -> Iterator[Sequence[Values]]:
        connection = self._free.get()
        try:
            with told():
                found = _rows(connection, self._tables[table], after, to, "")
                while part := list(islice(found, size)):
                    yield part
        finally:
            self._free.put(connection)

    def close(self) -> None:
        for one in self._readers:
            one.close()


def _rows(
    connection: sqlite3.Connection, one: SqliteTable, after: Values | None, to: Values | None, limit: str
) -> Iterator[Values]:
    """By order of key; of a table without one, as they lie."""
    kinds = dict(zip(one.names, typed(one), strict=True))
    key = f"({', '.join(quoted(name) for name in one.key)})"
    conditions, values = [], []
    for edge, sign in ((after, ">"), (to, "<=")):
        if edge is not None:
            conditions.append(f"{key} {sign} ({', '.join('?' for _ in one.key)})")
            values += [bound(text, kinds[name]) for name, text in zip(one.key, edge, strict=True)]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    order = f" ORDER BY {', '.join(quoted(name) for name in one.key)}" if one.key else ""
    found = connection.execute(f"SELECT {row_list(one)} FROM {quoted(one.name)}{where}{order}{limit}", values)
    return map(reader(typed(one)), found)


def _findings(one: SqliteTable) -> list[CheckFinding]:
    found = []
    if not one.key:
        found.append(
            CheckFinding(
                "warning", f"table {one.name} has no primary key: its records have no key", "give it a PRIMARY KEY"
            )
        )
    if any(not index.columns for index in one.unique):
        found.append(
            CheckFinding(
                "warning",
                f"table {one.name} has a unique index of an expression: rows that REPLACE removes by it are not seen",
                "do not use INSERT OR REPLACE on it",
            )
        )
    return found
