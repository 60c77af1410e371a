"""The HTTP listener of `tidelog up`: bound by the broker, served by a child process that starts with the first caller.

So HTTP costs no time at the start and no memory until somebody asks, and a fault in it is not the broker's.

    state       set by                                       connections
    listening   `bind`; the end of a pause                   wait in the backlog and start the child
    starting    the first of them                            wait
    running     the child has the sockets                    are the child's
    pausing     the child ended, or cannot be started        get a 503 that says so, in a few bytes, from here
    stopped     `stop`: the child's standard input ends      are refused

The child dies with this process, however it ends, because its standard input ends then. When it ends by itself it is
started again by the next connection, after a pause that grows while it keeps ending soon (`pause_s`).

Where the broker's listeners demand a login, so does HTTP: each request's user logs in, at a loopback listener that the
server has for the child alone (`Reach`). The child gets no secret of anybody's; one that the broker made lets it say
whose certificate it has seen.

    broker -> child    one line of JSON on its standard input, {"delegation": SECRET or null}; its end is the child's
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.config import BrokerConfig, HttpListener, http_listener, is_loopback
from tidelog.errors import ConfigError, ListenError
from tidelog.logger import Logger

if TYPE_CHECKING:
    from subprocess import Popen

    from tidelog.broker.loop import Loop

LISTENER = "tidelog.http.listener"
HOSTS = "tidelog.http.hosts"
STORES = "tidelog.http.stores"
NONE = "-"
BACKLOG = 1024
NEEDED = ("starlette", "uvicorn")
INSTALL = "pip install 'tidelog[http]'"

PAUSE_FIRST_S = 0.5
PAUSE_MAX_S = 30.0
STEADY_S = 60.0  # a child that lived so long has not failed to start
STOP_WITHIN_S = 3.0

ACCEPTS_PER_EVENT = 64
LINGERING_MAX = 64
LINGER_S = 1.0
DRAIN_BYTES = 65536

KEYSTORE, TRUSTSTORE = "ssl.keystore.location", "ssl.truststore.location"
ADVICE = f"set {LISTENER} to another address, or to {NONE} for none"


def pause_s(failures: int) -> float:
    return float(min(PAUSE_MAX_S, PAUSE_FIRST_S * 2 ** min(failures, 10)))


class Reach(NamedTuple):
    """How the child reaches the broker: where, and by which mechanism its users log in; None where they need not."""

    bootstrap: str
    mechanism: str | None
    delegation: str | None = None  # the secret for which the broker believes whose certificate was shown

    def __repr__(self) -> str:
        return f"Reach({self.bootstrap!r}, {self.mechanism!r})"


class Activation:
    """Loop thread only, except `_start` and what waits for the child."""

    def __init__(self, config: BrokerConfig, loop: Loop, logger: Logger, reach: Callable[[], Reach]) -> None:
        """`reach` says how the broker itself is reached, once it listens."""
        self._config = config
        self._loop = loop
        self._logger = logger
        self._reach = reach
        self._tls = False
        self._sockets: list[socket.socket] = []
        self._child: Popen[bytes] | None = None
        self._started_at = 0.0
        self._failures = 0
        self._why = b""
        self._told_to_install = False
        self._lingering = 0
        self._starting = False
        self._renewing = False
        self._stopping = False

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [one.getsockname()[:2] for one in self._sockets]

    @property
    def loopback(self) -> bool:
        """Whether all who ask are of this machine."""
        return all(is_loopback(host) for host, _ in self.addresses)

    @property
    def tls(self) -> bool:
        return self._tls

    @property
    def asks_for_certificates(self) -> bool:
        """Whether clients of HTTPS may, or must, show who they are by a certificate."""
        asked = self._config.text("ssl.client.auth") != "none"
        return self._tls and asked and self._config.values[TRUSTSTORE] is not None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    # Its life --------------------------------------------------------------------------------------------------------

    def bind(self, login: bool) -> None:
        """A taken port is a warning where nobody asked for this one, and an error where somebody did."""
        where = self._where(login)
        host, port = where.host, where.port
        try:
            self._sockets.append(_listen(host, port))
        except OSError as error:
            why = f"cannot listen on {host}:{port} for HTTP: {(error.strerror or '').lower()}"
            if LISTENER in self._config.given:
                raise ListenError(f"{why}; {ADVICE}") from error
            self._logger.warning("no http", why=why, next=ADVICE)
            return
        if host in ("127.0.0.1", "localhost"):
            with suppress(OSError):
                self._sockets.append(_listen("::1", self._sockets[0].getsockname()[1]))
        self._watch(self._wanted)

    def _where(self, login: bool) -> HttpListener:
        where = http_listener(self._config.text(LISTENER))
        where.check(login)
        self._tls = where.tls
        if where.tls and (self._config.values[KEYSTORE] is None or self._config.values["ssl.key.password"] is not None):
            raise ConfigError(f"{LISTENER} is https and needs a PEM file with a key in the clear; set {KEYSTORE}")
        if where.tls and self._config.text("ssl.client.auth") == "required" and self._config.values[TRUSTSTORE] is None:
            raise ConfigError(
                f"{LISTENER} is https, where ssl.client.auth=required needs a PEM file with the authorities; set"
                f" {TRUSTSTORE}"
            )
        return where

    def renew(self, config: BrokerConfig) -> None:
        """Settings or certificates have changed: the child ends, and the next connection starts one that knows them."""
        self._config = config
        if self._starting:
            self._renewing = True  # it may have been told how things were before
        elif self._child is not None and self._child.stdin is not None and not self._stopping:
            self._renewing = True
            self._child.stdin.close()

    def stop(self) -> None:
        """No more connections; the child answers what it has."""
        if self._stopping:
            return
        self._stopping = True
        self._unwatch()
        for one in self._sockets:
            one.close()
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()

    def close(self) -> None:
        """After the loop has ended: waits for the child, and not for long. It keeps nothing that could be lost."""
        self.stop()
        if self._child is None:
            return
        from tidelog import process

        process.end(self._child, STOP_WITHIN_S)
        if self._child.stdout is not None:
            self._child.stdout.close()
        self._child = None

    # The child -------------------------------------------------------------------------------------------------------

    def _wanted(self, _listening: socket.socket) -> None:
        self._unwatch()
        self._starting = True
        self._loop.in_thread(self._start, self._started)

    def _start(self) -> Popen[bytes] | None:
        """In a worker thread. None when what it needs is not installed."""
        from importlib.util import find_spec
        from json import dumps
        from subprocess import PIPE

        from tidelog import process

        if any(find_spec(name) is None for name in NEEDED):
            return None
        descriptors = [one.fileno() for one in self._sockets]
        reach = self._reach()
        words = [sys.executable, "-m", "tidelog", "gateway", "--bootstrap", reach.bootstrap, "--with-parent"]
        if reach.mechanism is not None:
            words += ["--login", reach.mechanism]
        if self._tls:
            words += ["--certificate", self._config.text(KEYSTORE)]
        if reach.delegation is not None:
            words += ["--authorities", self._config.text(TRUSTSTORE)]
            words += ["--demand-certificates"] if self._config.text("ssl.client.auth") == "required" else []
        words += ["--log-level", self._config.text("tidelog.log.level")]
        words += ["--log-format", self._config.text("tidelog.log.format")]
        for descriptor in descriptors:
            words += ["--fd", str(descriptor)]
        for name in self._config.texts(HOSTS):
            words += ["--host", name]
        for beginning in self._config.texts(STORES):
            words += ["--store", beginning]
        told = dumps({"delegation": reach.delegation}).encode() + b"\n"
        return process.start(words, told=told, stdout=PIPE, descriptors=descriptors)

    def _started(self, child: object, error: BaseException | None) -> None:
        self._starting = False
        if error is not None:
            self._logger.error("http failed to start", error=error)
            self._pause(f"the HTTP server could not be started: {error}; the broker's log says more")
            return
        if child is None:
            if not self._told_to_install:
                self._told_to_install = True
                self._logger.warning("http is not installed", next=INSTALL)
            self._pause(f"HTTP is not installed beside this broker; {INSTALL}")
            return
        self._child = child  # type: ignore[assignment]
        assert self._child is not None and self._child.stdin is not None and self._child.stdout is not None
        self._started_at = self._loop.time()
        self._loop.add_reader(self._child.stdout.fileno(), self._said)
        if self._stopping or self._renewing:
            self._child.stdin.close()

    def _said(self) -> None:
        """Nothing is expected on its standard output but the end, which is the child's."""
        assert self._child is not None and self._child.stdout is not None
        descriptor = self._child.stdout.fileno()
        if not os.read(descriptor, DRAIN_BYTES):
            self._loop.remove_reader(descriptor)
            if not self._stopping:
                self._loop.in_thread(self._child.wait, self._ended)

    def _ended(self, code: object, _error: BaseException | None) -> None:
        child = self._child
        if self._stopping or child is None:
            return
        assert child.stdin is not None and child.stdout is not None
        child.stdout.close()
        with suppress(OSError):
            child.stdin.close()
        self._child = None
        if self._renewing:
            self._renewing = False
            self._watch(self._wanted)
            return
        lived_s = self._loop.time() - self._started_at
        self._failures = 0 if lived_s >= STEADY_S else self._failures + 1
        self._logger.error("http ended", code=code, lived_s=round(lived_s, 1), next="the next connection starts it")
        self._pause("the HTTP server ended and will be started again; try again in a moment")

    def _pause(self, why: str) -> None:
        if self._stopping:
            return
        from json import dumps

        body = dumps({"error_code": 503, "message": why}).encode() + b"\n"
        head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
        self._why = f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
        self._watch(self._refuse)
        self._loop.call_later(pause_s(self._failures), self._pause_over)

    def _pause_over(self) -> None:
        if not self._stopping:
            self._unwatch()
            self._watch(self._wanted)

    # Connections that nobody serves ----------------------------------------------------------------------------------

    def _refuse(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_EVENT):
            try:
                connected, _peer = listening.accept()
            except OSError:
                return
            connected.setblocking(False)
            with suppress(OSError):
                connected.send(self._why)
                connected.shutdown(socket.SHUT_WR)
            if self._lingering >= LINGERING_MAX:
                connected.close()
                continue
            # Closed at once, the request that is still coming would take the answer with it.
            self._lingering += 1
            self._loop.call_later(LINGER_S, partial(self._let_go, connected))

    def _let_go(self, connected: socket.socket) -> None:
        self._lingering -= 1
        with suppress(OSError):
            connected.recv(DRAIN_BYTES)
        connected.close()

    def _watch(self, action: Callable[[socket.socket], None]) -> None:
        for one in self._sockets:
            self._loop.add_reader(one.fileno(), partial(action, one))

    def _unwatch(self) -> None:
        for one in self._sockets:
            if one.fileno() >= 0:
                self._loop.remove_reader(one.fileno())


def _listen(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1" if host == "localhost" else host, port))
        listening.setblocking(False)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
