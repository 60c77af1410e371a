"""From an empty folder to a broker that asks for a login and rules, by commands alone; secrets are seen nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from access import AUTHORIZER

from proving import proves

PASSWORD, ALICES = "first of all users", "alice has another"


def tidelog(*words: str, said: str = "", fails: bool = False, config: Path | None = None, port: int = 0) -> str:
    reach = ["--bootstrap", f"127.0.0.1:{port}"] if port else []
    login = ["--command-config", str(config)] if config else []
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", *words, *reach, *login],
        input=said,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TIDELOG_COMMAND_CONFIG": ""},
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def login(tmp_path, certificates):
    def made(user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> Path:
        path = tmp_path / f"{user}-{mechanism}.properties"
        path.write_text(
            "# how to reach the broker\n"
            "security.protocol=SASL_SSL\n"
            f"sasl.mechanism={mechanism}\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
            f'    username="{user}" password="{password}";\n'
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={certificates.authority}\n"
        )
        return path

    return made


@proves("T10")
@pytest.mark.slow
def test_the_first_user_is_made_in_the_folder_and_the_others_by_the_broker(
    access_broker, certificates, login, tmp_path
):
    data = tmp_path / "data"
    tidelog("users", "add", "admin", "--data", str(data), said=PASSWORD + "\n")
    assert "already" in tidelog("users", "add", "admin", "--data", str(data), said=PASSWORD + "\n", fails=True)
    broker = access_broker(
        "SASL_SSL://127.0.0.1:0",
        **{
            "ssl.keystore.location": certificates.broker,
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:admin",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
            "tidelog.log.level": "DEBUG",
        },
    )
    assert "is served by another broker" in tidelog(
        "users", "add", "eve", "--data", str(data), said=PASSWORD + "\n", fails=True
    )
    reach = {"port": broker.port("SASL_SSL"), "config": login("admin", PASSWORD)}
    said = [
        tidelog("users", "add", "alice", said=ALICES + "\n", **reach),
        tidelog("users", "--json", **reach),
        tidelog("topics", "create", "orders", **reach),
        tidelog("acls", "add", "--user", "alice", "--topic", "orders", "--operation", "write", **reach),
        tidelog("acls", "list", "--topic", "orders", **reach),
        tidelog("quotas", "set", "--user", "alice", "--producer-byte-rate", "1000000", **reach),
        tidelog("quotas", **reach),
        tidelog("configs", "describe", "broker", "--all", **reach),
    ]
    assert '"alice"' in said[1] and "User:alice" in said[4] and "1000000" in said[6]
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        alice = {"port": broker.port("SASL_SSL"), "config": login("alice", ALICES, mechanism)}
        said.append(tidelog("produce", "orders", said="hello\n", **alice))
        said.append(tidelog("tail", "orders", "--from", "earliest", fails=True, **alice))
        assert "AUTHORIZATION_FAILED" in said[-1]
    wrong = {"port": broker.port("SASL_SSL"), "config": login("alice", "not alice's at all")}
    said.append(tidelog("topics", fails=True, **wrong))
    assert "SASL_AUTHENTICATION_FAILED" in said[-1]
    said.append(tidelog("users", "delete", "alice", "--yes", **reach))
    said.append(tidelog("topics", fails=True, port=alice["port"], config=alice["config"]))
    secrets = (PASSWORD, ALICES, "not alice's at all", "PRIVATE KEY")
    for text in (*said, broker.said()):
        assert not any(secret in text for secret in secrets)


@proves("T10")
def test_passwords_are_in_no_file_and_their_keys_are_for_the_owner_alone(tmp_path):
    data = tmp_path / "data"
    tidelog("users", "add", "admin", "--data", str(data), said=PASSWORD + "\n")
    folds = list(data.glob("__tidelog.access.*.fold"))
    assert folds and all(path.stat().st_mode & 0o077 == 0 for path in folds)
    (folder,) = data.glob(b"__tidelog.access".hex() + "-0")
    assert folder.stat().st_mode & 0o077 == 0
    for path in data.rglob("*"):
        assert path.is_dir() or PASSWORD.encode() not in path.read_bytes()


@proves("T10")
def test_a_password_that_is_too_short_is_refused(tmp_path):
    said = tidelog("users", "add", "admin", "--data", str(tmp_path / "data"), said="short\n", fails=True)
    assert "at least 8 characters" in said
