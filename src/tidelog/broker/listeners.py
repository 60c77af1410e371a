"""The doors: sockets that listen, and what comes in by them until it is a connection.

Rules:
- At most `ACCEPTS_PER_EVENT` are let in at a time: who is connected already does not wait for a crowd of newcomers.
- Out of file descriptors, nobody is let in for a second, in one line of the log; who is connected notices nothing.
- With TLS a handshake comes first (`tls.Handshakes`), bounded by itself, and limits are asked for again after it.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.connection import Connection
from tidelog.broker.connections import Connections
from tidelog.broker.transport import PlainTransport, Transport
from tidelog.config import Endpoint
from tidelog.errors import ListenError

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.loop import Loop
    from tidelog.broker.tls import Handshakes, TlsTransport
    from tidelog.logger import Logger

BACKLOG = 1024
ACCEPTS_PER_EVENT = 8  # who is connected waits for no more than these
ACCEPT_PAUSE_S = 1.0
HANDSHAKES_PAUSE_S = 0.02
OWN_DESCRIPTORS = 16  # open from the start: standard streams, the loop, the first log files
LISTEN_ADVICE = {
    errno.EADDRINUSE: "stop what uses the port, or give another with --listen HOST:PORT",
    errno.EACCES: "a port below 1024 needs root; give another with --listen HOST:PORT",
}

Connect = Callable[[Transport, str, Endpoint, tuple[str, int]], Connection]


class Listeners:
    """`connect` makes a connection of what came in: it knows who must log in where."""

    def __init__(self, broker: Broker, loop: Loop, logger: Logger, connections: Connections, connect: Connect) -> None:
        self._broker = broker
        self._loop = loop
        self._logger = logger
        self._connections = connections
        self._connections_max = connections_within(open_files_limit())
        self._connect = connect
        self._sockets: list[socket.socket] = []
        self._stopping = False
        self.handshakes: Handshakes | None = None
        self.addresses: list[tuple[str, int]] = []

    def stop(self) -> None:
        """Nobody comes in any more."""
        self._stopping = True
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
        self.close()
        if self.handshakes is not None:
            self.handshakes.end_all()

    def close(self) -> None:
        for listening in self._sockets:
            listening.close()

    def listen(self, endpoint: Endpoint) -> None:
        """Listens on one address, and on the other loopback too: many systems resolve localhost to ::1 first."""
        bound = self.listen_on(endpoint, required=True)
        if endpoint.host in ("127.0.0.1", "localhost"):
            self.listen_on(endpoint._replace(host="::1", port=bound), required=False)

    def listen_on(self, endpoint: Endpoint, required: bool) -> int:
        _, host, port, _ = endpoint
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1" if host == "localhost" else host, port))
        except OSError as error:
            listening.close()
            if not required:
                return port
            advice = LISTEN_ADVICE.get(error.errno or 0, "give an address of this machine with --listen HOST:PORT")
            raise ListenError(f"cannot listen on {host}:{port}: {(error.strerror or '').lower()}; {advice}") from error
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._sockets.append(listening)
        self._loop.add_reader(listening.fileno(), partial(self._accept, listening, endpoint))
        self.addresses.append((host, listening.getsockname()[1]))
        return int(listening.getsockname()[1])

    def _accept(self, listening: socket.socket, endpoint: Endpoint) -> None:
        for _ in range(ACCEPTS_PER_EVENT):
            if endpoint.tls and self.handshakes is not None and not self.handshakes.make_room():
                self._accept_later(listening, endpoint, HANDSHAKES_PAUSE_S)
                return
            if len(self._connections) + self._under_way >= self._connections_max:
                self._pause_accepting(listening, endpoint, "no descriptors to spare")
                return
            try:
                connected, peer = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self._pause_accepting(listening, endpoint, str(error))
                return
            self._admit(connected, peer[0], endpoint)

    @property
    def _under_way(self) -> int:
        return len(self.handshakes) if self.handshakes is not None else 0

    def _pause_accepting(self, listening: socket.socket, endpoint: Endpoint, why: str) -> None:
        self._logger.seldom("accepting paused", why=why, connections=len(self._connections))
        self._accept_later(listening, endpoint, ACCEPT_PAUSE_S)

    def _accept_later(self, listening: socket.socket, endpoint: Endpoint, delay_s: float) -> None:
        self._loop.remove_reader(listening.fileno())

        def again() -> None:
            if not self._stopping:
                self._loop.add_reader(listening.fileno(), partial(self._accept, listening, endpoint))

        self._loop.call_later(delay_s, again)

    def _admit(self, connected: socket.socket, peer_host: str, endpoint: Endpoint) -> None:
        """A connection begins, or with TLS a handshake that may become one."""
        if not self._connections.has_room_for(peer_host):
            connected.close()
            return
        host, port = connected.getsockname()[:2]
        local = str(host), int(port)
        send_bytes = self._broker.config.int("socket.send.buffer.bytes")
        if send_bytes > 0:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        if self.handshakes is not None and endpoint.tls:
            self.handshakes.begin(connected, endpoint.sasl, partial(self._shaken, peer_host, endpoint, local))
            return
        self._connect(PlainTransport(connected), peer_host, endpoint, local)

    def _shaken(self, peer_host: str, endpoint: Endpoint, local: tuple[str, int], tls: TlsTransport) -> None:
        """Asked once more whether there is room: handshakes that are under way are not connections yet."""
        if self._stopping or not self._connections.has_room_for(peer_host):
            tls.close()
            return
        connection = self._connect(tls, peer_host, endpoint, (tls.asked_for or local[0], local[1]))
        if tls.pending():
            self._connections.receive_soon(connection)


def raise_open_files_limit() -> None:
    """To what the system allows this user: sockets and segments are files, and the usual limit is 1024."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def open_files_limit() -> int:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit if limit != resource.RLIM_INFINITY else 1 << 20


def connections_within(limit: int) -> int:
    """How many connections leave descriptors for what the broker itself must open: segments, indexes, modules."""
    return max(1, limit - limit // 4 - OWN_DESCRIPTORS)
