"""A database to be captured, its events read up to a mark, and events folded into tables, as SELECT must see them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import psycopg

from tidelog.capture.change import Begin, Commit, Event, Idle, Message, Position, RowChange, SourceTable, Values
from tidelog.capture.sources.postgres.source import PostgresSource, connect
from tidelog.capture.sources.postgres.stream import PostgresStream

MARK = "test.mark"
SECONDS = 20.0


class Base:
    """A database of its own, with the sources that were opened on it."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self.name = f"d{uuid4().hex[:12]}"
        self.url = server_url.replace("/postgres?", f"/{self.name}?")
        self._opened: list[Any] = []

    def __enter__(self) -> Base:
        with psycopg.connect(self._server_url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {self.name} TEMPLATE template0 ENCODING 'UTF8'")
        self.writer = self.connection()
        return self

    def __exit__(self, *_: object) -> None:
        for opened in reversed(self._opened):
            opened.close()
        with psycopg.connect(self._server_url, autocommit=True) as connection:
            gone = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
            )
            connection.execute(gone, [self.name])
            slots = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s"
            for _ in range(50):
                try:
                    connection.execute(slots, [self.name])
                    break
                except psycopg.errors.ObjectInUse:
                    connection.execute("SELECT pg_sleep(0.05)")
            connection.execute(f"DROP DATABASE {self.name} WITH (FORCE)")

    def connection(self) -> psycopg.Connection[Any]:
        made = psycopg.connect(self.url, autocommit=True)
        self._opened.append(made)
        return made

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.writer.execute(statement)  # type: ignore[call-overload]

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        return self.writer.execute(statement).fetchall()  # type: ignore[call-overload,no-any-return]

    def source(self, *tables: str, name: str = "t", url: str | None = None) -> PostgresSource:
        made = connect(url or self.url, name, tables or ("*",))
        self._opened.append(made)
        return made

    def started(self, *tables: str) -> tuple[PostgresSource, PostgresStream]:
        """A source with its slot made, and its stream from there on."""
        source = self.source(*tables)
        source.prepare()
        snapshot = source.snapshot()
        snapshot.close()
        self.first = snapshot.position
        stream = source.stream(snapshot.position)
        self._opened.append(stream)
        return source, stream

    def stream(self, source: PostgresSource, position: Position) -> PostgresStream:
        stream = source.stream(position)
        self._opened.append(stream)
        return stream

    def drain(self, stream: PostgresStream) -> list[Event]:
        """All events that come before a mark of ours, without the mark's own transaction, and without Idle."""
        mark = uuid4().hex
        self.writer.execute("SELECT pg_logical_emit_message(true, %s, %s)", [MARK, mark])
        events = until(stream, lambda event: isinstance(event, Message) and event.content == mark.encode())
        until(stream, lambda event: isinstance(event, Commit))
        assert isinstance(events.pop(), Begin)
        return events


def until(stream: PostgresStream, last: Callable[[Event], bool]) -> list[Event]:
    """The events before the first of which `last` holds, but for Idle."""
    events: list[Event] = []
    while True:
        came = stream.read(1, SECONDS)
        assert came, f"nothing came in {SECONDS} s after {events[-3:]}"
        for event in came:
            if last(event):
                return events
            if not isinstance(event, Idle):
                events.append(event)


def rows_of(events: Sequence[Event]) -> list[RowChange]:
    return [event for event in events if isinstance(event, RowChange)]


def shown(table: SourceTable, values: Values | None) -> dict[str, Any] | None:
    """A row as what its texts say."""
    if values is None:
        return None
    assert len(values) == len(table.columns)
    return {column.name: json.loads(text) for column, text in zip(table.columns, values, strict=True)}


def told(events: Sequence[Event]) -> list[tuple[str, str, Any, Any]]:
    return [
        (row.table.name, row.op, shown(row.table, row.before), shown(row.table, row.after)) for row in rows_of(events)
    ]


def check_frames(events: Sequence[Event]) -> list[Position]:
    """Transactions are whole and one after the other; the positions of their commits."""
    positions: list[Position] = []
    inside = False
    for event in events:
        if isinstance(event, Begin):
            assert not inside
            inside = True
        elif isinstance(event, Commit):
            assert inside
            inside = False
            positions.append(event.position)
        elif isinstance(event, RowChange):
            assert inside, f"{event} lies outside of a transaction"
    return positions


class Folded:
    """Tables by what was told of them: what a view would be."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[tuple[str, ...], Values]] = {}

    def read(self, table: SourceTable, rows: Sequence[Values]) -> None:
        for row in rows:
            self.tables.setdefault(table.name, {})[key_of(table, row)] = row

    def apply(self, events: Sequence[Event]) -> None:
        for row in rows_of(events):
            kept = self.tables.setdefault(row.table.name, {})
            if row.op == "t":
                kept.clear()
                continue
            if row.before is not None:
                kept.pop(key_of(row.table, row.before), None)
            if row.after is not None:
                kept[key_of(row.table, row.after)] = row.after

    def rows(self, name: str) -> list[list[Any]]:
        return sorted([json.loads(text) for text in row] for row in self.tables.get(name, {}).values())


def key_of(table: SourceTable, row: Values) -> tuple[str, ...]:
    names = [column.name for column in table.columns]
    return tuple(row[names.index(name)] for name in table.key)
