"""A server that says exactly what a test wants said: bytes by script, over a real socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from tidelog.client.address import Address


def read_frame(connection: socket.socket) -> bytes:
    size = b""
    while len(size) < 4:
        got = connection.recv(4 - len(size))
        if not got:
            return b""
        size += got
    wanted = int.from_bytes(size, "big")
    frame = b""
    while len(frame) < wanted:
        frame += connection.recv(wanted - len(frame))
    return frame


def answer(request: bytes, body: bytes, *, correlation: int | None = None) -> bytes:
    """A response frame with the request's correlation id, and no tagged fields in its header."""
    number = request[4:8] if correlation is None else correlation.to_bytes(4, "big")
    return (4 + len(body)).to_bytes(4, "big") + number + body


@contextmanager
def server(*replies: object) -> Iterator[tuple[Address, list[bytes]]]:
    """Each reply is bytes, None (say nothing), or a function of the request's frame; then the connection is closed."""
    listening = socket.create_server(("127.0.0.1", 0))
    requests: list[bytes] = []

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            for reply in replies:
                request = read_frame(connection)
                if not request:
                    return
                requests.append(request)
                said = reply(request) if callable(reply) else reply
                if said is not None:
                    connection.sendall(said)
            if replies and replies[-1] is None:
                connection.recv(1)

    thread = Thread(target=serve, daemon=True)
    thread.start()
    host, port = listening.getsockname()[:2]
    try:
        yield Address(host, port), requests
    finally:
        listening.close()
        thread.join(5)
