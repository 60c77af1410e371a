"""SIGHUP: certificates and settings are read again, the log says what needs a restart, a mistake changes nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from access import Client

from proving import proves
from tidelog.broker.reloading import differences
from tidelog.broker.settings.configuring import load_broker_config
from tidelog.wire.messages.api_versions import ApiVersionsRequest

HELLO = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
PATIENCE_S = 180.0


@proves("T10")
def test_what_can_be_read_again_counts_and_the_rest_is_named():
    now = load_broker_config({"super.users": "User:a", "num.partitions": 1, "max.connections": 5})
    read = load_broker_config({"super.users": "User:b", "num.partitions": 2, "tidelog.log.level": "DEBUG"})
    found = differences(now, read)
    assert set(found.changed) == {"super.users", "max.connections", "tidelog.log.level"}
    assert found.waiting == ["num.partitions"]
    assert {key: one.text for key, one in found.given.items()} == {
        "super.users": "User:b",
        "num.partitions": "1",
        "tidelog.log.level": "DEBUG",
    }


class Up:
    """`tidelog up` in a folder with a tidelog.toml."""

    def __init__(self, folder: Path, settings: str) -> None:
        self.folder = folder
        self.write(settings)
        self.log = (folder / "log").open("w+")
        own = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", "up"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**own, "TIDELOG_HTTP_LISTENER": "-"},  # the default port is another test's
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().rpartition(":")[2])

    def write(self, settings: str) -> None:
        (self.folder / "tidelog.toml").write_text("[broker]\n" + settings)

    def reload(self, said: str) -> str:
        before = (self.folder / "log").read_text().count("reloaded")
        self.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            text = (self.folder / "log").read_text()
            if text.count("reloaded") > before:
                assert said in text.splitlines()[-1], text
                return text
            time.sleep(0.02)
        raise AssertionError("nothing was reloaded")

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0


@pytest.fixture
def up(tmp_path):
    started = []

    def start(settings: str) -> Up:
        started.append(Up(tmp_path, settings))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@proves("T10")
@pytest.mark.slow
def test_a_new_certificate_is_shown_to_the_next_client_and_those_connected_stay(up, certificates, tmp_path):
    own = tmp_path / "own.pem"
    shutil.copy(certificates.client, own)
    settings = f'listeners = "SSL://127.0.0.1:0"\n"ssl.keystore.location" = "{own}"\n'
    broker = up(settings)
    context = certificates.client_context()

    def subject(client: Client) -> str:
        return dict(part[0] for part in client.socket.getpeercert()["subject"])["commonName"]

    with Client(broker.port, context) as before:
        assert subject(before) == "alice"
        shutil.copy(certificates.broker, own)
        broker.reload("certificates='read again'")
        with Client(broker.port, context) as after:
            assert subject(after) == "localhost"
            assert after.call(HELLO, 3).error_code == 0
        assert before.call(HELLO, 3).error_code == 0
        own.write_text("nonsense")
        said = broker.reload(
            f"certificates of the broker cannot be used: {own} (ssl.keystore.location): it does not have"
        )
        assert "not reloaded" in said and "then send SIGHUP again, until then all is as it was" in said
        with Client(broker.port, context) as after:
            assert subject(after) == "localhost"


@proves("T10")
def test_the_logs_level_changes_and_a_listener_waits_for_a_restart(up):
    broker = up('listeners = "127.0.0.1:0"\n')
    http = '"tidelog.http.stores" = "sqlite:////var/views/"\n'
    broker.write(f'listeners = "127.0.0.1:9"\n"tidelog.log.level" = "DEBUG"\n"max.connections" = 7\n{http}')
    text = broker.reload("needs_restart=listeners")
    assert "changed='max.connections, tidelog.log.level, tidelog.http.stores'" in text
    broker.write("nonsense = 1\n")
    broker.reload("not reloaded")
