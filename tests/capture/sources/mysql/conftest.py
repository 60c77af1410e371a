"""One MariaDB for the tests of a process, and a database of its own for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from against.apache_kafka import Missing
from capture.sources.mysql.mariadb_server import MariaDbServer
from capture.sources.mysql.reading import Database

numbers = count(1)


@pytest.fixture(scope="session")
def server(mariadb: MariaDbServer) -> MariaDbServer:
    return mariadb


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[MariaDbServer]:
    """For a test that restarts it, or changes what all others rest on."""
    try:
        started = MariaDbServer(tmp_path / "data").start()
    except Missing as missing:
        pytest.skip(str(missing))
    yield started
    started.kill()


@pytest.fixture
def db(server: MariaDbServer) -> Iterator[Database]:
    made = Database(server, f"db{next(numbers)}")
    yield made
    made.close()


@pytest.fixture
def own_db(own_server: MariaDbServer) -> Iterator[Database]:
    made = Database(own_server, "own")
    yield made
    made.close()
