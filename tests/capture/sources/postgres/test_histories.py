"""Histories at random, with several writers and a reader that is stopped and begun anew: folded events = the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.sources.postgres.following import SECONDS, Base, Folded, check_frames
from postgres_server import PostgresServer
from proving import proves
from tidelog.capture.change import Begin, Commit, Event, Idle, Message
from tidelog.capture.sources.postgres.slots import lsn_in
from tries import tries

KEYS = st.integers(1, 6)
STATEMENTS = st.one_of(
    st.builds("INSERT INTO h VALUES ({0}, {1}) ON CONFLICT (id) DO UPDATE SET v = excluded.v".format, KEYS, KEYS),
    st.builds("UPDATE h SET v = v + {0} WHERE id = {1}".format, KEYS, KEYS),
    st.builds("DELETE FROM h WHERE id = {0}".format, KEYS),
    st.builds("UPDATE h SET id = {0} WHERE id = {1} AND NOT EXISTS (SELECT FROM h WHERE id = {0})".format, KEYS, KEYS),
    st.just("TRUNCATE h"),
    st.just("SAVEPOINT s"),
    st.just("ROLLBACK TO s"),
)
# Of one writer at a time per step: a transaction that is ended, and whether a second writer's commits inside of it.
TRANSACTIONS = st.tuples(
    st.lists(STATEMENTS, max_size=5), st.sampled_from(["COMMIT", "COMMIT", "ROLLBACK"]), st.booleans()
)


def write(base: Base, other: Any, statements: Sequence[str], end: str, *, beside: bool) -> None:
    base.run("BEGIN", "SAVEPOINT s")
    for statement in statements:
        base.run(statement)
    if beside:
        other.execute("INSERT INTO aside VALUES (1) ON CONFLICT (id) DO UPDATE SET n = aside.n + 1")
    base.run(end)


class Reader:
    """Reads in small pieces, applies whole transactions, and remembers where it was."""

    def __init__(self, base: Base) -> None:
        self._base = base
        self.source, self._stream = base.started()
        self.folded = Folded()
        self._open: list[Event] = []
        self._position: Any = None
        self.commits: list[int] = []

    def read_to_mark(self, stops: set[int]) -> None:
        """After each number of events in `stops`, the stream is stopped and begun anew where the last commit was."""
        self._base.run("SELECT pg_logical_emit_message(true, 'test.mark', '')")
        count = 0
        while True:
            for event in self._stream.read(1, SECONDS):
                if isinstance(event, Idle):
                    continue
                self._open.append(event)
                if isinstance(event, Commit) and self._committed(event):
                    return
                count += 1
                if count in stops and self._position is not None:
                    self._again()

    def _committed(self, event: Commit) -> bool:
        events, self._open = self._open, []
        check_frames(events)
        assert isinstance(events[0], Begin)
        self.folded.apply(events)
        self._position = event.position
        self.commits.append(lsn_in(event.position))
        self._stream.confirm(event.position)
        return any(isinstance(each, Message) for each in events)

    def _again(self) -> None:
        self._stream.close()
        self._open = []
        for _ in range(400):
            active = "SELECT active FROM pg_replication_slots WHERE database = current_database()"
            if not self._base.ask(active)[0][0]:
                break
            self._base.run("SELECT pg_sleep(0.01)")
        self._stream = self._base.stream(self.source, self._position)


@proves("cdc.1", "cdc.2", "cdc.11", "cdc.16")
@pytest.mark.slow
@tries(15)  # each takes a hundred statements and a few starts of the stream
@given(st.lists(TRANSACTIONS, min_size=1, max_size=6), st.sets(st.integers(1, 30), max_size=2), st.booleans())
def test_folded_events_are_the_table_whatever_happens(
    logical_server: PostgresServer, history: list[Any], stops: set[int], whole: bool
) -> None:
    with Base(logical_server.url()) as base:
        base.run(
            "CREATE TABLE h (id int PRIMARY KEY, v int)", "CREATE TABLE aside (id int PRIMARY KEY, n int DEFAULT 1)"
        )
        if whole:
            base.run("ALTER TABLE h REPLICA IDENTITY FULL")
        reader = Reader(base)
        other = base.connection()
        for statements, end, beside in history:
            write(base, other, statements, end, beside=beside)
        reader.read_to_mark(stops)
        assert reader.folded.rows("h") == [list(row) for row in base.ask("SELECT id, v FROM h ORDER BY id")]
        assert reader.folded.rows("aside") == [list(row) for row in base.ask("SELECT id, n FROM aside")]
        assert reader.commits == sorted(set(reader.commits))
