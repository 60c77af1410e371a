"""A real PostgreSQL that tells its changes, started once a run, and a database of its own for each test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from capture.sources.postgres.following import Base
from postgres_server import PostgresServer

SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
    "max_connections": "60",
}


@pytest.fixture(scope="session")
def logical_server() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(Path(folder).resolve(), SETTINGS)
        server.start()
        yield server
        server.stop()


@pytest.fixture
def base(logical_server: PostgresServer) -> Iterator[Base]:
    with Base(logical_server.url()) as made:
        yield made
