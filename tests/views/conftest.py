"""A broker for each test, a cluster on it, a file for views, and a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import TIMEOUT_S
from postgres_server import postgres, postgres_url
from tidelog.client.cluster import Cluster
from tidelog.testing.broker import TestBroker

__all__ = ["cluster", "postgres", "postgres_url", "url"]


@pytest.fixture
def cluster(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as connected:
        yield connected


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Of a store that does not exist yet."""
    return f"sqlite:///{tmp_path}/views.db"
