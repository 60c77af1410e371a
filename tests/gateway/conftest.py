"""One broker and one gateway beside it for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tidelog
from gateway.serving import Client, GatewayProcess


@pytest.fixture(scope="module")
def broker() -> Iterator[tidelog.Broker]:
    with tidelog.Broker() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(broker: tidelog.Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    running = GatewayProcess(broker.bootstrap, tmp_path_factory.mktemp("gateway") / "log")
    yield running
    assert running.stop() == 0, running.said()


@pytest.fixture
def client(gateway: GatewayProcess) -> Client:
    return gateway.client
