"""The transport seam: how bytes enter and leave one connection, without blocking.

`PlainTransport` is a non-blocking TCP socket. `tls.TlsTransport` has the same six methods and the
same rule: a call that would wait raises `BlockingIOError`, and the server calls it again when the socket is
readable or writable. Nothing above this file knows which kind it has.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Sequence
from typing import Protocol

MORE_TO_COME = getattr(socket, "MSG_MORE", 0)
HUNG_UP = getattr(select, "POLLRDHUP", 0)


class Transport(Protocol):
    def fileno(self) -> int: ...

    def receive_into(self, view: memoryview) -> int:
        """How many bytes came; 0 at the end of the stream, fewer than there is room for when no more are there now."""
        ...

    def send(self, buffers: Sequence[bytes | bytearray | memoryview], more: bool) -> int:
        """How many bytes went; `more` says that a file follows at once."""
        ...

    def send_file(self, descriptor: int, position: int, count: int) -> int: ...

    def pending(self) -> bool:
        """Whether bytes have come that the socket's readiness does not tell of."""
        ...

    def close(self) -> None: ...


def is_gone(descriptor: int) -> bool:
    """Whether the other side has hung up, without receiving anything; any thread. False where nobody can tell."""
    watch = select.poll()
    watch.register(descriptor, HUNG_UP)
    return bool(HUNG_UP) and bool(watch.poll(0))


class PlainTransport:
    __slots__ = ("_descriptor", "_socket")

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        # asyncio leaves Nagle's algorithm on for some sockets; with it a small reply waits for the peer's delayed ack.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._descriptor = connected.fileno()

    def fileno(self) -> int:
        return self._descriptor

    def receive_into(self, view: memoryview) -> int:
        return self._socket.recv_into(view)

    def send(self, buffers: Sequence[bytes | bytearray | memoryview], more: bool) -> int:
        if len(buffers) == 1:
            return self._socket.send(buffers[0], MORE_TO_COME if more else 0)
        return self._socket.sendmsg(buffers, (), MORE_TO_COME if more else 0)

    def send_file(self, descriptor: int, position: int, count: int) -> int:
        return os.sendfile(self._descriptor, descriptor, position, count)

    def pending(self) -> bool:
        return False

    def close(self) -> None:
        self._socket.close()
