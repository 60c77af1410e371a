"""A SQLite file that is captured, and the brokers of the contract."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import broker, topic

__all__ = ["broker", "topic"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """In WAL mode, with every statement a transaction of its own unless one is begun."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    yield connection
    connection.close()
