"""A database of its own for each test, of the one PostgreSQL that tells its changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from capture.sources.postgres.following import Base
from postgres_server import PostgresServer


@pytest.fixture
def base(logical_server: PostgresServer) -> Iterator[Base]:
    with Base(logical_server.url()) as made:
        yield made
