"""The seam between a connection and the network: bytes go out, bytes come in, nothing is known of Kafka.

`plain` dials TCP. `tls.tls` is another `Dial` that returns another `Transport`; nothing above this file knows which.
Rules: `receive_into` fills the whole view or raises; a transport that has raised is closed by its owner, never used on.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from tidelog.client.address import Address

Buffer = bytes | bytearray | memoryview

# Linux takes at most this many pieces in one sendmsg (IOV_MAX).
PIECES_PER_SEND = 1024


class Transport(Protocol):
    def send(self, chunks: Sequence[Buffer], deadline: float) -> None: ...
    def receive_into(self, view: memoryview, deadline: float) -> None: ...
    def pending(self) -> bool:
        """Whether bytes wait inside the transport, where poll() on its file number cannot see them (TLS)."""
        ...

    def fileno(self) -> int: ...
    def close(self) -> None: ...


Dial = Callable[[Address, float], Transport]


class PlainTransport:
    """A TCP socket. Deadlines are monotonic; a missed one is a TimeoutError, the stream's end an EOFError."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def send(self, chunks: Sequence[Buffer], deadline: float) -> None:
        views = [memoryview(chunk).cast("B") for chunk in chunks if len(chunk)]
        while views:
            self._socket.settimeout(left(deadline))
            sent = self._socket.sendmsg(views[:PIECES_PER_SEND])
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if sent:
                views[0] = views[0][sent:]

    def receive_into(self, view: memoryview, deadline: float) -> None:
        while view:
            self._socket.settimeout(left(deadline))
            received = self._socket.recv_into(view)
            if not received:
                raise EOFError
            view = view[received:]

    def pending(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


def plain(address: Address, timeout_s: float) -> Transport:
    connected = socket.create_connection((address.host, address.port), timeout=timeout_s)
    # Without it a request of two small packets waits for the delayed ack of the first: 40 ms.
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return PlainTransport(connected)


def left(deadline: float) -> float:
    """Seconds until then; TimeoutError when there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds
