"""Whether it lives, and whether the broker takes records."""

from __future__ import annotations

from pathlib import Path

from gateway.serving import Client, GatewayProcess
from proving import proves


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
