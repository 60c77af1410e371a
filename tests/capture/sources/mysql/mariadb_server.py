"""A real MariaDB of Debian's, on a free port, with its files in a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pymysql

from against.apache_kafka import Missing, die_with_parent
from crash.port import free_port

START_SECONDS = 60.0
OPTIONS = (
    *("--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-metadata=FULL", "--server-id=1", "--skip-name-resolve"),
    *("--character-set-server=utf8mb4", "--max-connections=300"),
    *("--innodb-buffer-pool-size=24M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0"),
    *("--performance-schema=OFF", "--skip-log-error", "--bind-address=127.0.0.1", "--socket=s"),
)


class MariaDbServer:
    """It keeps its port and its folder over `kill` and `start`, and dies with its parent."""

    def __init__(self, folder: Path, *options: str) -> None:
        if shutil.which("mariadbd", path=_PATH) is None or shutil.which("mariadb-install-db", path=_PATH) is None:
            raise Missing("no mariadbd on the path; on Debian: apt-get install mariadb-server")
        self.folder = folder
        self.options = options
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> MariaDbServer:
        if not self.folder.exists():
            self._install()
        words = [shutil.which("mariadbd", path=_PATH) or "", "--no-defaults", f"--datadir={self.folder}", *OPTIONS]
        words += [
            f"--port={self.port}",
            f"--tmpdir={self._temporary()}",
            *self.options,
            *(["--user=root"] if os.geteuid() == 0 else []),
        ]
        with (self.folder / "server.log").open("ab") as said:
            self.process = subprocess.Popen(
                words, stdout=said, stderr=said, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < deadline, (self.folder / "server.log").read_text()
            time.sleep(0.02)
        return self

    def _install(self) -> None:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        words = [shutil.which("mariadb-install-db", path=_PATH) or "", "--no-defaults", f"--datadir={self.folder}"]
        words += ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        words += [f"--tmpdir={self._temporary()}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr

    def _temporary(self) -> Path:
        """Of its own, also while it is installed: a server that starts empties the folder."""
        folder = self.folder.with_name(f"{self.folder.name}.tmp")
        folder.mkdir(exist_ok=True)
        return folder

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def connect(self, database: str | None = None) -> Any:
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="root",
            database=database,
            charset="utf8mb4",
            autocommit=True,
            ssl_disabled=True,
        )

    def url(self, database: str, user: str = "root", password: str = "", options: str = "") -> str:
        return f"mariadb://{user}:{password}@127.0.0.1:{self.port}/{database}{options}"

    def run(self, *statements: str, database: str | None = None) -> list[Any]:
        """On one connection; gives what the last one gave."""
        connection = self.connect(database)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: int) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None


_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
