"""A MariaDB database that is captured by triggers: its events, read until nothing is left."""

from __future__ import annotations

from typing import Any

from capture.captured import applied
from capture.sources.mysql.reading import Database, named
from tidelog.capture.change import Commit, Event, Idle, Message, Position, RowChange
from tidelog.capture.source import ChangeSource
from tidelog.capture.sources.mysql.triggers.changelog import GapChangelog
from tidelog.capture.sources.mysql.triggers.source import MysqlTriggerSource, connect

KV = "CREATE TABLE kv (id int PRIMARY KEY, v varchar(200))"


def source_of(db: Database, *tables: str, user: str = "root", password: str = "", options: str = "") -> Any:
    made = connect(db.server.url(db.name, user, password, options), db.name, tables or ("*",))
    fits: ChangeSource = made  # the protocol's
    assert fits is made
    db._sources.append(made)
    return made


def started(db: Database, *tables: str) -> tuple[MysqlTriggerSource, GapChangelog, Position]:
    source = source_of(db, *tables)
    source.prepare()
    snapshot = source.snapshot()
    snapshot.close()
    return source, source.stream(snapshot.position), snapshot.position


def drained(stream: GapChangelog, limit: int = 1000) -> list[Event]:
    events: list[Event] = []
    while True:
        came = stream.read(limit, 0.001)
        events += [event for event in came if not isinstance(event, Idle)]
        if came and all(isinstance(event, Idle) and "upto" not in event.position for event in came):
            return events


def told(events: list[Event]) -> list[tuple[str, Any, Any]]:
    return [
        (row.op, named(row.table, row.before), named(row.table, row.after))
        for row in events
        if isinstance(row, RowChange)
    ]


class Reader:
    """Reads in pieces, applies whole units, of which each change must fit what is there, and begins anew."""

    def __init__(self, db: Database, limit: int) -> None:
        self._db, self._limit = db, limit
        self.source, self._stream, self._position = started(db)
        self.tables: dict[str, dict[Any, Any]] = {}
        self._open: list[Event] = []

    def read_some(self, pieces: int) -> bool:
        for _ in range(pieces):
            came = self._stream.read(self._limit, 0.001)
            for event in came:
                if isinstance(event, Idle):
                    assert not self._open
                    self._position = event.position
                elif not isinstance(event, Message):
                    self._open.append(event)
                if isinstance(event, Commit):
                    events, self._open = self._open, []
                    applied(self.tables, events)
                    self._position = event.position
        return all(isinstance(event, Idle) and "upto" not in event.position for event in came)

    def again(self, *, confirmed: bool) -> None:
        """As after a crash."""
        if confirmed:
            self._stream.confirm(self._position)
            self._stream.purge()
        self.source.close()
        self._open = []
        self.source = source_of(self._db)
        self.source.prepare()
        self._stream = self.source.stream(self._position)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        import json

        return sorted(tuple(json.loads(text) for text in row) for row in self.tables.get(name, {}).values())
