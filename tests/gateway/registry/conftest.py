"""Confluent's client of the registry, and requests of ours beside it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from gateway.serving import GatewayProcess

_numbers = count(1)


@pytest.fixture
def registry(gateway: GatewayProcess) -> SchemaRegistryClient:
    return confluent(gateway)


@pytest.fixture
def subject() -> str:
    """A name that no other test has."""
    return f"subject-{next(_numbers)}-value"


def confluent(gateway: GatewayProcess) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": f"http://127.0.0.1:{gateway.client.port}", "max.retries": 0})


@pytest.fixture
def topic() -> Callable[[], str]:
    return lambda: f"topic-{next(_numbers)}"
