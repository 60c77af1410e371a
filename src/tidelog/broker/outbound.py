"""From replies to bytes: what one connection has to send and the socket has not yet taken.

Bytes that stand together leave in one call; slices of segment files go from page cache to socket (`send_file`), and
their bytes never enter this process. What the socket does not take now leaves when it is writable again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.broker.connection import Connection
    from tidelog.log.slice import Slice

BUFFERS_PER_SEND = 64
BYTES = (bytes, memoryview, bytearray)


class Outbound:
    __slots__ = ("_connection", "_unsent", "size", "writing")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._unsent: deque[Any] = deque()
        self.size = 0  # bytes of replies that are encoded and not sent, also of those whose turn it is not yet
        self.writing = False  # the socket was full, and the server says when it is not

    def __bool__(self) -> bool:
        return bool(self._unsent)

    def add(self, chunks: Iterable[Any]) -> None:
        """Their bytes are in `size` already."""
        self._unsent.extend(chunks)

    def send(self) -> None:
        """As far as the socket takes it."""
        unsent = self._unsent
        try:
            while unsent:
                if isinstance(unsent[0], BYTES):
                    self._send_bytes()
                else:
                    self._send_slice(unsent[0])
        except BlockingIOError:
            self._watch(True)
            return
        except OSError as error:
            self._connection.close(f"send failed: {error}")
            return
        self._watch(False)

    def _send_bytes(self) -> None:
        buffers: list[bytes | bytearray | memoryview] = []
        for chunk in self._unsent:
            if not isinstance(chunk, BYTES) or len(buffers) == BUFFERS_PER_SEND:
                break
            buffers.append(chunk)
        sent = self._connection.transport.send(buffers, more=len(buffers) < len(self._unsent))
        self.size -= sent
        self._connection.server.broker.counters.sent_bytes += sent
        for chunk in buffers:
            if sent < len(chunk):
                self._unsent[0] = memoryview(chunk)[sent:]
                break
            sent -= len(chunk)
            self._unsent.popleft()

    def _send_slice(self, piece: Slice) -> None:
        while piece.size:
            sent = self._connection.transport.send_file(piece.fileno(), piece.position, piece.size)
            if not sent:
                raise OSError(f"segment file ended {piece.size} bytes before the slice")
            piece.position += sent
            piece.size -= sent
            self._connection.server.broker.counters.sent_bytes += sent
        self._unsent.popleft()
        piece.release()

    def _watch(self, on: bool) -> None:
        if on is not self.writing:
            self.writing = on
            self._connection.server.watch_writable(self._connection, on)

    def release(self) -> None:
        """The connection is closed."""
        self._watch(False)
        for chunk in self._unsent:
            if not isinstance(chunk, BYTES):
                chunk.release()
        self._unsent.clear()
