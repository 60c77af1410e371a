"""Brokers with logins, rules and certificates, and the raw connection that speaks to them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

from access import AccessBroker

from certificates import Certificates, make_certificates


@pytest.fixture
def access_broker(tmp_path: Path) -> Iterator[Callable[..., AccessBroker]]:
    started: list[AccessBroker] = []

    def start(listeners: str = "SASL_PLAINTEXT://127.0.0.1:0", **settings: Any) -> AccessBroker:
        broker = AccessBroker(tmp_path / "data", listeners, {key.replace("__", "."): v for key, v in settings.items()})
        started.append(broker.start())
        return broker

    yield start
    for broker in started:
        broker.stop()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))
