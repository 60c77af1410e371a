"""The shell: sockets, signals, timers and threads around a broker that knows none of them.

Everything here runs on one loop (`loop`), whose thread owns all broker state. What blocks (appends, syncs, cold reads)
runs in the committer's threads and in a small pool, and comes back to the loop as a call.

    states        set by
    starting      `serve`: the data folder is locked, state is folded, sockets are bound
    serving       the first accept is possible; the line "ready on HOST:PORT" is printed
    stopping      SIGTERM, SIGINT or `stop`: no accepts; fetches that wait are answered, the rest has `STOP_WITHIN_S`
    stopped       everything is synced, the folder is marked clean (unless its disk refuses) and unlocked

Limits are named in `broker.settings`: connections in all and by address, bytes of requests in memory, bytes of one
frame. Out of file descriptors, the server stops accepting for a second and says so in one line; connected clients
notice nothing.
"""

from __future__ import annotations

import errno
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.broker.beside import Beside
from tidelog.broker.broker import Broker
from tidelog.broker.buffers import BufferPool
from tidelog.broker.connection import Connection
from tidelog.broker.dispatch import Dispatch
from tidelog.broker.loop import Loop
from tidelog.broker.transport import PlainTransport, Transport
from tidelog.config import SASL_PLAINTEXT, BrokerConfig, Endpoint
from tidelog.errors import DataFolderError, ListenError, UsageError
from tidelog.log.files import Files, RealFiles
from tidelog.logger import Logger

if TYPE_CHECKING:
    from tidelog.broker.access.delegation import Delegation
    from tidelog.broker.access.session import ForGateway
    from tidelog.broker.access.shell import Access
    from tidelog.broker.activation import Activation, Reach
    from tidelog.broker.tls import Handshakes, TlsTransport

BACKLOG = 1024
ACCEPTS_PER_EVENT = 8  # who is connected waits for no more than these
ACCEPT_PAUSE_S = 1.0
HANDSHAKES_PAUSE_S = 0.02
STOP_WITHIN_S = 10.0
STOP_LOOK_S = 0.02
IDLE_SWEEP_S = 30.0
SLOW_LOOK_S = 1.0
REVOKED_WITHIN_S = 1.0
NEVER = -1
ANONYMOUS = "ANONYMOUS"
GATEWAY = "TIDELOG_GATEWAY"  # the listener that the broker has for its own HTTP server, where a login is demanded
PLAIN = "PLAIN"
PLAIN_IN_THE_OPEN = "PLAIN sends passwords as they are and this listener encrypts nothing; use SASL_SSL, or SCRAM alone"
OWN_DESCRIPTORS = 16  # open from the start: standard streams, the loop, the first log files
RETAINED_BUFFER_BYTES = 24 << 20
GARBAGE_THRESHOLD = 20_000  # objects that come and stay before cycles are searched for
LISTEN_ADVICE = {
    errno.EADDRINUSE: "stop what uses the port, or give another with --listen HOST:PORT",
    errno.EACCES: "a port below 1024 needs root; give another with --listen HOST:PORT",
}
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
        self.dispatch = Dispatch()
        self.pool = BufferPool(config.int("queued.max.request.bytes"), RETAINED_BUFFER_BYTES)
        self.pool.on_room = self._room_came
        self.frame_bytes_max = config.int("socket.request.max.bytes")
        self._connections: dict[Connection, None] = {}
        self._connections_max = connections_within(open_files_limit())
        self._by_host: dict[str, int] = {}
        self._to_flush: list[Connection] = []
        self._flush_queued = False
        self._wanting_room: deque[Connection] = deque()
        self._giving_room = False
        self._looking_for_slow = False
        self._sockets: list[socket.socket] = []
        self._handshakes: Handshakes | None = None
        self._shaking = Beside("tidelog-handshake", self._loop, self.fault)
        self._logins = Beside("tidelog-login", self._loop, self.fault)
        self.broker.on_access = self._access_began
        self._stopping = False
        self.failed: BaseException | None = None
        self.addresses: list[tuple[str, int]] = []
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
            self.broker.start()
        except OSError as error:
            path, advice = self._config.texts("log.dirs")[0], FOLDER_ADVICE.get(error.errno or 0)
            why = f"the data folder {path} cannot be used: {(error.strerror or str(error)).lower()}"
            raise DataFolderError(f"{why}; {advice}" if advice else why) from error
        try:
            self._bind()
            self._bind_http()
        except BaseException:
            for listening in self._sockets:
                listening.close()
            self.broker.stop()
            raise
        self._loop.call_later(IDLE_SWEEP_S, self._sweep_idle)

    def run(self) -> bool:
        """Serves until stopped; then everything acked is on disk. Says whether the folder could be marked clean."""
        try:
            self._loop.run()
        finally:
            for listening in self._sockets:
                listening.close()
            for connection in list(self._connections):
                connection.close(None)
            if self.http is not None:
                self.http.close()
            try:
                self._loop.finish_work()
                clean = self.broker.stop(clean=self.failed is None)
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
            self._gateway_port = self._listen_on(Endpoint(GATEWAY, "127.0.0.1", 0, SASL_PLAINTEXT), required=True)
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
        self._config = reload(self.broker, self._handshakes, self._logger, read, https=https)
        if self.http is not None and self._config is not before:
            self.http.renew(self._config)
            self._make_delegation()

    def end_with_parent(self, descriptor: int) -> None:
        """Stops when the other end of this pipe closes: a broker that was started by a program does not outlive it."""
        self._loop.add_reader(descriptor, partial(self._parent_gone, descriptor))

    def _parent_gone(self, descriptor: int) -> None:
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
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        if self._handshakes is not None:
            self._handshakes.end_all()
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

    # Accepting -----------------------------------------------------------------------------------------------------

    def _bind(self) -> None:
        endpoints = self._config.endpoints()
        if any(endpoint.sasl or endpoint.tls for endpoint in endpoints):
            _ = self.broker.access  # what the first client would wait for
        if any(endpoint.tls for endpoint in endpoints):
            from tidelog.broker.tls import Handshakes, server_context

            self._handshakes = Handshakes(
                server_context(self._config), self._loop, self._shaking, lambda: self.broker.config, self._logger
            )
        for endpoint in endpoints:
            self._listen(endpoint)
            if endpoint.sasl and not endpoint.tls and not endpoint.loopback and PLAIN in self._mechanisms():
                self._logger.warning("passwords unprotected", listener=endpoint.name, why=PLAIN_IN_THE_OPEN)
        if any(endpoint.sasl for endpoint in endpoints) and not self.broker.access.state.users:
            self._logger.warning("nobody can log in", why=self._how_to_log_in(endpoints))
        if not self._sockets:
            raise UsageError("no listener could be bound; give --listen HOST:PORT")

    def _how_to_log_in(self, endpoints: list[Endpoint]) -> str:
        """While a broker runs, its folder is its own: the first user is made before, or where no login is asked for."""
        open_to = next((one for one in endpoints if not one.sasl), None)
        if open_to is not None:
            return f"there are no users; `tidelog users add NAME` at the listener {open_to.name} makes the first"
        folder = self._config.texts("log.dirs")[0]
        return f"there are no users; stop the broker, then `tidelog users add NAME --data {folder}` makes the first"

    def _mechanisms(self) -> tuple[str, ...]:
        return self._config.texts("sasl.enabled.mechanisms")

    def _listen(self, endpoint: Endpoint) -> None:
        """Listens on one address, and on the other loopback too: many systems resolve localhost to ::1 first."""
        bound = self._listen_on(endpoint, required=True)
        if endpoint.host in ("127.0.0.1", "localhost"):
            self._listen_on(endpoint._replace(host="::1", port=bound), required=False)

    def _listen_on(self, endpoint: Endpoint, required: bool) -> int:
        _, host, port, _ = endpoint
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1" if host == "localhost" else host, port))
        except OSError as error:
            listening.close()
            if not required:
                return port
            advice = LISTEN_ADVICE.get(error.errno or 0, "give an address of this machine with --listen HOST:PORT")
            raise ListenError(f"cannot listen on {host}:{port}: {(error.strerror or '').lower()}; {advice}") from error
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._sockets.append(listening)
        self._loop.add_reader(listening.fileno(), partial(self._accept, listening, endpoint))
        self.addresses.append((host, listening.getsockname()[1]))
        return int(listening.getsockname()[1])

    def _accept(self, listening: socket.socket, endpoint: Endpoint) -> None:
        for _ in range(ACCEPTS_PER_EVENT):
            if endpoint.tls and self._handshakes is not None and not self._handshakes.make_room():
                self._accept_later(listening, endpoint, HANDSHAKES_PAUSE_S)
                return
            try:
                connected, peer = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self._pause_accepting(listening, endpoint, str(error))
                return
            self._admit(connected, peer[0], endpoint)
            if len(self._connections) + self._under_way >= self._connections_max:
                self._pause_accepting(listening, endpoint, "no descriptors to spare")
                return

    @property
    def _under_way(self) -> int:
        return len(self._handshakes) if self._handshakes is not None else 0

    def _pause_accepting(self, listening: socket.socket, endpoint: Endpoint, why: str) -> None:
        self._logger.warning("accepting paused", why=why, connections=len(self._connections))
        self._accept_later(listening, endpoint, ACCEPT_PAUSE_S)

    def _accept_later(self, listening: socket.socket, endpoint: Endpoint, delay_s: float) -> None:
        self._loop.remove_reader(listening.fileno())

        def again() -> None:
            if not self._stopping:
                self._loop.add_reader(listening.fileno(), partial(self._accept, listening, endpoint))

        self._loop.call_later(delay_s, again)

    def _admit(self, connected: socket.socket, peer_host: str, endpoint: Endpoint) -> None:
        """A connection begins, or with TLS a handshake that may become one."""
        if not self._has_room_for(peer_host):
            connected.close()
            return
        host, port = connected.getsockname()[:2]
        local = str(host), int(port)
        send_bytes = self._config.int("socket.send.buffer.bytes")
        if send_bytes > 0:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        if self._handshakes is not None and endpoint.tls:
            self._handshakes.begin(connected, endpoint.sasl, partial(self._shaken, peer_host, endpoint, local))
            return
        self._connect(PlainTransport(connected), peer_host, endpoint, local)

    def _has_room_for(self, peer_host: str) -> bool:
        by_host = self._by_host.get(peer_host, 0)
        config = self.broker.config  # the present one: these two may be altered while the broker runs
        if len(self._connections) < config.int("max.connections") and by_host < config.int("max.connections.per.ip"):
            return True
        self._logger.warning(
            "connection refused", peer=peer_host, connections=len(self._connections), from_peer=by_host
        )
        self.broker.counters.refused += 1
        return False

    def _shaken(self, peer_host: str, endpoint: Endpoint, local: tuple[str, int], tls: TlsTransport) -> None:
        """Asked once more whether there is room: handshakes that are under way are no connections yet."""
        if self._stopping or not self._has_room_for(peer_host):
            tls.close()
            return
        connection = self._connect(tls, peer_host, endpoint, (tls.asked_for or local[0], local[1]))
        if tls.pending():
            self.receive_soon(connection)

    def _connect(self, transport: Transport, peer_host: str, endpoint: Endpoint, local: tuple[str, int]) -> Connection:
        listener = local if endpoint.name == GATEWAY else self._config.advertised(*local, endpoint.name)
        connection = Connection(self, transport, peer_host, listener)
        connection.last_active = self._loop.time()
        self._connections[connection] = None
        self._by_host[peer_host] = self._by_host.get(peer_host, 0) + 1
        if endpoint.sasl or endpoint.tls or self.broker.guards_everybody:
            user = getattr(transport, "user", None) or ANONYMOUS
            gateway = self._for_gateway() if endpoint.name == GATEWAY else None
            connection.session = self.broker.access.session(connection, sasl=endpoint.sasl, user=user, gateway=gateway)
        self.broker.counters.opened += 1
        self.broker.counters.connections += 1
        self.watch_readable(connection, True)
        return connection

    def _for_gateway(self) -> ForGateway:
        from tidelog.broker.access.session import ForGateway

        return ForGateway(self._delegation, host_known=self.http is not None and self.http.loopback)

    # What access asks for ------------------------------------------------------------------------------------------

    def _access_began(self, access: Access) -> None:
        access.beside = self._logins
        access.on_change = self._access_changed

    def _access_changed(self) -> None:
        """A quota counts for those who are connected already; who is no user any more gets a last answer and goes."""
        self._loop.call_later(REVOKED_WITHIN_S, self._sweep_sessions)
        self.broker.rights_changed()
        if self.broker.guards_everybody:
            for connection in self._connections:
                if connection.session is None:
                    connection.session = self.broker.access.session(connection, sasl=False)

    def unmute_later(self, connection: Connection, delay_s: float) -> None:
        self._loop.call_later(delay_s, connection.unmute)

    def _sweep_idle(self) -> None:
        """Closes connections that have said nothing for long, or do not read what they asked for."""
        idle_ms = self._config.int("connections.max.idle.ms")
        oldest = self._loop.time() - idle_ms / 1000
        for connection in list(self._connections) if idle_ms != NEVER else ():
            if connection.last_active < oldest and not connection.waits_for_us:
                connection.close("idle")
        self._sweep_sessions()
        self._loop.call_later(IDLE_SWEEP_S, self._sweep_idle)

    def _sweep_sessions(self) -> None:
        for connection in list(self._connections):
            over = connection.session.why_over() if connection.session is not None else None
            if over is not None:
                connection.close(over)

    # What a connection asks for (see connection.Server) ---------------------------------------------------------------

    def watch_readable(self, connection: Connection, on: bool) -> None:
        if on:
            self._loop.add_reader(connection.transport.fileno(), partial(self._readable, connection))
        else:
            self._loop.remove_reader(connection.transport.fileno())

    def watch_writable(self, connection: Connection, on: bool) -> None:
        if on:
            self._loop.add_writer(connection.transport.fileno(), partial(self._writable, connection))
        else:
            self._loop.remove_writer(connection.transport.fileno())

    def _readable(self, connection: Connection) -> None:
        self._flush_queued = True
        connection.on_readable(self._loop.time())
        self._flush()

    def _writable(self, connection: Connection) -> None:
        connection.on_writable(self._loop.time())

    def receive_soon(self, connection: Connection) -> None:
        self._loop.call_soon(partial(self._readable, connection))

    def flush_soon(self, connection: Connection) -> None:
        """Replies that become ready in one event leave in one send."""
        if not connection.flush_queued:
            connection.flush_queued = True
            self._to_flush.append(connection)
            if not self._flush_queued:
                self._flush_queued = True
                self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_queued = False
        waiting, self._to_flush = self._to_flush, []
        for connection in waiting:
            connection.flush_queued = False
            if not connection.closed:
                connection.flush()

    def wait_for_room(self, connection: Connection) -> None:
        self._wanting_room.append(connection)
        self._room_came()
        if not self._looking_for_slow:
            self._looking_for_slow = True
            self._loop.call_later(SLOW_LOOK_S, self._look_for_slow)

    def _room_came(self) -> None:
        if self._wanting_room and not self._giving_room:
            self._giving_room = True
            self._loop.call_soon(self._give_room)

    def _give_room(self) -> None:
        """In the order in which they came: else a large request would wait as long as there are small ones."""
        self._giving_room = False
        waiting = self._wanting_room
        while waiting and (waiting[0].closed or waiting[0].room_came()):
            waiting.popleft()

    def _look_for_slow(self) -> None:
        """As long as somebody waits for memory: who holds some for a request that does not come on loses it."""
        self._looking_for_slow = bool(self._wanting_room)
        if self._looking_for_slow:
            now = self._loop.time()
            for connection in [one for one in self._connections if one.is_slow(now)]:
                connection.close("its request came too slowly while others waited for memory")
            self._loop.call_later(SLOW_LOOK_S, self._look_for_slow)

    def closed(self, connection: Connection, reason: str | None) -> None:
        if self._connections.pop(connection, False) is None:
            self.broker.counters.connections -= 1
        left = self._by_host.get(connection.peer_host, 1) - 1
        if left:
            self._by_host[connection.peer_host] = left
        else:
            self._by_host.pop(connection.peer_host, None)
        if reason is not None:
            self._logger.info("connection ended", peer=connection.peer_host, why=reason)

    # What the committer asks for -----------------------------------------------------------------------------------

    def _commit_ready(self) -> None:
        """From the committer's threads."""
        self._loop.call_soon_threadsafe(self._drain)

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

    def _drain(self) -> None:
        self._flush_queued = True
        self.broker.drain()
        self._flush()


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
    server = Server(config, logger if logger is not None else Logger.from_config(config), http=True)
    server.start()
    server.handle_signals()
    if read is not None:
        server.reload_on_hangup(read)
    _collect_garbage_seldom()
    if ready is None:
        host, port = server.addresses[0]
        print(f"ready on [{host}]:{port}" if ":" in host else f"ready on {host}:{port}", flush=True)
    else:
        ready(server)
    clean = server.run()
    if server.failed is not None:
        raise server.failed
    return clean


def _collect_garbage_seldom() -> None:
    """A request leaves no cycles behind, and by default every 700 objects are searched for some: 4 % of the loop when
    producing. Only in a process of our own: another program's collector is its own business.
    """
    import gc

    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)


def raise_open_files_limit() -> None:
    """To what the system allows this user: sockets and segments are files, and the usual limit is 1024."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def open_files_limit() -> int:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit if limit != resource.RLIM_INFINITY else 1 << 20


def connections_within(limit: int) -> int:
    """How many connections leave descriptors for what the broker itself must open: segments, indexes, modules."""
    return max(1, limit - limit // 4 - OWN_DESCRIPTORS)
