"""One contract over two brokers: every test here takes `broker`, and runs against Tidelog and against Apache Kafka.

A test must pass on Apache Kafka before it may judge Tidelog. Both brokers get the same settings, by Kafka's names.
Tidelog is fresh for each test; Apache Kafka is started once a run, so tests take names from `topic` and `group`, and
never look at what they did not make. Those that are marked `ends_broker` stop or kill it, and have another one of this
process. What cannot run here is skipped with its reason; with CI_REQUIRE_EXTERNAL=1
that is a failure (`tests/conftest.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from against.apache_kafka import ApacheKafka, Missing
from against.brokers import BROKER_SETTINGS, Broker
from against.java_machine import JavaMachine
from against.shared_kafka import SharedKafka, shared_kafka
from against.tidelog_process import TidelogProcess


@pytest.fixture
def apache_kafka() -> SharedKafka:
    try:
        return shared_kafka()
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def own_apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    try:
        kafka = ApacheKafka(tmp_path_factory.mktemp("apache_kafka"), BROKER_SETTINGS).start()
    except Missing as missing:
        pytest.skip(str(missing))
    yield kafka
    kafka.stop()


@pytest.fixture
def tidelog_process(tmp_path: Path) -> Iterator[TidelogProcess]:
    process = TidelogProcess(tmp_path / "tidelog", BROKER_SETTINGS).start()
    yield process
    process.stop()


@pytest.fixture(params=["tidelog", pytest.param("apache_kafka", marks=[pytest.mark.external, pytest.mark.twin])])
def broker(request: pytest.FixtureRequest) -> Broker:
    kafka = "apache_kafka" if request.node.get_closest_marker("ends_broker") is None else "own_apache_kafka"
    name = "tidelog_process" if request.param == "tidelog" else kafka
    running: Broker = request.getfixturevalue(name)
    return running


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:10]}"


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaMachine]:
    try:
        machine = JavaMachine(tmp_path_factory.mktemp("java"))
    except Missing as missing:
        pytest.skip(str(missing))
    yield machine
    machine.stop()
