"""One contract over two brokers for client and command line: a test of `broker` runs on Tidelog and on Apache Kafka.

Tidelog is fresh for each test. Apache Kafka is started once a run; so tests take names from `topic` and `group` and
never look at what they did not make.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from against.apache_kafka import ApacheKafka, Missing
from against.shared_kafka import SharedKafka, shared_kafka
from tidelog.client.cluster import Cluster
from tidelog.client.identity import transaction_version

TIMEOUT_S = 120.0


class Broker(Protocol):
    @property
    def bootstrap(self) -> str: ...


@pytest.fixture(params=["tidelog", pytest.param("apache_kafka", marks=pytest.mark.external)])
def broker(request: pytest.FixtureRequest) -> Broker:
    if request.param == "tidelog":
        ours: Broker = request.getfixturevalue("tidelog_broker")
        return ours
    try:
        return shared_kafka()
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def kafka() -> SharedKafka:
    """For what Apache Kafka alone can show."""
    try:
        return shared_kafka()
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def version_1_kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    """One of its own that is lowered to transaction version 1, as one is that was made before 4.0."""
    try:
        kafka = ApacheKafka(tmp_path / "kafka").start()
    except Missing as missing:
        pytest.skip(str(missing))
    try:
        lower = ["--bootstrap-server", kafka.bootstrap, "downgrade", "--feature", "transaction.version=1"]
        command = ["java", "-cp", f"{kafka.jars}/*", "org.apache.kafka.tools.FeatureCommand", *lower]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stdout + done.stderr
        with Cluster(kafka.bootstrap, timeout_s=TIMEOUT_S) as connected:
            assert transaction_version(connected) == 1
        yield kafka
    finally:
        kafka.kill()


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
