"""Random histories by several writers, with the capture, the database and the broker killed: topic replayed = table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from against.apache_kafka import Missing, die_with_parent
from against.tidelog_process import TidelogProcess
from capture.captured import State
from capture.conftest import LOGICAL, MARIADB
from capture.databases import COLUMNS, MariaDbShop, PostgresShop, Shop, SqliteShop
from capture.histories import Writers
from capture.replaying import Told, check_order, of_partition, replayed, told, transactions
from capture.sources.mysql.mariadb_server import MariaDbServer
from postgres_server import PostgresServer
from proving import proves
from tidelog.capture.change import READ, TRUNCATE
from tidelog.client.cluster import Cluster
from tidelog.control.captures import read_captures

PARTITIONS = 2
EXTRA = (*COLUMNS, "extra")


def full(value: Any) -> Any:
    return pytest.param(value, marks=pytest.mark.full)


def with_method(shop: Shop, method: str) -> Shop:
    shop.method = method or None
    return shop


MARIADB_TRIGGERS = pytest.param("mariadb-triggers", marks=[pytest.mark.external, pytest.mark.full, pytest.mark.twin])


@pytest.fixture(params=["sqlite", "postgres", MARIADB, full("postgres-triggers"), MARIADB_TRIGGERS])
def own_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """Of a server that can be killed: what it has committed it has written, though not synced."""
    kind, _, method = request.param.partition("-")
    if kind == "sqlite":
        yield SqliteShop(tmp_path / "shop.db")
    elif kind == "postgres":
        with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
            Path(folder).chmod(0o755)
            postgres = PostgresServer(Path(folder).resolve(), LOGICAL)
            postgres.start()
            yield with_method(PostgresShop(postgres), method)
            postgres.stop()
    else:
        try:
            mariadb = MariaDbServer(tmp_path / "mariadb", "--innodb-flush-log-at-trx-commit=2").start()
        except Missing as missing:
            pytest.skip(str(missing))
        yield with_method(MariaDbShop(mariadb), method)
        mariadb.kill()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[TidelogProcess]:
    started = TidelogProcess(tmp_path / "tidelog").start()
    yield started
    started.kill()


def begun(shop: Shop, broker: TidelogProcess, said: Path) -> subprocess.Popen[bytes]:
    """`tidelog capture run`, as users write it."""
    words = [sys.executable, "-m", "tidelog", "capture", "run", shop.url, "--prefix", "shop", "--transactions"]
    words += ["--partitions", str(PARTITIONS), "--bootstrap", broker.bootstrap]
    words += [] if shop.method is None else ["--method", shop.method]
    with said.open("ab") as out:
        return subprocess.Popen(words, stdout=out, stderr=out, env=dict(os.environ), preexec_fn=die_with_parent)


def check(shop: Shop, broker: TidelogProcess, columns: tuple[str, ...]) -> int:
    """That the topics are the tables, when all that was committed is captured. How many changes they have."""
    shop.capture(broker.bootstrap, transactions=True, partitions=PARTITIONS).catch_up()
    if shop.method == "triggers":
        return check_keys(shop, broker, columns)
    changes = told(broker.bootstrap, shop.topic(), partitions=PARTITIONS)
    by_commit = sorted(changes, key=lambda one: shop_order(shop, one.change))
    assert replayed(by_commit, columns) == shop.rows(columns=columns)
    for name in ("debit", "credit"):
        found = told(broker.bootstrap, shop.topic(name), partitions=PARTITIONS)
        assert replayed(found, ("id", "n")) == shop.rows(name, ("id", "n"))
    topics = [shop.topic(name) for name in ("orders", "debit", "credit")]
    return sum(check_order(shop, broker.bootstrap, topic, partitions=PARTITIONS) for topic in topics)


def check_keys(shop: Shop, broker: TidelogProcess, columns: tuple[str, ...]) -> int:
    """By triggers, transactions that touch other rows may come in another order; the changes of a row may not: each
    has the row before it as the change before left it."""
    count = 0
    for table, names in (("orders", columns), ("debit", ("id", "n")), ("credit", ("id", "n"))):
        found: State = {}
        for number in range(PARTITIONS):
            changes = of_partition(broker.bootstrap, shop.topic(table), number)
            check_rows_before(changes, COLUMNS if table == "orders" else names)
            found |= replayed(changes, names)
            count += len(changes)
        assert found == shop.rows(table, names)
    return count


def check_rows_before(changes: Sequence[Told], columns: Sequence[str]) -> None:
    """From a row's first change on: what a snapshot that was broken off has read anew may be newer than that."""
    rows: dict[int, tuple[Any, ...] | None] = {}
    for _, change in changes:
        before, after = (row and tuple(row[name] for name in columns) for row in (change["before"], change["after"]))
        if change["op"] == TRUNCATE:
            rows.clear()
        elif change["op"] != READ:
            if before is not None:
                assert rows.get(before[0], before) == before, change
                rows[before[0]] = None
            if after is not None:
                rows[after[0]] = after


def shop_order(shop: Shop, change: dict[str, Any]) -> tuple[int, ...]:
    """Rows of a snapshot come first."""
    return () if change["op"] == "r" else shop.commit_order(change["source"], change["transaction"])


def check_balance(shop: Shop, broker: TidelogProcess) -> None:
    """Every transaction is whole, and leaves both tables with what they had together."""
    topics = [shop.topic(name) for name in ("orders", "debit", "credit")]
    balance = {"debit": 0, "credit": 0}
    whole = transactions(broker.bootstrap, topics, partitions=PARTITIONS)
    for changes in whole:
        for one in changes:
            if one["source"]["table"] in balance:
                balance[one["source"]["table"]] = one["after"]["n"]
        assert balance["debit"] == -balance["credit"]
    one_look = shop.kind == "sqlite" or (shop.kind, shop.method) == ("mariadb", "triggers")  # what it finds is one unit
    assert len(whole) > (0 if one_look else 10)


def wait_for_snapshot(broker: TidelogProcess) -> None:
    deadline = time.monotonic() + 60
    with Cluster(broker.bootstrap) as cluster:
        while (found := read_captures(cluster).get("shop")) is None or (found.progress or {}).get("position") is None:
            assert time.monotonic() < deadline, "the snapshot did not end"
            time.sleep(0.05)


@proves("D1", "D2", "D3", "cdc.1", "cdc.2", "cdc.33")
@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.story), *map(full, (2, 3, 4))])
def test_topics_are_the_tables_whatever_is_killed(
    own_shop: Shop, process: TidelogProcess, tmp_path: Path, seed: int
) -> None:
    shop, chance, said = own_shop, Random(seed), tmp_path / "capture.log"
    writer = shop.writer()
    shop.make(writer)
    writer.run("INSERT INTO debit VALUES (1, 0)", "INSERT INTO credit VALUES (1, 0)")
    running, columns = begun(shop, process, said), COLUMNS
    if shop.kind == "mariadb" and shop.method == "triggers":
        wait_for_snapshot(process)  # one connection reads it, and begins anew behind each TRUNCATE
    for turn, what in enumerate(("capture", "database", "broker", "capture", "nothing")):
        with Writers(shop, 10 * seed + turn):
            time.sleep(0.3 + chance.random())
            if what == "capture":
                running.send_signal(signal.SIGKILL)
                running.wait()
                time.sleep(chance.random() * 0.3)
                running = begun(shop, process, said)
            elif what == "database":
                shop.kill()
                time.sleep(chance.random() * 0.3)
                shop.start()
            elif what == "broker":
                process.kill()
                process.start()
            time.sleep(0.3)
        if turn == 2 and shop.kind != "sqlite":  # whose triggers the capture itself would have to make anew
            shop.writer().run("ALTER TABLE orders ADD COLUMN extra VARCHAR(10) DEFAULT 'new'")
            columns = EXTRA
    assert running.poll() is None, said.read_text()
    running.terminate()
    assert running.wait(60) == 0, said.read_text()
    assert check(shop, process, columns) > 50
    check_balance(shop, process)
    shop.close()
