"""A database that is captured by triggers: its events, read until nothing is left, and the rows that they fold to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from capture.captured import applied
from capture.sources.postgres.following import Base
from tidelog.capture.change import Commit, Event, Idle, Position
from tidelog.capture.source import ChangeSource
from tidelog.capture.sources.postgres.triggers.changelog import PostgresChangelog
from tidelog.capture.sources.postgres.triggers.source import TriggerSource, connect

KV = "CREATE TABLE kv (id int PRIMARY KEY, v text)"


def source_of(base: Base, *tables: str, name: str = "t", url: str | None = None) -> TriggerSource:
    made = connect(url or base.url, name, tables or ("*",))
    fits: ChangeSource = made  # the protocol's
    assert fits is made
    base._opened.append(made)
    return made


def started(base: Base, *tables: str, name: str = "t") -> tuple[TriggerSource, PostgresChangelog]:
    """A source with its triggers made, and its stream from there on."""
    source = source_of(base, *tables, name=name)
    source.prepare()
    snapshot = source.snapshot()
    snapshot.close()
    base.first = snapshot.position
    return source, source.stream(snapshot.position)


def drained(stream: PostgresChangelog, limit: int = 1000) -> list[Event]:
    """All that is committed, without Idle."""
    events: list[Event] = []
    while True:
        came = stream.read(limit, 0.001)
        events += [event for event in came if not isinstance(event, Idle)]
        if came and all(isinstance(event, Idle) and "upto" not in event.position for event in came):
            return events


class Reader:
    """Reads in pieces and applies whole transactions, of which each change must fit what is there."""

    def __init__(self, base: Base, limit: int) -> None:
        self._base, self._limit = base, limit
        self.source, self._stream = started(base)
        self.tables: dict[str, dict[Any, Any]] = {}
        self._position: Position = base.first
        self._open: list[Event] = []
        self.transactions: list[list[Event]] = []

    def read_all(self) -> None:
        while True:
            came = self._stream.read(self._limit, 0.001)
            if self.take(came):
                return

    def take(self, came: Sequence[Event]) -> bool:
        """Whether that was all."""
        for event in came:
            if isinstance(event, Idle):
                assert not self._open, "nothing is idle inside of a transaction"
                self._position = event.position
                continue
            self._open.append(event)
            if isinstance(event, Commit):
                events, self._open = self._open, []
                applied(self.tables, events)
                self.transactions.append(events)
                self._position = event.position
        return all(isinstance(event, Idle) and "upto" not in event.position for event in came)

    def read_some(self, pieces: int) -> None:
        for _ in range(pieces):
            self.take(self._stream.read(self._limit, 0.001))

    def again(self, *, confirmed: bool) -> None:
        """As after a crash: what was not whole is read once more."""
        if confirmed:
            self._stream.confirm(self._position)
            self._stream.purge()
        self.source.close()
        self._open = []
        self.source = source_of(self._base)
        self.source.prepare()
        self._stream = self.source.stream(self._position)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        import json

        return sorted(tuple(json.loads(text) for text in row) for row in self.tables.get(name, {}).values())
