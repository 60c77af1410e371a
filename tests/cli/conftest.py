"""The brokers of the contract, and the command that is run against them."""

from __future__ import annotations

import pytest

from cli.command import Command
from contract import Broker, broker, cluster, group, kafka, topic

__all__ = ["broker", "cluster", "group", "kafka", "topic"]


@pytest.fixture
def tidelog(broker: Broker) -> Command:
    return Command(broker.bootstrap)


@pytest.fixture
def nowhere() -> Command:
    """The command with no broker behind it."""
    return Command("127.0.0.1:1")
