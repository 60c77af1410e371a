"""The shell: sockets, signals, timers and threads around a broker that knows none of them.

Everything here runs on one loop (`loop`), whose thread owns all broker state. What blocks (appends, syncs, cold reads)
runs in the committer's threads and in a small pool, and comes back to the loop as a call.

    states        set by
    starting      `serve`: the data folder is locked, state is folded, sockets are bound
    serving       the first accept is possible; "ready on HOST:PORT" is printed, then where data and HTTP are
    stopping      SIGTERM, SIGINT or `stop`: no accepts; fetches that wait are answered, the rest has `STOP_WITHIN_S`
    stopped       everything is synced, the folder is marked clean (unless its disk refuses) and unlocked

Who may come in is `listeners`, what those who are in share is `connections`. Limits are named in `broker.settings`:
connections in all and by address, bytes of requests in memory, bytes of one frame.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.broker.broker import Broker
from tidelog.broker.compute_pool import Beside
from tidelog.broker.connection import Connection
from tidelog.broker.connections import Connections
from tidelog.broker.listeners import Listeners, raise_open_files_limit
from tidelog.broker.loop import Loop
from tidelog.broker.transport import Transport
from tidelog.config import SASL_PLAINTEXT, BrokerConfig, Endpoint
from tidelog.errors import DataFolderError, UsageError
from tidelog.log.files import Files, RealFiles
from tidelog.log.folder import FORMAT
from tidelog.logger import Logger

if TYPE_CHECKING:
    from tidelog.broker.access.delegation import Delegation
    from tidelog.broker.access.session import ForGateway
    from tidelog.broker.access.shell import Access
    from tidelog.broker.activation import Activation, Reach

STOP_WITHIN_S = 10.0
STOP_LOOK_S = 0.02
REVOKED_WITHIN_S = 1.0
PARENT_BYTES = 4096
ANONYMOUS = "ANONYMOUS"
GATEWAY = "TIDELOG_GATEWAY"  # the listener that the broker has for its own HTTP server, where a login is demanded
PLAIN = "PLAIN"
PLAIN_IN_THE_OPEN = "PLAIN sends passwords as they are and this listener encrypts nothing; use SASL_SSL, or SCRAM alone"
GARBAGE_THRESHOLD = 20_000  # objects that come and stay before cycles are searched for
FOLDER_ADVICE = {
    errno.ENOENT: "make the folder that it is to be in, or give another with --data",
    errno.EEXIST: "it is a file; give a folder with --data",
    errno.ENOTDIR: "it lies under a file; give a folder with --data",
    errno.EACCES: "change its owner, or give another with --data",
    errno.ENOSPC: "free some space, or give a folder on another disk with --data",
}


class Server:
    """Accepts connections for one broker. Everything but `stop_soon` runs on the loop thread."""

    def __init__(self, config: BrokerConfig, logger: Logger, files: Files | None = None, *, http: bool = False) -> None:
        """`files` is the disk; None is the operating system's. Tests give one that breaks. `http`: as settings say."""
        files = files if files is not None else RealFiles()
        self._loop = Loop(self.fault)
        self._logger = logger
        self._config = config
        self.broker = Broker(config, self._loop, logger, self._commit_ready, self._fatal, files)
        self._connections = Connections(self.broker, self._loop, logger, self.fault)
        self._listeners = Listeners(self.broker, self._loop, logger, self._connections, self._connect)
        self.broker.beside = self._checking = Beside("tidelog-keys", self._loop, self.fault)
        self._shaking = Beside("tidelog-handshake", self._loop, self.fault)
        self._logins = Beside("tidelog-login", self._loop, self.fault)
        self.broker.folds.on_access = self._access_began
        self._stopping = False
        self.failed: BaseException | None = None
        self.http: Activation | None = None
        if http and config.text("tidelog.http.listener") != "-":
            from tidelog.broker.activation import Activation

            self.http = Activation(config, self._loop, logger, self._reach)
        self._login = False
        self._gateway_port = 0
        self._delegation: Delegation | None = None

    # The life of the server ----------------------------------------------------------------------------------------

    def start(self) -> None:
        try:
            self._start()
        except BaseException:
            self._loop.close()
            raise
        self._connections.sweep_soon()

    def _start(self) -> None:
        try:
            self.broker.start()
        except OSError as error:
            path, advice = self._config.texts("log.dirs")[0], FOLDER_ADVICE.get(error.errno or 0)
            why = f"the data folder {path} cannot be used: {(error.strerror or str(error)).lower()}"
            raise DataFolderError(f"{why}; {advice}" if advice else why) from error
        try:
            self._bind()
            self._bind_http()
        except BaseException:
            self._listeners.close()
            self.broker.stop()
            raise

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return self._listeners.addresses

    def where(self, *, is_new: bool) -> str:
        """For who has started it: the address for clients first, on a line of its own, then data and HTTP. One text:
        a program may read the first line and close its end.
        """
        lines = [f"ready on {_address(*self.addresses[0])}"]
        folder = Path(self._config.texts("log.dirs")[0]).resolve()
        lines.append(f"data in {folder}{', which is new' if is_new else ''}")
        if self.http is not None and self.http.addresses:
            scheme = "https" if self.http.tls else "http"
            lines.append(f"HTTP on {scheme}://{_address(*self.http.addresses[0])}")
        return "\n".join(lines)

    def run(self) -> bool:
        """Serves until stopped; then everything acked is on disk. Says whether the folder could be marked clean."""
        try:
            self._loop.run()
        finally:
            self._listeners.close()
            for connection in self._connections:
                connection.close(None)
            if self.http is not None:
                self.http.close()
            try:
                self._loop.finish_work()
                clean = self.broker.stop(clean=self.failed is None)
                self._checking.stop()
                self._shaking.stop()
                self._logins.stop()
            finally:
                self._loop.close()
        return clean

    def _bind_http(self) -> None:
        if self.http is None:
            return
        self._login = any(endpoint.sasl or endpoint.tls for endpoint in self._config.endpoints())
        self.http.bind(self._login)
        if self._login and self.http.addresses:
            # Where others must log in, so must those who come by HTTP. Nothing of it leaves the machine: no TLS.
            self._gateway_port = self._listeners.listen_on(
                Endpoint(GATEWAY, "127.0.0.1", 0, SASL_PLAINTEXT), required=True
            )
            self.addresses.pop()
            self._make_delegation()

    def _make_delegation(self) -> None:
        """What the HTTP server is believed for when it has seen a certificate; anew with every change of settings."""
        self._delegation = None
        if self._login and self.http is not None and self.http.asks_for_certificates:
            from tidelog.broker.access.delegation import make_delegation

            self._delegation = make_delegation(self._config.text("ssl.principal.mapping.rules"))

    def _reach(self) -> Reach:
        from tidelog.broker.activation import Reach

        if self._login:
            mechanisms = self._config.texts("sasl.enabled.mechanisms")
            mechanism = next((name for name in mechanisms if name != "PLAIN"), "PLAIN")
            secret = self._delegation.secret if self._delegation is not None else None
            return Reach(f"127.0.0.1:{self._gateway_port}", mechanism, secret)
        host, port = self.addresses[0]
        if host in ("", "0.0.0.0", "::"):
            host = "127.0.0.1"
        return Reach(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", None)

    def handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.handle_signal(number, partial(self._stop, signal.Signals(number).name))

    def reload_on_hangup(self, read: Callable[[], BrokerConfig]) -> None:
        """SIGHUP reads settings and certificates again (`reloading`)."""
        self._loop.handle_signal(signal.SIGHUP, partial(self.reload, read))

    def reload(self, read: Callable[[], BrokerConfig]) -> None:
        from tidelog.broker.reloading import reload

        before = self.broker.config
        https = self.http is not None and self.http.tls
        self._config = reload(self.broker, self._listeners.handshakes, self._logger, read, https=https)
        if self.http is not None and self._config is not before:
            self.http.renew(self._config)
            self._make_delegation()

    def end_with_parent(self, descriptor: int) -> None:
        """Stops when the other end of this pipe closes: a broker that was started by a program does not outlive it."""
        self._loop.add_reader(descriptor, partial(self._look_at_parent, descriptor))

    def _look_at_parent(self, descriptor: int) -> None:
        if not os.read(descriptor, PARENT_BYTES):  # what is said is not an end
            self._loop.remove_reader(descriptor)
            self._stop("parent ended")

    def stop_soon(self) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(partial(self._stop, "asked to"))

    def _stop(self, why: str) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._logger.info("stopping", why=why, connections=len(self._connections))
        if self.http is not None:
            self.http.stop()
        self._listeners.stop()
        for connection in self._connections:
            connection.end()
        self.broker.answer_waiting()
        self._stop_when_idle(time.monotonic() + STOP_WITHIN_S / 2)

    def _stop_when_idle(self, deadline: float) -> None:
        busy = sum(not connection.idle for connection in self._connections)
        if busy and time.monotonic() < deadline:
            self._loop.call_later(STOP_LOOK_S, partial(self._stop_when_idle, deadline))
            return
        if busy:
            self._logger.warning("stopped with requests unanswered", connections=busy)
        # A moment for the last replies to be read: a socket closed over unread requests takes back what it has sent.
        self._loop.call_later(STOP_LOOK_S if self._connections else 0, self._loop.stop)

    # Connecting ----------------------------------------------------------------------------------------------------

    def _bind(self) -> None:
        endpoints = self._config.endpoints()
        mechanisms = self._config.texts("sasl.enabled.mechanisms")
        if any(endpoint.sasl or endpoint.tls for endpoint in endpoints):
            _ = self.broker.access  # what the first client would wait for
        if any(endpoint.tls for endpoint in endpoints):
            from tidelog.broker.tls import Handshakes, server_context

            self._listeners.handshakes = Handshakes(
                server_context(self._config), self._loop, self._shaking, lambda: self.broker.config, self._logger
            )
        for endpoint in endpoints:
            self._listeners.listen(endpoint)
            if endpoint.sasl and not endpoint.tls and not endpoint.loopback and PLAIN in mechanisms:
                self._logger.warning("passwords unprotected", listener=endpoint.name, why=PLAIN_IN_THE_OPEN)
        if any(endpoint.sasl for endpoint in endpoints) and not self.broker.access.state.users:
            self._logger.warning("nobody can log in", why=self._how_to_log_in(endpoints))
        if not self._listeners.addresses:
            raise UsageError("no listener could be bound; give --listen HOST:PORT")

    def _how_to_log_in(self, endpoints: list[Endpoint]) -> str:
        """While a broker runs, its folder is its own: the first user is made before, or where no login is asked for."""
        open_to = next((one for one in endpoints if not one.sasl), None)
        if open_to is not None:
            return f"no user exists yet; add the first by `tidelog users add NAME` at the listener {open_to.name}"
        folder = self._config.texts("log.dirs")[0]
        return f"no user exists yet; stop the broker, then add the first by `tidelog users add NAME --data {folder}`"

    def _connect(self, transport: Transport, peer_host: str, endpoint: Endpoint, local: tuple[str, int]) -> Connection:
        listener = local if endpoint.name == GATEWAY else self._config.advertised(*local, endpoint.name)
        connection = self._connections.open(transport, peer_host, listener)
        if endpoint.sasl or endpoint.tls or self.broker.guards_everybody:
            user = getattr(transport, "user", None) or ANONYMOUS
            gateway = self._for_gateway() if endpoint.name == GATEWAY else None
            session = self.broker.access.session(connection, sasl=endpoint.sasl, user=user, gateway=gateway)
            connection.session = session
            if user != ANONYMOUS and not endpoint.sasl and not session.admit(user):
                connection.close(f"user {user} has as many connections as tidelog.max.connections.per.user allows")
        return connection

    def _for_gateway(self) -> ForGateway:
        from tidelog.broker.access.session import ForGateway

        return ForGateway(self._delegation, host_known=self.http is not None and self.http.loopback)

    # What access asks for ------------------------------------------------------------------------------------------

    def _access_began(self, access: Access) -> None:
        access.beside = self._logins
        access.on_change = self._access_changed

    def _access_changed(self) -> None:
        """A quota counts for those who are connected already; who is no longer a user gets a last answer and goes."""
        self._loop.call_later(REVOKED_WITHIN_S, self._connections.sweep_sessions)
        self.broker.rights_changed()
        if self.broker.guards_everybody:
            for connection in self._connections:
                if connection.session is None:
                    connection.session = self.broker.access.session(connection, sasl=False)

    # What the committer asks for -----------------------------------------------------------------------------------

    def _commit_ready(self) -> None:
        """From the committer's threads."""
        self._loop.call_soon_threadsafe(self._connections.drain)

    def fault(self, error: BaseException) -> None:
        """A fault of ours: said loudly, with the place, and survived."""
        from traceback import format_exception

        self.broker.counters.faults += 1
        self._logger.error("fault", error=repr(error), trace="".join(format_exception(error)))

    def _fatal(self, error: Exception) -> None:
        """The broker cannot go on; a restart may. Whoever runs it sees that it failed."""
        self.fault(error)
        self._logger.error("stopped", error=error)
        self.failed = error
        self._loop.stop()


def serve(
    config: BrokerConfig,
    *,
    ready: Callable[[Server], Any] | None = None,
    logger: Logger | None = None,
    read: Callable[[], BrokerConfig] | None = None,
) -> bool:
    """Runs a broker in this thread until SIGTERM or SIGINT. `ready` is called when produce works.

    `read` reads the settings again, on SIGHUP.
    False when it has stopped and the folder could not be marked clean: the log has said so, and why.
    """
    raise_open_files_limit()
    is_new = not Path(config.texts("log.dirs")[0], FORMAT).exists()
    server = Server(config, logger if logger is not None else Logger.from_config(config), http=True)
    server.start()
    server.handle_signals()
    if read is not None:
        server.reload_on_hangup(read)
    _collect_garbage_seldom()
    if ready is None:
        print(server.where(is_new=is_new), flush=True)
    else:
        ready(server)
    clean = server.run()
    if server.failed is not None:
        raise server.failed
    return clean


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _collect_garbage_seldom() -> None:
    """A request leaves no cycles behind, and by default every 700 objects are searched for some: 4 % of the loop when
    producing. Only in a process of our own: another program's collector is its own business.
    """
    import gc

    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)
