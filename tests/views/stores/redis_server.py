"""A real redis-server of Debian's, on a free port, with its files in a folder of its own."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from against.apache_kafka import Missing, die_with_parent
from crash.port import free_port

START_SECONDS = 60.0


class RedisServer:
    """It keeps its port and its folder over `kill` and `start`, and dies with its parent. Killed, it has all that it
    had answered only if it syncs `always`: it may put off a write while a sync is under way.
    """

    def __init__(self, folder: Path, password: str = "", *, syncs: str = "everysec") -> None:
        if shutil.which("redis-server") is None:
            raise Missing("no redis-server on the path; on Debian: apt-get install redis-server")
        self.folder = folder
        self.password = password
        self.syncs = syncs
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://{f':{self.password}@' if self.password else ''}127.0.0.1:{self.port}/0"

    def start(self) -> RedisServer:
        self.folder.mkdir(parents=True, exist_ok=True)
        words = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        words += ["--appendonly", "yes", "--appendfsync", self.syncs, "--save", ""]
        words += ["--requirepass", self.password] if self.password else []
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

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(100).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: int) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None
