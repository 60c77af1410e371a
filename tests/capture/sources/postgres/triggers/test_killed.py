"""A server that is killed hands out the numbers of transactions anew that it had not written down."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from capture.sources.postgres.following import Base, told
from capture.sources.postgres.triggers.logged import KV, drained, source_of, started
from postgres_server import PostgresServer
from proving import proves
from tidelog.capture.change import Commit, Idle, Position
from tidelog.capture.sources.postgres.triggers.changelog import PostgresChangelog
from tidelog.capture.sources.postgres.triggers.source import TriggerSource

UNDONE = 5


@pytest.fixture(scope="module")
def forgetful() -> Iterator[PostgresServer]:
    """What no commit has written down, nobody writes down for ten seconds."""
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(Path(folder).resolve(), {"wal_writer_delay": "10s", "bgwriter_delay": "10s"})
        server.start()
        yield server
        server.stop()


def idle(source: TriggerSource, stream: PostgresChangelog) -> Position:
    stream.read(10, 0)
    (event,) = stream.read(10, 0.001)
    assert isinstance(event, Idle)
    return event.position


def small(source: TriggerSource, stream: PostgresChangelog) -> Position:
    return [event for event in stream.read(10, 0) if isinstance(event, Commit)][-1].position


def inside_of_small(source: TriggerSource, stream: PostgresChangelog) -> Position:
    return next(event for event in stream.read(10, 0) if isinstance(event, Commit)).position


def large(source: TriggerSource, stream: PostgresChangelog) -> Position:
    (event,) = [event for event in stream.read(1, 0) if isinstance(event, Idle)]
    return event.position


def snapshot(source: TriggerSource, stream: PostgresChangelog) -> Position:
    taken = source.snapshot()
    taken.close()
    return taken.position


@proves("D2", "cdc.1", "cdc.2")
@pytest.mark.slow
@pytest.mark.parametrize(
    "position_of, left",
    [(idle, ""), (small, ""), (inside_of_small, "b"), (large, "ab"), (snapshot, "")],
    ids=["idle", "small", "inside of small", "large", "snapshot"],
)
def test_transactions_that_get_the_numbers_of_undone_ones_are_told(
    forgetful: PostgresServer, position_of: Callable[[TriggerSource, PostgresChangelog], Position], left: str
) -> None:
    with Base(forgetful.url()) as base:
        base.run(KV)
        source, stream = started(base)
        base.run("INSERT INTO kv VALUES (1, 'a')", "INSERT INTO kv VALUES (2, 'b')")
        undone = [_undone(base) for _ in range(UNDONE)]
        position = position_of(source, stream)
        forgetful.kill()
        source.close()
        forgetful.start()
        base.writer = base.connection()
        base.run("INSERT INTO kv VALUES (3, 'c')")
        stream = source_of(base).stream(position)
        first = stream.read(1, 0)
        base.run(*(f"INSERT INTO kv VALUES ({number}, 'd')" for number in range(4, 9)))
        numbers = base.ask("SELECT xid::text::bigint FROM _tidelog_t.changes WHERE after ~ '[cd]' ORDER BY id")
        assert position_of in (large, snapshot) or {number for (number,) in numbers} & {*undone}, "none came again"
        events = [event for event in [*first, *drained(stream)] if not isinstance(event, Idle)]
        assert [after["v"] for _, _, _, after in told(events)] == [*left, *"cddddd"]


def _undone(base: Base) -> int:
    base.run("BEGIN", "INSERT INTO kv VALUES (9, 'undone')")
    ((number,),) = base.ask("SELECT pg_current_xact_id()::text::bigint")
    base.run("ROLLBACK")
    return int(number)
