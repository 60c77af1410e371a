"""A real worker of Kafka Connect, distributed mode, as the guide has users start it: the files of
`examples/kafka_connect`, with other addresses.

Worker and connectors lie in the folder that TIDELOG_CONNECT names, else in `.make/connect` of the repository, which
`make connect` fills. A worker keeps its port over `kill` and `start`; it dies with its parent. `worker.log` in its
folder has what it said.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from against.apache_kafka import QUICK_JVM, REPOSITORY, Missing, die_with_parent
from against.patience import eventually
from crash.port import free_port

EXAMPLE = REPOSITORY / "examples" / "kafka_connect"
START_SECONDS = 180.0
STOP_SECONDS = 120.0
BAD_REQUEST, REBALANCING = 400, 409
PASSWORD = "of-the-shop"


def connect_folder() -> Path:
    folder = Path(os.environ.get("TIDELOG_CONNECT") or REPOSITORY / ".make" / "connect")
    if not any(folder.glob("worker/connect-runtime-*.jar")):
        raise Missing(f"no Kafka Connect in {folder}; run `make connect` (Maven), or set TIDELOG_CONNECT")
    if shutil.which("java") is None:
        raise Missing("no java on the path; install Java 17 or later (Debian: default-jre-headless)")
    return folder


def read_properties(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


class ConnectWorker:
    """`settings` are put over those of the example."""

    def __init__(self, folder: Path, bootstrap: str, settings: Mapping[str, str] | None = None) -> None:
        made = connect_folder()
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.url = f"http://127.0.0.1:{free_port()}"
        own = {"bootstrap.servers": bootstrap, "listeners": self.url, "plugin.path": str(made / "plugins")}
        said = {**read_properties(EXAMPLE / "worker.properties"), **own, **(settings or {})}
        properties = self.folder / "worker.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in said.items()))
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        self.command = ["java", *QUICK_JVM, "-cp", f"{EXAMPLE}:{made}/worker/*", main, str(properties)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> ConnectWorker:
        with (self.folder / "worker.log").open("ab") as said:
            self.process = subprocess.Popen(
                self.command,
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
                preexec_fn=die_with_parent,
                env={**os.environ, "SHOP_PASSWORD": PASSWORD},
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the worker did not start:\n{self.said()[-4000:]}")
            time.sleep(0.1)
        return self

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def signal(self, what: int) -> None:
        assert self.process is not None
        self.process.send_signal(what)

    def said(self) -> str:
        return (self.folder / "worker.log").read_text(errors="replace")

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer as JSON. While the workers rebalance, 409 asks to come again; so do we."""

        def once() -> tuple[int, str]:
            return self._answer(method, path, body)

        status, text = eventually(once, lambda answer: answer[0] != REBALANCING)
        assert status < 300, f"{method} {path}: {status} {text}"
        return json.loads(text) if text else None

    def refuses(self, connector: object) -> bool:
        """Whether its configuration is one that this worker cannot run."""
        return self._answer("POST", "/connectors", connector)[0] == BAD_REQUEST

    def state_of(self, connector: str) -> list[str]:
        """Of the connector, then of each task. Empty while nothing is known of it."""
        status, text = self._answer("GET", f"/connectors/{connector}/status")
        if status != 200:
            return []
        told = json.loads(text)
        failed = [one["trace"] for one in (told["connector"], *told["tasks"]) if one["state"] == "FAILED"]
        assert not failed, failed
        return [told["connector"]["state"], *(task["state"] for task in told["tasks"])]

    def await_state(self, connector: str, *states: str) -> None:
        eventually(lambda: self.state_of(connector), lambda seen: seen == list(states))

    def _answer(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(
            self.url + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(asked, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def _answers(self) -> bool:
        try:
            return self._answer("GET", "/connectors")[0] == 200
        except OSError:
            return False

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
