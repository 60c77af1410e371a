"""Appliers that share a view, each a process of its own: what a reader may see of them, and every change they make.

`Partitions` is what the rows of each partition are at each of its ends: with shares, a micro-batch is whole in each.
`watch_rows` has the store itself note every row that is written, so that one that is written twice or too late shows.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import psycopg

from contract import TIMEOUT_S
from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import Ends, Mark
from tidelog.errors import NotShown
from tidelog.record.partitioner import partition_of
from tidelog.views.changes import encode
from tidelog.views.reading import reached
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import PAGE_ROWS_MAX, Ask, Page
from views.applying import until
from views.writing import Pipeline, Rows, revenues, row_of

SOON = {  # that who was killed is missed soon
    "group.consumer.session.timeout.ms": 1500,
    "group.consumer.min.session.timeout.ms": 500,
    "group.consumer.heartbeat.interval.ms": 150,
    "group.consumer.min.heartbeat.interval.ms": 100,
}
KEYS = tuple(f"product {number}" for number in range(16))


# Processes ------------------------------------------------------------------------------------------------------------


class Sharer:
    """`tidelog apply VIEW --share`."""

    def __init__(self, bootstrap: str, url: str, view: str = "revenue", *words: str) -> None:
        line = [sys.executable, "-m", "tidelog", "apply", view, "--store", url, "--share", *words]
        environment = {**os.environ, "TIDELOG_BOOTSTRAP": bootstrap}
        self.process = subprocess.Popen(
            line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        self.is_stopped = False

    def send(self, number: int) -> None:
        self.process.send_signal(number)
        self.is_stopped = {signal.SIGSTOP: True, signal.SIGCONT: False}.get(signal.Signals(number), self.is_stopped)

    def end(self) -> tuple[int, str]:
        """Exit code, and what it complained of."""
        _, said = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, said.decode()


class Sharers:
    """Of one view. All that still run are ended with the test."""

    def __init__(self, bootstrap: str, url: str, view: str = "revenue") -> None:
        self._about = (bootstrap, url, view)
        self.running: list[Sharer] = []

    def start(self, count: int = 1) -> Sharer:
        for _ in range(count):
            self.running.append(Sharer(*self._about))
        return self.running[-1]

    def end(self, one: Sharer, number: int) -> tuple[int, str]:
        if one.is_stopped:
            one.send(signal.SIGCONT if number != signal.SIGKILL else signal.SIGKILL)
        one.send(number)
        self.running.remove(one)
        return one.end()

    def disturb(self, chance: random.Random, most: int = 3) -> str:
        """Something that may happen to one of them."""
        stopped = [one for one in self.running if one.is_stopped]
        awake = [one for one in self.running if not one.is_stopped]
        may = ["start"] * (len(self.running) < most) + ["wake"] * bool(stopped)
        may += ["kill", "term", "stop"] if len(awake) > 1 else []
        what = chance.choice(may or ["nothing"])
        if what == "start":
            self.start()
        elif what == "wake":
            chance.choice(stopped).send(signal.SIGCONT)
        elif what == "stop":
            chance.choice(awake).send(signal.SIGSTOP)
        elif what == "kill":
            self.end(chance.choice(awake), signal.SIGKILL)
        elif what == "term":
            code, said = self.end(chance.choice(awake), signal.SIGTERM)
            assert code in (0, -signal.SIGTERM), said  # it may have had no time to ask for its signals
        return what

    def close(self) -> None:
        for one in list(self.running):
            self.end(one, signal.SIGKILL)


# What they are to do --------------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    rows: dict[str, int]
    ends: Ends
    mark: Mark | None
    generation: int


class Partitions:
    """The rows of each partition, at each of its ends that is a micro-batch's."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._now: dict[TopicPartition, dict[str, int]] = {at: {} for at in pipeline.partitions}
        self._at: dict[tuple[TopicPartition, int], dict[str, int]] = {(at, 0): {} for at in pipeline.partitions}

    @property
    def now(self) -> dict[str, int]:
        return {key: value for rows in self._now.values() for key, value in rows.items()}

    @property
    def ends(self) -> Ends:
        assert self._pipeline.last is not None
        return self._pipeline.last.ends

    def write(self, rows: Rows) -> None:
        mark = self._pipeline.batch(rows)
        for product, revenue in rows.items():
            key, _ = encode(self._pipeline.generation.declared, row_of(product, 0))
            of = self._now[self._pipeline.partitions[partition_of(key, len(self._now))]]
            of.pop(product, None)
            if revenue is not None:
                of[product] = revenue
        self._at |= {(at, mark.ends[at]): dict(rows) for at, rows in self._now.items()}

    def check(self, seen: Seen | None) -> None:
        """Every partition is that of some micro-batch, and the mark claims no more than all of them have."""
        if seen is None:
            return
        expected = {key: value for at, end in seen.ends.items() for key, value in self._at[at, end].items()}
        assert seen.rows == expected
        assert seen.mark is None or reached(seen.mark.ends, seen.ends)


def numbered(number: int, chance: random.Random) -> Rows:
    """A micro-batch by which a row that is written again, or late, is told: numbers only rise."""
    some = chance.sample(KEYS, chance.randint(0, len(KEYS) // 2))
    return {key: None if chance.random() < 0.15 else number for key in some}


def look(url: str, view: str = "revenue") -> Seen | None:
    store = open_store(url, view)
    try:
        page: Page = store.read(Ask(limit=PAGE_ROWS_MAX))
    except NotShown:
        return None
    finally:
        store.close()
    return Seen(revenues(page.rows), page.place.ends, page.place.mark, page.place.generation)


def until_all(url: str, expected: Partitions, view: str = "revenue") -> Seen:
    found: list[Seen] = []

    def there() -> bool:
        seen = look(url, view)
        if seen is None or not set(expected.ends.items()) <= set(seen.ends.items()):
            return False
        found.append(seen)
        return True

    until(there)
    return found[-1]


# What they did --------------------------------------------------------------------------------------------------------

SQLITE_HISTORY = """
CREATE TABLE history (at INTEGER PRIMARY KEY, product TEXT, revenue INTEGER);
CREATE TRIGGER added AFTER INSERT ON "_tidelog_revenue_v1"
  BEGIN INSERT INTO history (product, revenue) VALUES (new.product, new.revenue); END;
CREATE TRIGGER changed AFTER UPDATE ON "_tidelog_revenue_v1"
  BEGIN INSERT INTO history (product, revenue) VALUES (new.product, new.revenue); END;
"""
POSTGRES_HISTORY = """
CREATE TABLE {schema}.history (at bigserial PRIMARY KEY, product text, revenue bigint);
CREATE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN INSERT INTO {schema}.history (product, revenue) VALUES (new.product, new.revenue); RETURN new; END $$;
CREATE TRIGGER noted AFTER INSERT OR UPDATE ON {schema}."revenue.v1" FOR EACH ROW EXECUTE FUNCTION {schema}.note();
"""


def watch_rows(url: str) -> None:
    """From now on the store notes each row that is written."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///"), timeout=TIMEOUT_S) as connection:
            connection.executescript(SQLITE_HISTORY)
        return
    place, _, schema = url.partition("&schema=")
    with psycopg.connect(place, autocommit=True) as sql:
        sql.execute(POSTGRES_HISTORY.format(schema=schema))  # type: ignore[call-overload]


def written_rows(url: str) -> Iterator[tuple[str, int]]:
    query = "SELECT product, revenue FROM {}history ORDER BY at"
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///"), timeout=TIMEOUT_S) as connection:
            yield from connection.execute(query.format("")).fetchall()
        return
    place, _, schema = url.partition("&schema=")
    with psycopg.connect(place, autocommit=True) as sql:
        yield from sql.execute(query.format(f"{schema}.")).fetchall()  # type: ignore[call-overload]


def check_written_once_and_in_order(url: str) -> None:
    last: dict[str, int] = {}
    for product, revenue in written_rows(url):
        assert revenue > last.get(product, -1), f"{product} had {last[product]}, and {revenue} was written after it"
        last[product] = revenue
    assert last
