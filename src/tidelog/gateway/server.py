"""The process: its sockets, its loop, and its end.

    serving     from the first accept; the sockets were bound here (`--listen`) or by the broker (`--fd`)
    stopping    SIGTERM, SIGINT, or the end of standard input when a broker started us: no accepts, requests have
                STOP_WITHIN_S
    ended       without waiting for threads: what they still do has nobody to answer to

In front of a broker without authentication every socket must be a loopback one: else whoever reaches this machine would
be everybody. The broker cannot tell, for it sees connections from this machine alone.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import uvicorn

from tidelog.client.address import Address
from tidelog.config import HttpListener
from tidelog.errors import ListenError
from tidelog.gateway.app import GatewayApp
from tidelog.gateway.gateway import Gateway
from tidelog.gateway.guard import LOOPBACK_NAMES
from tidelog.gateway.limits import CONNECTIONS_MAX, HEAD_MAX_BYTES, HEAD_WITHIN_S, KEEP_ALIVE_S, STOP_WITHIN_S
from tidelog.gateway.protocol import Connection
from tidelog.logger import Logger

BACKLOG = 1024
SWEEP_S = 1.0
OWN_DESCRIPTORS = 256  # beside connections: the broker's, modules, pipes
EVERY_ADDRESS = {"0.0.0.0", "::"}
LISTEN_ADVICE = {
    errno.EADDRINUSE: "stop what uses the port, or give another with --listen HOST:PORT",
    errno.EACCES: "a port below 1024 needs root; give another with --listen HOST:PORT",
}


class Settings(NamedTuple):
    hosts: tuple[str, ...] = ()  # names that the gateway goes by, beside the loopback ones and what it listens on
    parent: int | None = None  # a descriptor whose end is the parent's
    certificate: str | None = None  # a PEM file; with it, HTTPS
    key: str | None = None  # a PEM file, where the certificate's has no key in it
    authorities: str | None = None  # a PEM file; clients' certificates of these are asked for
    demands_certificate: bool = False


def listen(where: HttpListener) -> list[socket.socket]:
    """On one address, and on the other loopback too: many systems resolve localhost to ::1 first."""
    sockets = [_listen_on(where.host, where.port)]
    if where.host in ("127.0.0.1", "localhost"):
        with suppress(ListenError):
            sockets.append(_listen_on("::1", sockets[0].getsockname()[1]))
    return sockets


def inherited(descriptors: Sequence[int]) -> list[socket.socket]:
    return [socket.socket(fileno=descriptor) for descriptor in descriptors]


def serve(gateway: Gateway, sockets: list[socket.socket], logger: Logger, settings: Settings) -> None:
    """Returns when the last request is answered or its time is up."""
    for one in sockets:
        # What was written has been checked; these may have been handed over by anybody.
        host, port = one.getsockname()[:2]
        HttpListener(host, port, "http").check(gateway.login)
        # Connections take it over. Head and body of an answer are two writes: without it the second waits 40 ms for the
        # client's acknowledgement, and asyncio sets it only on sockets that were made with IPPROTO_TCP.
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _raise_open_files_limit()
    _log_by(logger)
    own = {one.getsockname()[0] for one in sockets} - EVERY_ADDRESS
    names = LOOPBACK_NAMES | own | {name.lower() for name in settings.hosts}
    asyncio.run(_serve(gateway, sockets, logger, settings, names))


async def _serve(
    gateway: Gateway, sockets: list[socket.socket], logger: Logger, settings: Settings, hosts: frozenset[str]
) -> None:
    app = GatewayApp(gateway, logger, hosts)
    server = _Server(_config(app, settings))
    loop = asyncio.get_running_loop()

    def stop() -> None:
        gateway.ending.set()
        server.should_exit = True

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
    if settings.parent is not None:
        loop.add_reader(settings.parent, _watch_parent, loop, settings.parent, stop)
    sweeping = loop.create_task(_sweep(server))
    addresses = ",".join(str(Address(*one.getsockname()[:2])) for one in sockets)
    logger.info("gateway ready", address=addresses, bootstrap=gateway.bootstrap, login=gateway.login)
    try:
        await server.serve(sockets)
    finally:
        sweeping.cancel()
        app.close()
        gateway.close()
    logger.info("gateway stopped")


def _watch_parent(loop: asyncio.AbstractEventLoop, descriptor: int, stop: Any) -> None:
    if not os.read(descriptor, 4096):
        loop.remove_reader(descriptor)
        stop()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours: uvicorn would raise them once more at the end, and a stop would look like a crash."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, with an end to TLS handshakes that do not come on: it leaves them a minute."""
        config, loop = self.config, asyncio.get_running_loop()
        await self.lifespan.startup()
        made = partial(Connection, config=config, server_state=self.server_state, app_state=self.lifespan.state)
        patience_s = HEAD_WITHIN_S if config.ssl is not None else None
        self.servers = [
            await loop.create_server(made, sock=one, ssl=config.ssl, backlog=BACKLOG, ssl_handshake_timeout=patience_s)
            for one in sockets or ()
        ]
        self.started = True


def _config(app: GatewayApp, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        loop="asyncio",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_WITHIN_S,
        h11_max_incomplete_event_size=HEAD_MAX_BYTES,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
        ssl_ca_certs=settings.authorities,
        ssl_cert_reqs=_certificates_wanted(settings),
    )


def _certificates_wanted(settings: Settings) -> int:
    if settings.authorities is None:
        return ssl.CERT_NONE
    return ssl.CERT_REQUIRED if settings.demands_certificate else ssl.CERT_OPTIONAL


async def _sweep(server: uvicorn.Server) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_S)
        for connection in list(server.server_state.connections):
            assert isinstance(connection, Connection)
            connection.sweep(loop.time())


def _listen_on(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1" if host == "localhost" else host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        advice = LISTEN_ADVICE.get(error.errno or 0, "give an address of this machine with --listen HOST:PORT")
        where = Address(host, port)
        raise ListenError(f"cannot listen on {where}: {(error.strerror or '').lower()}; {advice}") from error
    return listening


def _raise_open_files_limit() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + OWN_DESCRIPTORS
    if soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


def _log_by(logger: Logger) -> None:
    """What uvicorn and asyncio have to say, as lines of ours. Their lines about bad requests are left out: the client
    is told, and whoever sends such could fill the log.
    """

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info is not None or record.levelno >= logging.ERROR:
                logger.error("fault", where=record.name, error=self.format(record))
            else:
                logger.debug(record.getMessage(), where=record.name)

    logging.basicConfig(handlers=[Handler()], level=logging.WARNING, force=True)
