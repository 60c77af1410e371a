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
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import uvicorn

from tidelog.client.address import Address
from tidelog.errors import ConfigError, ListenError
from tidelog.gateway.app import App
from tidelog.gateway.gateway import Gateway
from tidelog.gateway.guard import LOOPBACK_NAMES
from tidelog.gateway.limits import CONNECTIONS_MAX, HEAD_MAX_BYTES, KEEP_ALIVE_S, STOP_WITHIN_S
from tidelog.gateway.protocol import Connection
from tidelog.logger import Logger

BACKLOG = 1024
SWEEP_S = 1.0
OWN_DESCRIPTORS = 256  # beside connections: the broker's, modules, pipes
LISTEN_ADVICE = {
    errno.EADDRINUSE: "stop what uses the port, or give another with --listen HOST:PORT",
    errno.EACCES: "a port below 1024 needs root; give another with --listen HOST:PORT",
}


class Settings(NamedTuple):
    hosts: tuple[str, ...] = ()  # names that the gateway goes by, beside the loopback ones and what it listens on
    parent: int | None = None  # a descriptor whose end is the parent's
    certificate: str | None = None
    key: str | None = None


def listen(address: Address) -> list[socket.socket]:
    """On one address, and on the other loopback too: many systems resolve localhost to ::1 first."""
    sockets = [_listen_on(address.host, address.port)]
    if address.host in ("127.0.0.1", "localhost"):
        with suppress(ListenError):
            sockets.append(_listen_on("::1", sockets[0].getsockname()[1]))
    return sockets


def inherited(descriptors: Sequence[int]) -> list[socket.socket]:
    return [socket.socket(fileno=descriptor) for descriptor in descriptors]


def serve(gateway: Gateway, sockets: list[socket.socket], logger: Logger, settings: Settings) -> None:
    """Returns when the last request is answered or its time is up."""
    check_reach(sockets, gateway.login)
    _raise_open_files_limit()
    _log_by(logger)
    names = {name.lower() for name in (*settings.hosts, *(one.getsockname()[0] for one in sockets))}
    asyncio.run(_serve(gateway, sockets, logger, settings, LOOPBACK_NAMES | names))


def check_reach(sockets: Sequence[socket.socket], login: bool) -> None:
    for one in sockets:
        host = one.getsockname()[0]
        if not login and not is_loopback(host):
            raise ConfigError(
                f"{host} is reached from other machines and the broker has no authentication; listen on 127.0.0.1, or"
                " have the broker demand a login"
            )


def is_loopback(host: str) -> bool:
    return host.startswith("127.") or host in ("::1", "::ffff:127.0.0.1")


async def _serve(
    gateway: Gateway, sockets: list[socket.socket], logger: Logger, settings: Settings, hosts: frozenset[str]
) -> None:
    app = App(gateway, logger, hosts)
    server = _Server(_config(app, settings))
    loop = asyncio.get_running_loop()

    def stop() -> None:
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


def _config(app: App, settings: Settings) -> uvicorn.Config:
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
    )


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
