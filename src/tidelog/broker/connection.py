"""One client's connection: bytes to requests, replies to bytes, in order.

Rules:
- Requests are handled as they arrive; replies leave in the order of their requests, as the protocol demands. A reply
  that is not ready holds back those behind it.
- Replies that are ready together leave together: the server calls `flush` once per event, not once per request.
- A connection is *crowded* when `MAX_IN_FLIGHT` requests wait for replies, or requests of more than `MAX_HELD_BYTES`
  (but for Produce), or `MAX_UNSENT_BYTES` of replies for the socket: then nothing is handled, not even what has come,
  until some have gone. A client that sends without reading slows down only itself.
- A frame that is malformed, too large or of an unknown API ends the connection; the log line says who and why. Only
  Produce may have more than `MAX_OTHER_BYTES`: of the rest, a few bytes can become many objects.
- A fault of ours ends the connection too: its client tries again, and everybody else goes on.

    states       set by
    open         the constructor
    paused       crowded, muted, or no room in the buffer pool; the reader is off until `resume`
    muted        `mute`: a password is being checked, or a quota or an overloaded topic makes the client rest; nothing
                 is handled
    ending       the server is stopping: what has come is answered, and nothing more is read
    closed       end of stream, an error, or the server stopping; nothing is sent or handled any more
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.broker.buffers import Buffer, BufferPool
from tidelog.broker.call import Call, Repeatable
from tidelog.broker.dispatch import FETCH, PRODUCE, Dispatch
from tidelog.broker.inbound import Inbound
from tidelog.broker.outbound import Outbound
from tidelog.broker.overload.policy import Credit
from tidelog.broker.transport import Transport
from tidelog.errors import MalformedMessage
from tidelog.wire.frame import parse_request_header

if TYPE_CHECKING:
    from tidelog.broker.access.session import Session

MAX_IN_FLIGHT = 512
NONE_IN_FLIGHT = 0  # of a connection that rests
MAX_UNSENT_BYTES = 1 << 20
MAX_HELD_BYTES = 1 << 20
MAX_OTHER_BYTES = 8 << 20
MAX_REPEATED_BYTES = 4096  # of a request that is remembered, because the next may be the same
RECEIVES_PER_EVENT = 4

_VERSION_AND_CORRELATION = Struct(">hi")


class Server(Protocol):
    """What a connection needs of its server: the loop's readers and writers, and shared memory."""

    pool: BufferPool
    dispatch: Dispatch
    broker: Any
    frame_bytes_max: int

    def watch_writable(self, connection: Connection, on: bool) -> None: ...

    def watch_readable(self, connection: Connection, on: bool) -> None: ...

    def flush_soon(self, connection: Connection) -> None: ...

    def receive_soon(self, connection: Connection) -> None: ...

    def unmute_later(self, connection: Connection, delay_s: float) -> None: ...

    def wait_for_room(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection, reason: str | None) -> None: ...

    def fault(self, error: BaseException) -> None: ...


class Connection:
    __slots__ = (
        "_calls",
        "_ending",
        "_held_bytes",
        "_in_flight_max",
        "_inbound",
        "_mutes",
        "_paused",
        "_wants_room",
        "closed",
        "credit",
        "flush_queued",
        "last_active",
        "listener",
        "outbound",
        "peer_host",
        "repeatable",
        "server",
        "session",
        "transport",
    )

    def __init__(self, server: Server, transport: Transport, peer_host: str, listener: tuple[str, int]) -> None:
        self.server = server
        self.transport = transport
        self.peer_host = peer_host
        self.listener = listener
        self.closed = False
        self.flush_queued = False
        self.last_active = 0.0  # when the socket last gave or took bytes
        self.session: Session | None = None
        self.credit: Credit | None = None  # for how long its producer may be held (`overload.policy`)
        self.repeatable: tuple[bytes, str | None, Repeatable] | None = None
        self._held_bytes = 0
        self._in_flight_max = MAX_IN_FLIGHT
        self._mutes = 0
        self._inbound = Inbound(self, server.pool, server.frame_bytes_max)
        self.outbound = Outbound(self)
        self._calls: deque[Call] = deque()
        self._paused = False
        self._wants_room = False
        self._ending = False

    @property
    def idle(self) -> bool:
        return not self._calls and not self.outbound

    @property
    def waits_for_us(self) -> bool:
        """Whether the client has done its part, and we owe it an answer."""
        return bool(self._calls) and not self.outbound

    @property
    def crowded(self) -> bool:
        return (
            len(self._calls) >= self._in_flight_max
            or self.outbound.size > MAX_UNSENT_BYTES
            or self._held_bytes > MAX_HELD_BYTES
        )

    # Receiving ---------------------------------------------------------------------------------------------------

    def on_readable(self, now_s: float) -> None:
        self.last_active = now_s
        try:
            for _ in range(RECEIVES_PER_EVENT):
                if self.closed or self._paused or not self._inbound.receive(now_s):
                    return
            if self.transport.pending():
                self.server.receive_soon(self)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(f"receive failed: {error}")
        except MalformedMessage as error:
            self.server.broker.counters.malformed += 1
            self.close(str(error))

    def handle(self, buffer: Buffer, start: int, end: int) -> None:
        """One frame, without its size."""
        frame = buffer.view[start:end]
        if self.session is not None:
            self.session.handle(frame, buffer)
            return
        if self.repeatable is not None and self._repeat(frame, buffer, *self.repeatable):
            return
        header = parse_request_header(frame)
        if end - start > MAX_OTHER_BYTES and header.api_key != PRODUCE:
            raise MalformedMessage(
                f"request of {end - start} bytes to api key {header.api_key}; only Produce may have more than"
                f" {MAX_OTHER_BYTES}"
            )
        call = Call(self, header.api_key, header.api_version, header.correlation_id, header.client_id, buffer)
        if header.api_key == FETCH and end - start <= MAX_REPEATED_BYTES:
            call.frame = frame.tobytes()
        dispatch, broker, position = self.server.dispatch, self.server.broker, header.body_position
        self.take(call, end - start, lambda: dispatch.handle(broker, frame, position, call))

    def _repeat(
        self, frame: memoryview, buffer: Buffer, before: bytes, client_id: str | None, request: Repeatable
    ) -> bool:
        """Whether it is the last fetch once more, but for the correlation id. Any other request forgets that one."""
        self.repeatable = None
        now = frame.tobytes()
        if now[8:] != before[8:] or now[:4] != before[:4] or not request.repeatable:
            return False
        version, correlation_id = _VERSION_AND_CORRELATION.unpack_from(now, 2)
        call = Call(self, FETCH, version, correlation_id, client_id, buffer)
        call.frame = before
        self.take(call, len(now), partial(request.begin_again, call))
        return True

    def take(self, call: Call, size: int, work: Callable[[], Any]) -> None:
        """Has a request of so many bytes handled; a session has looked at it before."""
        self._calls.append(call)
        if call.api_key != PRODUCE:  # whose bytes stand in the pool until they are written
            call.held = size
            self._held_bytes += size
        try:
            response = work()
        except MalformedMessage:
            raise
        except Exception as error:
            call.fault(error)
            return
        counters = self.server.broker.counters
        counters.requests[call.api_key] += 1
        counters.request_bytes += size
        if response is not None:
            call.reply(response)
        if self.crowded:
            self.pause()

    def limit_frames(self, frame_bytes_max: int | None) -> None:
        """Before a login frames are small; None is the usual limit again."""
        self._inbound.limit(self.server.frame_bytes_max if frame_bytes_max is None else frame_bytes_max)

    def mute(self, seconds: float | None = None) -> None:
        """Nothing more is handled for so long, or until `unmute`; replies still leave. Of several, the longest."""
        self._mutes += 1
        self._in_flight_max = NONE_IN_FLIGHT
        self.pause()
        if seconds is not None:
            self.server.unmute_later(self, seconds)

    def unmute(self) -> None:
        self._mutes -= 1
        if not self._mutes:
            self._in_flight_max = MAX_IN_FLIGHT
            self.resume()

    def send_bare(self, chunk: bytes) -> None:
        """Bytes that are not a reply, as the tokens of old logins are; nothing else is under way then."""
        self.outbound.add((chunk,))
        self.outbound.size += len(chunk)
        self.server.flush_soon(self)

    def wait_for_room(self) -> None:
        self._wants_room = True
        self.pause()
        self.server.wait_for_room(self)

    def room_came(self) -> bool:
        """It is this connection's turn to get memory; False if there still is none."""
        if not self._inbound.room_came():
            return False
        self._wants_room = False
        self.resume()
        return True

    def is_slow(self, now_s: float) -> bool:
        """Whether it holds memory for a request that does not come on."""
        return not self._wants_room and self._inbound.is_slow(self.last_active, now_s)

    # Sending -----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Sends every reply whose turn it is, as far as the socket takes it."""
        calls = self._calls
        while calls and calls[0].done:
            call = calls.popleft()
            self._held_bytes -= call.held
            if call.chunks is not None:
                self.outbound.add(call.chunks)
        if self.outbound and not self.outbound.writing:
            self.outbound.send()
        if self._paused:
            self.resume()

    def on_writable(self, now_s: float) -> None:
        self.last_active = now_s
        self.outbound.send()
        if self._paused and not self.closed:
            self.resume()

    # Pausing and closing -----------------------------------------------------------------------------------------

    def pause(self) -> None:
        if not self._paused and not self.closed:
            self._paused = True
            self.server.watch_readable(self, False)

    def end(self) -> None:
        """No more requests are read; those that are here are answered."""
        self.pause()
        self._ending = True

    def resume(self) -> None:
        if not self._paused or self._ending or self.closed or self._wants_room or self.crowded:
            return
        self._paused = False
        self.server.watch_readable(self, True)
        if self._inbound.held or self.transport.pending():
            self.server.receive_soon(self)

    def close(self, reason: str | None) -> None:
        """Ends the connection; `reason` is None when the client ended it between two requests."""
        if self.closed:
            return
        self.closed = True
        if not self._paused:
            self.server.watch_readable(self, False)
        for call in self._calls:
            if call.cancel is not None:
                call.cancel()
            self.outbound.add(call.chunks or ())
        self._calls.clear()
        self.outbound.release()
        self._inbound.release()
        self.transport.close()
        self.server.closed(self, reason)
