"""Writing to two stores by hand leaves them different; writing to a topic that both follow does not.

The database is PostgreSQL, the index is SQLite's full text: real ones, in the state that they are really left in.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import permutations
from pathlib import Path
from threading import Thread

import psycopg
import pytest

from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.control.catalog import Editor
from tidelog.errors import NotShown
from tidelog.schema.declaration import Row, declare
from tidelog.testing.broker import TestBroker
from tidelog.views.changes import changes_of, encode
from tidelog.views.lifecycle import of_topic
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import PAGE_ROWS_MAX, Ask, Page
from views.applying import until

STOCK = declare({"product": "string", "text": "string"}, ("product",))
PARTITIONS = 2
PRODUCTS, ROUNDS = 12, 15


class ByHand:
    """One program's way to the database and to the index: two connections, two writes."""

    def __init__(self, database: str, schema: str, index: Path) -> None:
        self.database = psycopg.connect(database, autocommit=True, options=f"-c search_path={schema}")
        self.index = sqlite3.connect(index, isolation_level=None, timeout=0)
        self.database.execute("CREATE TABLE IF NOT EXISTS stock (product text PRIMARY KEY, text text)")
        self.index.execute("CREATE VIRTUAL TABLE IF NOT EXISTS stock USING fts5(product UNINDEXED, text)")

    def to_database(self, product: str, text: str) -> None:
        self.database.execute(
            "INSERT INTO stock VALUES (%s, %s) ON CONFLICT (product) DO UPDATE SET text = excluded.text",
            (product, text),
        )

    def to_index(self, product: str, text: str) -> None:
        self.index.execute("BEGIN IMMEDIATE")
        self.index.execute("DELETE FROM stock WHERE product = ?", (product,))
        self.index.execute("INSERT INTO stock VALUES (?, ?)", (product, text))
        self.index.execute("COMMIT")

    def read(self) -> tuple[dict[str, str], dict[str, str]]:
        return (
            dict(self.database.execute("SELECT product, text FROM stock").fetchall()),
            dict(self.index.execute("SELECT product, text FROM stock").fetchall()),
        )

    def close(self) -> None:
        self.database.close()
        self.index.close()


@pytest.fixture
def schema(postgres_url: str) -> str:
    """It goes with the fixture that names it."""
    found = postgres_url.partition("schema=")[2]
    with psycopg.connect(_plain(postgres_url), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {found}".encode())
    return found


def _plain(url: str) -> str:
    return url.partition("&schema=")[0]


@contextmanager
def programs(url: str, schema: str, index: Path, number: int) -> Iterator[list[ByHand]]:
    made = [ByHand(_plain(url), schema, index) for _ in range(number)]
    yield made
    for one in made:
        one.close()


ORDERS = sorted(
    order
    for order in set(permutations(["ada", "ada", "bob", "bob"]))  # each name: its next write, database first
)


@proves("D6")
def test_two_programs_that_write_to_both_leave_them_different_in_two_orders_of_six(
    postgres_url: str, schema: str, tmp_path: Path
) -> None:
    different = []
    for number, order in enumerate(ORDERS):
        with programs(postgres_url, schema, tmp_path / f"{number}.db", 2) as both:
            by_name = dict(zip(("ada", "bob"), both, strict=True))
            both[0].database.execute("DELETE FROM stock")
            steps = {
                name: iter((one.to_database, one.to_index)) for name, one in by_name.items()
            }  # each does both of its writes, in its own order
            for name in order:
                next(steps[name])("tea", f"says {name}")
            database, index = both[0].read()
            if database != index:
                different.append((order, database["tea"], index["tea"]))
    assert different == [
        (("ada", "bob", "bob", "ada"), "says bob", "says ada"),
        (("bob", "ada", "ada", "bob"), "says ada", "says bob"),
    ]


@proves("D6")
def test_an_index_that_is_away_for_one_write_lacks_it_for_ever(postgres_url: str, schema: str, tmp_path: Path) -> None:
    with programs(postgres_url, schema, tmp_path / "index.db", 2) as (program, other):
        other.index.execute("BEGIN EXCLUSIVE")
        program.to_database("tea", "green")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            program.to_index("tea", "green")
        other.index.execute("ROLLBACK")
        program.to_database("rum", "brown")
        program.to_index("rum", "brown")
        assert program.read() == ({"tea": "green", "rum": "brown"}, {"rum": "brown"})


@proves("D6", "F2")
def test_a_program_that_is_killed_between_its_two_writes_leaves_one(
    postgres_url: str, schema: str, tmp_path: Path
) -> None:
    with programs(postgres_url, schema, tmp_path / "index.db", 1) as (program,):
        text = (
            "import psycopg, sys;"
            f"c = psycopg.connect({_plain(postgres_url)!r}, autocommit=True, options='-c search_path={schema}');"
            "c.execute(\"INSERT INTO stock VALUES ('tea', 'green')\");"
            "print('database', flush=True);"
            "sys.stdin.read()"
        )
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", text], **pipes) as child:  # type: ignore[call-overload]
            assert child.stdout.readline() == b"database\n"
            child.send_signal(signal.SIGKILL)
        assert program.read() == ({"tea": "green"}, {})


# The same through a topic ---------------------------------------------------------------------------------------------


@contextmanager
def applier(bootstrap: str, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """As a user runs it."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tidelog", "apply", "stock", "--store", url, "--bootstrap", bootstrap],
        stdout=subprocess.DEVNULL,
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def read(url: str) -> Page | None:
    with closing(open_store(url, "stock")) as store:
        try:
            return store.read(Ask(limit=PAGE_ROWS_MAX))
        except NotShown:
            return None


def offsets_at(url: str) -> int:
    page = read(url)
    return 0 if page is None else sum(page.place.ends.values())


def write(bootstrap: str, writer: str) -> None:
    """Every product, again and again: both writers want each."""
    with Cluster(bootstrap, timeout_s=60) as cluster, Producer(cluster) as producer:
        for number in range(ROUNDS):
            for product in range(PRODUCTS):
                row: Row = {"product": f"product {product}", "text": f"says {writer} in round{number}"}
                key, value = encode(STOCK, row, gone=number % 5 == 4 and product % 3 == 0)
                producer.send("stock", value, key=key)
            producer.flush()


def last_words(broker: TestBroker) -> dict[str, str]:
    """What the topic says, folded."""
    latest: dict[str, str] = {}
    for partition in range(PARTITIONS):
        for change in changes_of(STOCK, TopicPartition("stock", partition), broker.records("stock", partition)):
            latest.pop(str(change.key[0]), None)
            if change.after is not None:
                latest[str(change.key[0])] = str(change.after["text"])
    return latest


@proves("D6", "P3", "eo.18", "F2")
def test_the_same_load_through_a_topic_ends_equal(
    tidelog_broker: TestBroker, cluster: Cluster, postgres_url: str, tmp_path: Path
) -> None:
    """Two writers at once; an index that is locked meanwhile; an applier that is killed and started anew."""
    index = f"sqlite+fts:///{tmp_path}/index.db?columns=text"
    bootstrap = tidelog_broker.bootstrap
    topics.create(cluster, "stock", partitions=PARTITIONS)
    Editor(cluster, "stock").write(of_topic("stock", "stock", STOCK, PARTITIONS, [postgres_url, index]))
    records = 2 * ROUNDS * PRODUCTS
    with applier(bootstrap, index), applier(bootstrap, postgres_url) as killed:
        until(lambda: read(index) is not None and read(postgres_url) is not None)
        with closing(sqlite3.connect(tmp_path / "index.db", isolation_level=None)) as lock:
            lock.execute("BEGIN IMMEDIATE")
            writers = [Thread(target=write, args=(bootstrap, name)) for name in ("ada", "bob")]
            for writer in writers:
                writer.start()
            until(lambda: offsets_at(postgres_url) > 0)
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            for writer in writers:
                writer.join()
            with applier(bootstrap, postgres_url):
                until(lambda: offsets_at(postgres_url) == records)
                assert offsets_at(index) < records
                lock.execute("ROLLBACK")
                until(lambda: offsets_at(index) == records)
    database, found = read(postgres_url), read(index)
    assert database is not None
    assert found is not None
    assert database.place == found.place
    assert database.rows == found.rows
    assert {row["product"]: row["text"] for row in found.rows} == last_words(tidelog_broker)
    _words_find_what_the_database_has(index, list(database.rows))


def _words_find_what_the_database_has(index: str, rows: list[Row]) -> None:
    assert rows
    with closing(open_store(index, "stock")) as store:
        for word in ("ada", "bob", f"round{ROUNDS - 1}", f"round{ROUNDS - 2}"):
            having = [row for row in rows if word in str(row["text"]).split()]
            assert list(store.read(Ask(match=word, limit=1000)).rows) == having
