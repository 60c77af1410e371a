"""Random histories by several writers, with the capture, the database and the broker killed: topic replayed = table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from against.apache_kafka import Missing, die_with_parent
from against.tidelog_process import TidelogProcess
from capture.conftest import LOGICAL, MARIADB
from capture.databases import COLUMNS, MariaDbShop, PostgresShop, Shop, SqliteShop
from capture.histories import Writers
from capture.replaying import check_order, replayed, told, transactions
from capture.sources.mysql.mariadb_server import MariaDbServer
from postgres_server import PostgresServer
from proving import proves

PARTITIONS = 2
EXTRA = (*COLUMNS, "extra")


def full(seed: int) -> Any:
    return pytest.param(seed, marks=pytest.mark.full)


@pytest.fixture(params=["sqlite", "postgres", MARIADB])
def own_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """Of a server that can be killed: what it has committed it has written, though not synced."""
    if request.param == "sqlite":
        yield SqliteShop(tmp_path / "shop.db")
    elif request.param == "postgres":
        with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
            Path(folder).chmod(0o755)
            postgres = PostgresServer(Path(folder).resolve(), LOGICAL)
            postgres.start()
            yield PostgresShop(postgres)
            postgres.stop()
    else:
        try:
            mariadb = MariaDbServer(tmp_path / "mariadb", "--innodb-flush-log-at-trx-commit=2").start()
        except Missing as missing:
            pytest.skip(str(missing))
        yield MariaDbShop(mariadb)
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
    with said.open("ab") as out:
        return subprocess.Popen(words, stdout=out, stderr=out, env=dict(os.environ), preexec_fn=die_with_parent)


def check(shop: Shop, broker: TidelogProcess, columns: tuple[str, ...]) -> int:
    """That the topics are the tables, when all that was committed is captured. How many changes they have."""
    shop.capture(broker.bootstrap, transactions=True, partitions=PARTITIONS).catch_up()
    changes = told(broker.bootstrap, shop.topic(), partitions=PARTITIONS)
    by_commit = sorted(changes, key=lambda one: shop_order(shop, one.change))
    assert replayed(by_commit, columns) == shop.rows(columns=columns)
    for name in ("debit", "credit"):
        found = told(broker.bootstrap, shop.topic(name), partitions=PARTITIONS)
        assert replayed(found, ("id", "n")) == shop.rows(name, ("id", "n"))
    topics = [shop.topic(name) for name in ("orders", "debit", "credit")]
    return sum(check_order(shop, broker.bootstrap, topic, partitions=PARTITIONS) for topic in topics)


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
    assert len(whole) > 10


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
