"""Brokers with logins, rules and certificates, and the raw connection that speaks to them."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

from access import AccessBroker


@pytest.fixture
def access_broker(tmp_path: Path) -> Iterator[Callable[..., AccessBroker]]:
    started: list[AccessBroker] = []

    def start(listeners: str = "SASL_PLAINTEXT://127.0.0.1:0", **settings: Any) -> AccessBroker:
        broker = AccessBroker(tmp_path / "data", listeners, {key.replace("__", "."): v for key, v in settings.items()})
        started.append(broker.start())
        return broker

    yield start
    for broker in started:
        broker.stop()


class Certificates(NamedTuple):
    authority: Path
    broker: Path
    client: Path
    stranger: Path

    def client_context(self, own: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority))
        if own is not None:
            context.load_cert_chain(own)
        return context


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, a broker and a client of it, and a stranger who is nobody's."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    def authority(name: str) -> None:
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")  # fmt: skip

    def signed(name: str, subject: str, by: str) -> Path:
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)  # fmt: skip
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{by}.pem", "-CAkey", f"{by}.key", "-CAcreateserial",
                "-days", "2", "-out", f"{name}.crt", "-extfile", "names")  # fmt: skip
        made = folder / f"{name}.both.pem"
        made.write_text((folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text())
        return made

    authority("authority")
    authority("another")
    return Certificates(
        folder / "authority.pem",
        signed("broker", "/O=Example/CN=localhost", "authority"),
        signed("client", "/C=DE/O=Example/OU=payments/CN=alice", "authority"),
        signed("stranger", "/CN=stranger", "another"),
    )
