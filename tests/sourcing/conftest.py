"""The brokers of the contract, and a store of seats on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contract import Broker, broker, cluster, topic
from sourcing.seats import Seat, seats
from tidelog.sourcing import EventStore

__all__ = ["broker", "cluster", "topic"]


@pytest.fixture
def store(broker: Broker, topic: str) -> Iterator[EventStore[Seat]]:
    """Of one partition, so that what is sent together may be any entities."""
    with EventStore(topic, seats(), bootstrap=broker.bootstrap, partitions=1) as running:
        yield running
