"""`tidelog capture`: run, check, status, snapshot, remove, as users write them."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from capture.captured import envelopes, folded, rows_of
from cli.command import Command
from proving import proves
from tidelog.cli.main import main
from tidelog.client.cluster import Cluster
from tidelog.testing.broker import TestBroker

TOPIC = "shop.main.orders"
WITHIN_S = 60.0


@pytest.fixture
def tidelog(tidelog_broker: TestBroker) -> Command:
    return Command(tidelog_broker.bootstrap)


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.executescript(
        "PRAGMA journal_mode = WAL; CREATE TABLE orders (id INTEGER PRIMARY KEY, n INTEGER);"
        "INSERT INTO orders VALUES (1, 10), (2, 20);"
    )
    yield connection
    connection.close()


@proves("D2", "D3")
@pytest.mark.slow
def test_a_capture_is_checked_run_looked_at_and_removed(
    tidelog: Command, tidelog_broker: TestBroker, orders: sqlite3.Connection, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    checked = tidelog("capture", "check", url)
    assert checked.code == 0 and "1 tables are captured: orders" in checked.out
    ran = tidelog("capture", "run", url, "--prefix", "shop", "--once")
    assert (ran.code, ran.out.strip()) == (0, f"{url} is captured as shop"), ran.err
    assert len(envelopes(tidelog_broker.bootstrap, TOPIC)) == 2
    (one,) = json.loads(tidelog("capture", "status", "--json").out)
    assert (one["name"], one["state"], one["tables"], one["url"]) == ("shop", "stopped", 1, url)
    refused = tidelog("capture", "snapshot", "shop", "--tables", "main.other")
    assert refused.code == 2 and "main.other is not captured by shop; there are main.orders" in refused.err
    assert tidelog("capture", "snapshot", "shop", "--tables", "main.orders").code == 0
    removed = tidelog("capture", "remove", url, "--prefix", "shop", "--yes")
    assert removed.code == 0 and "the progress of shop is removed; its topics stay" in removed.out
    assert orders.execute("SELECT count(*) FROM sqlite_master WHERE name LIKE '!_tidelog%' ESCAPE '!'").fetchone() == (
        0,
    )
    assert json.loads(tidelog("capture", "status", "--json").out) == []


@proves("D2")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "sqlite:///nothing.db", "--prefix", "shop"], "the file nothing.db does not exist"),
        (["run", "oracle://db", "--prefix", "shop"], "is not a database that can be captured"),
        (["run", "sqlite:///x.db"], "--prefix"),
        (["run", "postgresql://me:secret@db/shop", "--prefix", "shop"], "has a password in clear"),
        (["run", "sqlite:///x.db", "--prefix", "a b"], "is not a prefix of topics"),
        (["remove", "sqlite:///x.db"], "say which capture by --name"),
    ],
)
def test_what_is_written_wrongly_is_told_with_the_way_out(
    tidelog: Command, tmp_path: Path, words: list[str], said: str
) -> None:
    ran = tidelog("capture", *words)
    assert ran.code == 2 and said in ran.err and "secret" not in ran.err


@proves("D2")
def test_a_database_that_is_not_there_at_the_start_is_told_at_once(
    tidelog_broker: TestBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["capture", "run", "postgresql://me@127.0.0.1:1/shop", "--prefix", "shop"]
    assert main([*words, "--bootstrap", tidelog_broker.bootstrap]) == 3
    assert "127.0.0.1/shop is not reached" in capsys.readouterr().err


def is_there(bootstrap: str) -> bool:
    with Cluster(bootstrap) as cluster:
        found = cluster.ask_metadata([TOPIC]).topics.get(TOPIC)
        return found is not None and bool(found.led)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@proves("D2", "cdc.33")
@pytest.mark.slow
def test_a_capture_that_is_killed_goes_on_where_the_log_is(
    tidelog: Command, tidelog_broker: TestBroker, orders: sqlite3.Connection, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    words = tidelog.line("capture", "run", url, "--prefix", "shop")
    for turn in range(3):
        running = subprocess.Popen(words, env=tidelog.environment, stdout=subprocess.PIPE)
        assert running.stdout is not None and running.stdout.readline()
        for number in range(100):
            orders.execute("INSERT OR REPLACE INTO orders VALUES (?, ?)", (number % 17, 100 * turn + number))
        if turn < 2:
            running.send_signal(signal.SIGKILL)
        else:
            wait_until(lambda: is_there(tidelog_broker.bootstrap))  # the first two may not have come so far
            wait_until(lambda: folded(envelopes(tidelog_broker.bootstrap, TOPIC), ["id"]) == table(orders))
            running.terminate()
            assert running.wait(WITHIN_S) == 0
        running.stdout.close()
        running.wait(WITHIN_S)
    changes = [one["source"]["change_id"] for one in envelopes(tidelog_broker.bootstrap, TOPIC) if one["op"] != "r"]
    assert changes == sorted(set(changes))


def table(orders: sqlite3.Connection) -> object:
    return rows_of(orders, "orders", ["id", "n"], ["id"])
