"""Whether it lives, and whether the broker takes records."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from gateway.serving import Client, GatewayProcess
from proving import proves
from tidelog.cli import gateway as command
from tidelog.cli import options
from tidelog.errors import UsageError


@proves("http")
def test_a_gateway_with_a_broker_is_alive_and_ready(client: Client) -> None:
    assert client("GET", "/healthz").json == {"status": "alive"}
    assert client("GET", "/readyz").json == {"status": "ready"}
    assert client("HEAD", "/readyz").body == b""


@proves("http")
def test_without_a_broker_it_lives_and_is_not_ready(tmp_path: Path) -> None:
    alone = GatewayProcess("127.0.0.1:1", tmp_path / "log")
    assert alone.client("GET", "/healthz").status == 200
    got = alone.client("GET", "/readyz")
    assert got.status == 503
    assert "127.0.0.1:1" in got.message
    assert alone.stop() == 0


@proves("http")
@pytest.mark.real_interpreter
def test_a_broker_that_comes_back_is_found_again(tmp_path: Path) -> None:
    broker = tidelog.Broker(tmp_path / "data").start()
    beside = GatewayProcess(broker.bootstrap, tmp_path / "log")
    try:
        assert beside.client("GET", "/metrics").status == 200
        broker.stop()
        assert beside.client("GET", "/readyz").status == 503
        got = beside.client("GET", "/metrics")
        assert got.status == 503
        assert "is it up" in got.message
        broker.start()
        assert beside.client("GET", "/readyz").status == 200
        assert beside.client("GET", "/metrics").status == 200
    finally:
        broker.stop()
    assert beside.stop() == 0


@proves("http", "cli")
def test_the_wait_for_an_answer_of_the_broker_is_the_one_that_the_command_was_told(broker: tidelog.Broker) -> None:
    words = ["--bootstrap", broker.bootstrap, "--timeout", "7.5"]
    made = command.gateway_of(options.parse(command.parser(), words))
    with made.cluster(None) as cluster, made.anonymous() as connection:
        assert (cluster.timeout_s, connection.timeout_s) == (7.5, 7.5)
    made.close()
    with pytest.raises(UsageError, match="--timeout is 31; a request is answered within 30 s"):
        command.run(["--timeout", "31"])
