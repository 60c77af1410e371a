"""The types that come with PostgreSQL's extensions, which the server by pip does not have: with Debian's server."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from capture.conftest import LOGICAL
from capture.sources.postgres.comparing import DIFFERENCES, differences
from capture.sources.postgres.following import Base
from proving import proves

PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/usr/lib/postgresql/bin"))


@pytest.fixture
def debian_server() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as made:
        folder = Path(made).resolve()
        data = folder / "data"
        folder.chmod(0o777)
        words = [
            str(PROGRAMS / "initdb"),
            "-D",
            str(data),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-N",
            "-E",
            "UTF8",
            "--locale=C",
        ]
        subprocess.run(words, check=True, capture_output=True, user="postgres", cwd="/")
        settings = [word for name, value in LOGICAL.items() for word in ("-c", f"{name}={value}")]
        words = [str(PROGRAMS / "postgres"), "-D", str(data), "-h", "", "-k", str(folder), "-F", *settings]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(words, user="postgres", cwd="/", stdout=log, stderr=log)
        url = f"postgresql://postgres@/postgres?host={folder}"
        for _ in range(200):
            try:
                psycopg.connect(url).close()
                break
            except psycopg.OperationalError:
                time.sleep(0.05)
        yield url
        server.terminate()
        server.wait()


@proves("cdc.15")
@pytest.mark.external
def test_every_value_of_every_extension_is_debeziums(debian_server: str) -> None:
    with Base(debian_server) as base:
        assert differences(base, extensions=True) == DIFFERENCES
