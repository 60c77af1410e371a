"""A database with a capture's source on it, for tests: statements in, events out, and the rows that they fold to."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

from capture.sources.mysql.mariadb_server import MariaDbServer
from tidelog.capture.change import Begin, Commit, Event, Idle, Position, RowChange, SourceTable, Values
from tidelog.capture.source import ChangeSource
from tidelog.capture.sources.mysql.source import MySqlSource, connect
from tidelog.capture.sources.mysql.stream import BinlogStream

WAIT_SECONDS = 60.0


class Database:
    def __init__(self, server: MariaDbServer, name: str) -> None:
        self.server, self.name = server, name
        server.run(f"CREATE DATABASE {name}")
        self._sources: list[MySqlSource] = []

    def run(self, *statements: str) -> list[Any]:
        return self.server.run(*statements, database=self.name)

    def source(self, *tables: str, user: str = "root", password: str = "", options: str = "") -> MySqlSource:
        url = self.server.url(self.name, user, password, options)
        source = connect(url, f"capture-of-{self.name}", tables)
        fits: ChangeSource = source  # the protocol's
        assert fits is source
        self._sources.append(source)
        return source

    def here(self) -> Position:
        ((gtid,),) = self.server.run("SELECT @@gtid_binlog_pos")
        ((file, pos, *_),) = self.server.run("SHOW MASTER STATUS")
        return {"gtid": gtid, "file": file, "pos": pos}

    def close(self) -> None:
        for source in self._sources:
            source.close()
        if self.server.process is not None and self.server.process.poll() is None:
            self.server.run(f"DROP DATABASE {self.name}")


def read_all(stream: BinlogStream, limit: int = 1000) -> list[Event]:
    """Until the server has no more."""
    events: list[Event] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        came = stream.read(limit, 0.2)
        assert len(came) <= limit
        events += came
        if came and isinstance(came[-1], Idle):
            return [event for event in events if not isinstance(event, Idle)]
    raise AssertionError(f"the stream did not come to rest in {WAIT_SECONDS} s")


def rows_of(events: Iterable[Event]) -> list[RowChange]:
    return [event for event in events if isinstance(event, RowChange)]


def named(table: SourceTable, values: Values | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {column.name: json.loads(value) for column, value in zip(table.columns, values, strict=True)}


def key_of(table: SourceTable, values: Values) -> Values:
    places = [[column.name for column in table.columns].index(name) for name in table.key]
    return tuple(values[place] for place in places)


def fold(events: Iterable[Event], start: dict[Values, Values] | None = None) -> dict[Values, Values]:
    """The rows of one table by key. Each event must fit what is there."""
    rows = dict(start or {})
    for row in rows_of(events):
        if row.op == "t":
            rows.clear()
        if row.before is not None:
            assert rows.pop(key_of(row.table, row.before)) == row.before
        if row.after is not None:
            key = key_of(row.table, row.after)
            assert key not in rows
            rows[key] = row.after
    return rows


def snapshot_rows(source: MySqlSource, name: str) -> dict[Values, Values]:
    snapshot = source.snapshot()
    try:
        table = next(table for table in snapshot.tables() if table.name == name)
        rows = [row for part in snapshot.rows(table, None, None, 100) for row in part]
        return {key_of(table, row): row for row in rows}
    finally:
        snapshot.close()


def transactions(events: Sequence[Event]) -> list[list[Event]]:
    """Each from its Begin to its Commit; nothing of another lies between."""
    found: list[list[Event]] = []
    open_ = False
    for event in events:
        if isinstance(event, Begin):
            assert not open_
            open_ = True
            found.append([])
        if open_:
            found[-1].append(event)
        if isinstance(event, Commit):
            assert open_
            open_ = False
    assert not open_
    return found
