"""TLS between a socket and memory, in both directions.

OpenSSL by itself asks the socket twice for every record of TLS, and clients make many small ones: one for each piece
of a message. So what has come is received at once and decrypted from memory, and what was encrypted leaves at once. The
two memories keep the size that they once had: RECEIVE_BYTES bounds the one, what is written at once the other.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable

RECORD_BYTES = 16 << 10  # the most that TLS encrypts at once
RECEIVE_BYTES = 4 * RECORD_BYTES  # of what has come, at once


class TlsStream:
    """A non-blocking socket, and one end of TLS."""

    __slots__ = ("_incoming", "_leaving", "_outgoing", "_socket", "read", "tls")

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, came: bytes) -> None:
        self._socket = connected
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._incoming.write(came)
        self._leaving: bytes | memoryview = b""  # encrypted, and not taken by the socket yet
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.read: Callable[[int, memoryview], int] = self.tls.read  # type: ignore[assignment]

    def fileno(self) -> int:
        return self._socket.fileno()

    def fill(self) -> None:
        """Takes what the socket has; BlockingIOError when that is nothing."""
        if self._outgoing.pending:
            self._say()
        came = self._socket.recv(RECEIVE_BYTES)
        if came:
            self._incoming.write(came)
        else:
            self._incoming.write_eof()

    def flush(self) -> None:
        """Sends what is encrypted; BlockingIOError when the socket does not take all of it now."""
        while self._leaving or self._outgoing.pending:
            leaving = self._leaving or self._outgoing.read()
            self._leaving = leaving
            self._leaving = memoryview(leaving)[self._socket.send(leaving) :]

    def _say(self) -> None:
        """What TLS itself has to say, as that it renegotiates nothing; whoever asks on and on has to listen."""
        try:
            self.flush()
        except BlockingIOError:
            if self._outgoing.pending > RECORD_BYTES:
                raise OSError("it asks of TLS more than it takes answers") from None

    def shake(self) -> None:
        """A step of the handshake, as far as it goes: SSLWantReadError and SSLWantWriteError say what it waits for."""
        while True:
            try:
                self.tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self._flush_handshake()
                try:
                    self.fill()
                except BlockingIOError:
                    raise ssl.SSLWantReadError from None
            finally:
                self._flush_handshake()

    def _flush_handshake(self) -> None:
        try:
            self.flush()
        except BlockingIOError:
            raise ssl.SSLWantWriteError from None

    def pending(self) -> bool:
        return self._incoming.pending > 0 or self.tls.pending() > 0

    def close(self) -> None:
        self._socket.close()
