"""SIGHUP and HTTPS: certificates are asked for as the settings say now, and a broken file changes nothing."""

from __future__ import annotations

import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from certificates import Certificates, make_certificates
from gateway.running import PATIENCE_S
from proving import proves
from tidelog.broker.server import Server
from tidelog.broker.settings.configuring import load_broker_config
from tidelog.errors import ConfigError
from tidelog.logger import Logger


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


class Running:
    """A broker in this process that reads its settings again when it is told to."""

    def __init__(self, settings: dict[str, Any]) -> None:
        config = load_broker_config(settings)
        self.settings = settings
        self.server = Server(config, Logger(level="ERROR"), http=True)
        self.server.start()
        self._thread = threading.Thread(target=self.server.run, daemon=True)
        self._thread.start()

    def reload(self, **settings: Any) -> None:
        done = threading.Event()
        changed = {**self.settings, **{name.replace("__", "."): value for name, value in settings.items()}}

        def on_loop() -> None:
            self.server.reload(lambda: load_broker_config(changed))
            done.set()

        self.server._loop.call_soon_threadsafe(on_loop)
        assert done.wait(PATIENCE_S)

    def health(self, certificates: Certificates) -> bytes:
        assert self.server.http is not None
        context = ssl.create_default_context(cafile=str(certificates.authority))
        where = f"https://localhost:{self.server.http.addresses[0][1]}/healthz"
        answer: bytes = urllib.request.urlopen(where, timeout=PATIENCE_S, context=context).read()
        return answer

    def stop(self) -> None:
        self.server.stop_soon()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def settings(certificates: Certificates, tmp_path: Path) -> dict[str, Any]:
    own = tmp_path / "own.pem"
    own.write_bytes(certificates.broker.read_bytes())
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "data"),
        "ssl.keystore.location": str(own),
        "ssl.truststore.location": str(certificates.authority),
        "tidelog.http.listener": "https://127.0.0.1:0",
    }


@pytest.fixture
def running(settings: dict[str, Any]) -> Iterator[Running]:
    made = Running(settings)
    yield made
    made.stop()


@proves("http", "T10")
def test_certificates_count_over_https_as_soon_and_as_long_as_they_are_asked_for(running: Running) -> None:
    assert running.server._reach().delegation is None
    running.reload(ssl__client__auth="required")
    first = running.server._reach().delegation
    assert first is not None
    running.reload(ssl__client__auth="requested", ssl__principal__mapping__rules="RULE:^CN=(.*)$/$1/,DEFAULT")
    second = running.server._delegation
    assert second is not None and second.secret != first and len(second.rules) == 2
    running.reload(ssl__client__auth="none")
    assert running.server._reach().delegation is None


@proves("http", "T10")
def test_https_goes_on_when_a_file_is_broken(
    running: Running, certificates: Certificates, settings: dict[str, Any]
) -> None:
    assert b"alive" in running.health(certificates)
    assert running.server.http is not None
    before = running.server.http.pid
    own = Path(settings["ssl.keystore.location"])
    good = own.read_bytes()
    own.write_text("nonsense")
    running.reload()
    assert b"alive" in running.health(certificates)
    assert running.server.http.pid == before
    own.write_bytes(good)
    running.reload()
    deadline = time.monotonic() + PATIENCE_S
    while running.server.http.pid in (before, None):  # the old one may answer once more
        assert time.monotonic() < deadline
        with suppress(OSError):
            running.health(certificates)


@proves("http", "T10")
def test_https_that_cannot_ask_for_the_certificates_it_should_does_not_start(
    settings: dict[str, Any], certificates: Certificates
) -> None:
    del settings["ssl.truststore.location"]
    inline = certificates.authority.read_text().replace("\n", "\\n")
    config = load_broker_config({**settings, "ssl.truststore.certificates": inline, "ssl.client.auth": "required"})
    with pytest.raises(ConfigError, match=r"needs a PEM file with the authorities; set ssl\.truststore\.location"):
        Server(config, Logger(level="ERROR"), http=True).start()
