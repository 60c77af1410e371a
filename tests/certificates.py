"""Certificates for tests: an authority, a broker and a client of it, one that has expired, and a stranger's."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

ELLIPTIC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
CLIENTS_NAME = "CN=alice,OU=payments,O=Example,C=DE"


class Certificates(NamedTuple):
    """PEM files; `broker`, `client`, `stranger` and `expired` hold a key and its certificate."""

    authority: Path
    broker: Path
    client: Path
    stranger: Path
    expired: Path

    def client_context(self, own: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority))
        if own is not None:
            context.load_cert_chain(own)
        return context


def make_certificates(folder: Path) -> Certificates:
    _authority(folder, "authority")
    _authority(folder, "another")
    return Certificates(
        folder / "authority.pem",
        _signed(folder, "broker", "/O=Example/CN=localhost", "authority"),
        _signed(folder, "client", "/C=DE/O=Example/OU=payments/CN=alice", "authority"),
        _signed(folder, "stranger", "/CN=stranger", "another"),
        _signed(folder, "expired", "/C=DE/O=Example/OU=payments/CN=alice", "authority", days=-1),
    )


def _authority(folder: Path, name: str) -> None:
    files = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
    _openssl(folder, "req", "-x509", *ELLIPTIC, "-days", "2", *files, "-subj", f"/CN={name}")


def _signed(folder: Path, name: str, subject: str, by: str, days: int = 2) -> Path:
    _openssl(folder, "req", *ELLIPTIC, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
    authority = ("-CA", f"{by}.pem", "-CAkey", f"{by}.key", "-CAcreateserial")
    made = ("-days", str(days), "-out", f"{name}.crt", "-extfile", "names")
    _openssl(folder, "x509", "-req", "-in", f"{name}.csr", *authority, *made)
    both = folder / f"{name}.both.pem"
    both.write_text((folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text())
    return both


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
