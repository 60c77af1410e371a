"""What captures are tried with: SQLite files, one PostgreSQL and one MariaDB a run, and the brokers."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from against.apache_kafka import Missing
from capture.databases import MariaDbShop, PostgresShop, Shop, SqliteShop
from capture.sources.mysql.mariadb_server import MariaDbServer
from contract import broker, topic
from postgres_server import PostgresServer

__all__ = ["broker", "topic"]

LOGICAL = {
    "wal_level": "logical",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
    "max_connections": "60",
}
MARIADB = pytest.param("mariadb", marks=pytest.mark.external)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """In WAL mode, with every statement a transaction of its own unless one is begun."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    yield connection
    connection.close()


@pytest.fixture(scope="session")
def logical_server() -> Iterator[PostgresServer]:
    """A PostgreSQL that tells its changes."""
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(Path(folder).resolve(), LOGICAL)
        server.start()
        yield server
        server.stop()


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    try:
        started = MariaDbServer(tmp_path_factory.mktemp("mariadb") / "data").start()
    except Missing as missing:
        pytest.skip(str(missing))
    yield started
    started.kill()


@pytest.fixture(params=["sqlite", "postgres", MARIADB])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """A database of each kind, with its tables."""
    made: Shop
    if request.param == "sqlite":
        made = SqliteShop(tmp_path / "shop.db")
    elif request.param == "postgres":
        made = PostgresShop(request.getfixturevalue("logical_server"))
    else:
        made = MariaDbShop(request.getfixturevalue("mariadb"))
    made.make(made.writer())
    yield made
    made.close()
