"""The brokers of the contract, and a question to them."""

from __future__ import annotations

import pytest

from contract import Broker, broker, cluster, kafka, topic
from sql.asking import Ask

__all__ = ["broker", "cluster", "kafka", "topic"]


@pytest.fixture
def ask(broker: Broker) -> Ask:
    return Ask(broker.bootstrap)
