"""One contract over two brokers for client and command line: a test of `broker` runs on Tidelog and on Apache Kafka.

Tidelog is fresh for each test. Apache Kafka is started once a process and ends with it; so tests take names from
`topic` and `group` and never look at what they did not make.
"""

from __future__ import annotations

import atexit
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Protocol

import pytest

from against.apache_kafka import ApacheKafka, Missing
from tidelog.client.cluster import Cluster

TIMEOUT_S = 120.0


class Broker(Protocol):
    @property
    def bootstrap(self) -> str: ...


@cache
def running_kafka() -> ApacheKafka:
    """It ends with this process, whichever test was the last to need it."""
    folder = Path(mkdtemp(prefix="tidelog-contract-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    kafka = ApacheKafka(folder)
    atexit.register(kafka.kill)
    return kafka.start()


@pytest.fixture(params=["tidelog", pytest.param("apache_kafka", marks=pytest.mark.external)])
def broker(request: pytest.FixtureRequest) -> Broker:
    if request.param == "tidelog":
        ours: Broker = request.getfixturevalue("tidelog_broker")
        return ours
    try:
        return running_kafka()
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def kafka() -> ApacheKafka:
    """For what Apache Kafka alone can show."""
    try:
        return running_kafka()
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:10]}"
