"""Answers do not wait for acknowledgements of their first half."""

from __future__ import annotations

import os
import socket
import threading

from gateway.serving import SECONDS, Client
from proving import proves
from tidelog.config import HttpListener
from tidelog.gateway.gateway import Gateway
from tidelog.gateway.routes import ROUTES
from tidelog.gateway.server import Settings, listen, serve
from tidelog.logger import Logger


@proves("http")
def test_connections_send_at_once_whatever_is_written() -> None:
    """Asked of the listening socket: one that is accepted from it has what it has, which is tried here too."""
    sockets = listen(HttpListener("127.0.0.1", 0, ""))
    port = sockets[0].getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as before, sockets[0].accept()[0] as accepted:
        assert not accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert before.getpeername()[1] == port
    kept = [one.dup() for one in sockets]
    ours, theirs = os.pipe()
    arguments = Gateway("127.0.0.1:1", ROUTES), sockets, Logger(level="ERROR"), Settings(parent=ours)
    thread = threading.Thread(target=serve, args=arguments, daemon=True)
    thread.start()
    try:
        assert Client(port)("GET", "/healthz").status == 200
        assert all(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in kept)
    finally:
        os.close(theirs)
        thread.join(SECONDS)
        os.close(ours)
        for one in kept:
            one.close()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with listening, socket.create_connection(listening.getsockname()), listening.accept()[0] as taken:
        assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
