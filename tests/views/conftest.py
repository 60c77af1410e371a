"""A broker for each test, a cluster on it, and a file for views."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import TIMEOUT_S
from tidelog.client.cluster import Cluster
from tidelog.testing.broker import TestBroker


@pytest.fixture
def cluster(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as connected:
        yield connected


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Of a store that does not exist yet."""
    return f"sqlite:///{tmp_path}/views.db"
