"""The gateway as it is run, and requests to it: by `http.client` where they are proper, by hand where they are not."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.client.security import Security
from tidelog.config import HttpListener
from tidelog.gateway.gateway import Gateway
from tidelog.gateway.route import Route
from tidelog.gateway.server import Settings, listen, serve
from tidelog.logger import Logger

SECONDS = 180.0
READY = re.compile(r"gateway ready address=127\.0\.0\.1:(\d+)")


class Got(NamedTuple):
    status: int
    headers: Mapping[str, str]  # with lower-case names
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """Of an error, whose form is the same everywhere."""
        assert self.headers["content-type"].endswith("json"), self
        assert set(self.json) == {"error_code", "message"}, self
        return str(self.json["message"])


class Client:
    """`client("GET", "/healthz")`. Each request has a connection of its own."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __call__(self, method: str, path: str, body: object = None, *, timeout: float = SECONDS, **headers: str) -> Got:
        """Headers by name with underscores; a body that is no bytes goes as JSON."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            named.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers=named)
            answer = connection.getresponse()
            return Got(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def raw(self, request: bytes) -> bytes:
        """Everything that is answered to these bytes, until the gateway ends the connection."""
        with self.connect() as connected:
            with suppress(ConnectionError):  # it may have heard enough
                connected.sendall(request)
            return read_all(connected)


def read_all(connected: socket.socket) -> bytes:
    answered = b""
    try:
        while chunk := connected.recv(65536):
            answered += chunk
    except ConnectionResetError:
        pass
    return answered


class GatewayProcess:
    """`tidelog gateway` beside a broker, in a process of its own."""

    def __init__(self, bootstrap: str, log: Path, *words: str) -> None:
        self.log = log
        command = [sys.executable, "-m", "tidelog", "gateway", "--bootstrap", bootstrap, "--listen", "127.0.0.1:0"]
        with log.open("wb") as said:
            self.process = subprocess.Popen(
                [*command, "--with-parent", *words], stdin=subprocess.PIPE, stdout=said, stderr=said
            )
        assert self.process.stdin is not None
        self.process.stdin.write(b"{}\n")
        self.process.stdin.flush()
        self.client = Client(self._port())

    def said(self) -> str:
        return self.log.read_text()

    def stop(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(SECONDS)

    def _port(self) -> int:
        while (found := READY.search(self.said())) is None:
            try:
                code = self.process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            raise RuntimeError(f"the gateway ended with {code}:\n{self.said()}")
        return int(found[1])


@contextmanager
def served(
    routes: tuple[Route, ...],
    bootstrap: str = "127.0.0.1:1",
    security: Security | None = None,
    stores: tuple[str, ...] = (),
    **settings: Any,
) -> Iterator[Client]:
    """A gateway with a table of its own, in a thread of this process."""
    sockets = listen(HttpListener("127.0.0.1", 0, ""))
    ours, theirs = os.pipe()
    gateway = Gateway(bootstrap, routes, security, stores=stores)
    arguments = gateway, sockets, Logger(level="ERROR"), Settings(parent=ours, **settings)
    thread = threading.Thread(target=serve, args=arguments, daemon=True)
    thread.start()
    try:
        yield Client(sockets[0].getsockname()[1])
    finally:
        os.close(theirs)
        thread.join(SECONDS)
        os.close(ours)
        assert not thread.is_alive()
