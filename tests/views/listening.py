"""A server that somebody else runs: it asks for a password as PostgreSQL does, and keeps what it is told."""

from __future__ import annotations

import socket
import struct
import threading

ENCRYPTION = (80877103, 80877104)  # SSLRequest, GSSENCRequest: answered with no
CLEARTEXT = b"R" + struct.pack(">ii", 8, 3)  # AuthenticationCleartextPassword


class Listener:
    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.connections = 0
        self.heard = b""
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                one, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            with one:
                one.settimeout(5)
                try:
                    self._talk(one)
                except OSError:
                    continue

    def _talk(self, one: socket.socket) -> None:
        while said := one.recv(65536):
            self.heard += said
            if said.startswith(b"p"):  # the password
                return
            asks = len(said) == 8 and struct.unpack(">ii", said)[1] in ENCRYPTION
            one.sendall(b"N" if asks else CLEARTEXT)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
