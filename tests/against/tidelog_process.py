"""Tidelog as users start it, `tidelog up` in a process of its own, so that it can be restarted and killed like any
other broker.

Same face as `ApacheKafka`: `name`, `bootstrap`, `start`, `stop`, `kill`, `restart`, `said`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from against.apache_kafka import die_with_parent
from crash.port import free_port

START_SECONDS = 180.0
STOP_SECONDS = 120.0
READY = "ready on "


class TidelogProcess:
    """`settings` are broker settings by Kafka's names, given on the command line."""

    name = "tidelog"

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        port: int | None = None,
        further_listeners: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`further_listeners`, as NAME://HOST:PORT,..., are bound beside the plain one. `environment`: in place of this
        process's.
        """
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.listeners = ",".join(filter(None, (self.bootstrap, further_listeners)))
        self.settings = dict(settings or {})
        self.environment = environment
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self, *, wait: bool = True) -> TidelogProcess:
        command = [sys.executable, "-m", "tidelog", "up", "--data", str(self.data), "--listen", self.listeners]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        (self.folder / "server.log").touch()
        already_said = len(self.said())
        with (self.folder / "server.log").open("ab") as said:
            self.process = subprocess.Popen(
                command,
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
                preexec_fn=die_with_parent,
                env={**(self.environment or os.environ), "PYTHONUNBUFFERED": "1"},
            )
        if wait:
            self._await_ready(already_said)
        return self

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def said(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")

    def _await_ready(self, already_said: int) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        while READY not in self.said()[already_said:]:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"tidelog did not start:\n{self.said()[-4000:]}")
            time.sleep(0.01)

    def _end(self, how: int) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.process = None
