"""The open connections, and what they share: turns to send, memory for requests, and the patience for silent ones.

Rules:
- Replies that become ready in one event leave in one send a connection: `flush_soon` puts it on a list, and whoever
  had the loop (a readable socket, a commit) has the list flushed when it is done.
- Who waits for memory gets it in the order in which it came. Meanwhile, who holds some for a request that does not come
  on loses it.
- A connection goes when it has said nothing for `connections.max.idle.ms`, or when its session is over.

It is the `Server` that a connection knows (`connection.Server`). Limits in all and by address are asked for by whoever
accepts (`listeners`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.buffers import BufferPool
from tidelog.broker.connection import Connection
from tidelog.broker.dispatch import Dispatch
from tidelog.broker.transport import Transport

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.loop import Loop
    from tidelog.logger import Logger

IDLE_SWEEP_S = 30.0
SLOW_LOOK_S = 1.0
NEVER = -1
RETAINED_BUFFER_BYTES = 24 << 20


class Connections:
    def __init__(self, broker: Broker, loop: Loop, logger: Logger, fault: Callable[[BaseException], None]) -> None:
        self.broker = broker
        self.fault = fault
        self.dispatch = Dispatch()
        self.pool = BufferPool(broker.config.int("queued.max.request.bytes"), RETAINED_BUFFER_BYTES)
        self.pool.on_room = self._room_came
        self.frame_bytes_max = broker.config.int("socket.request.max.bytes")
        self._loop = loop
        self._logger = logger
        self._open: dict[Connection, None] = {}
        self._by_host: dict[str, int] = {}
        self._to_flush: list[Connection] = []
        self._flush_queued = False
        self._wanting_room: deque[Connection] = deque()
        self._giving_room = False
        self._looking_for_slow = False

    def __iter__(self) -> Iterator[Connection]:
        """As they are now: whoever looks at one may close it."""
        return iter(list(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def open(self, transport: Transport, peer_host: str, listener: tuple[str, int]) -> Connection:
        connection = Connection(self, transport, peer_host, listener)
        connection.last_active = self._loop.time()
        self._open[connection] = None
        self._by_host[peer_host] = self._by_host.get(peer_host, 0) + 1
        self.broker.counters.opened += 1
        self.broker.counters.connections += 1
        self.watch_readable(connection, True)
        return connection

    def has_room_for(self, peer_host: str) -> bool:
        by_host = self._by_host.get(peer_host, 0)
        config = self.broker.config  # the present one: these two may be altered while the broker runs
        if len(self._open) < config.int("max.connections") and by_host < config.int("max.connections.per.ip"):
            return True
        self._logger.warning("connection refused", peer=peer_host, connections=len(self._open), from_peer=by_host)
        self.broker.counters.refused += 1
        return False

    def drain(self) -> None:
        """Applies what the committer has done, and sends all replies that it lets go."""
        self._flush_queued = True
        self.broker.drain()
        self._flush()

    # Who is silent, or nobody any more -----------------------------------------------------------------------------

    def sweep_soon(self) -> None:
        self._loop.call_later(IDLE_SWEEP_S, self._sweep_idle)

    def _sweep_idle(self) -> None:
        """Closes connections that have said nothing for long, or do not read what they asked for."""
        idle_ms = self.broker.config.int("connections.max.idle.ms")
        oldest = self._loop.time() - idle_ms / 1000
        for connection in self if idle_ms != NEVER else ():
            if connection.last_active < oldest and not connection.waits_for_us:
                connection.close("idle")
        self.sweep_sessions()
        self.sweep_soon()

    def sweep_sessions(self) -> None:
        for connection in self:
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

    def unmute_later(self, connection: Connection, delay_s: float) -> None:
        self._loop.call_later(delay_s, connection.unmute)

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
            for connection in [one for one in self._open if one.is_slow(now)]:
                connection.close("its request came too slowly while others waited for memory")
            self._loop.call_later(SLOW_LOOK_S, self._look_for_slow)

    def closed(self, connection: Connection, reason: str | None) -> None:
        if self._open.pop(connection, False) is None:
            self.broker.counters.connections -= 1
        if connection.session is not None:
            connection.session.ended()
        self.broker.connection_ended(connection)
        left = self._by_host.get(connection.peer_host, 1) - 1
        if left:
            self._by_host[connection.peer_host] = left
        else:
            self._by_host.pop(connection.peer_host, None)
        if reason is not None:
            self._logger.info("connection ended", peer=connection.peer_host, why=reason)
