"""One client's connection: bytes to requests, replies to bytes, in order.

Rules:
- Requests are handled as they arrive; replies leave in the order of their requests, as the protocol demands. A reply
  that is not ready holds back those behind it.
- Replies that are ready together leave together: the server calls `flush` once per event, not once per request.
- A connection is *crowded* when `MAX_IN_FLIGHT` requests wait for replies, or requests of more than `MAX_HELD_BYTES`
  (but for Produce), or `MAX_UNSENT_BYTES` of replies for the socket: then nothing is handled, not even what has come,
  until some have gone. A client that sends without reading slows down only itself.
- Slices of segment files go from page cache to socket (`send_file`); their bytes never enter this process.
- A frame that is malformed, too large or of an unknown API ends the connection; the log line says who and why. Only
  Produce may have more than `MAX_OTHER_BYTES`: of the rest, a few bytes can become many objects.
- A fault of ours ends the connection too: its client tries again, and everybody else goes on.

    states       set by
    open         the constructor
    paused       crowded, muted, or no room in the buffer pool; the reader is off until `resume`
    muted        `mute`: a password is being checked, or a quota makes the client rest; nothing is handled
    ending       the server is stopping: what has come is answered, and nothing more is read
    closed       end of stream, an error, or the server stopping; nothing is sent or handled any more
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from tidelog.broker.buffers import Buffer, BufferPool
from tidelog.broker.dispatch import PRODUCE, Dispatch
from tidelog.broker.inbound import Inbound
from tidelog.broker.transport import Transport
from tidelog.errors import MalformedMessage
from tidelog.wire.frame import encode_response, parse_request_header

MAX_IN_FLIGHT = 512
NONE_IN_FLIGHT = 0  # of a connection that rests
MAX_UNSENT_BYTES = 1 << 20
MAX_HELD_BYTES = 1 << 20
MAX_OTHER_BYTES = 8 << 20
RECEIVES_PER_EVENT = 4
BUFFERS_PER_SEND = 64

BYTES = (bytes, memoryview, bytearray)


class Slice(Protocol):
    """What the log hands out: a piece of a segment file. Whoever sends part of it moves its beginning."""

    position: int
    size: int

    def fileno(self) -> int: ...

    def release(self) -> None: ...


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


class Session(Protocol):
    """Who the client is, where that matters: it handles frames in the connection's place (`access.session`)."""

    user: str

    def handle(self, frame: memoryview, buffer: Buffer) -> None: ...

    def why_over(self) -> str | None: ...


class Call:
    """One request on its way to its reply. It is its own ticket (see `decision`)."""

    __slots__ = (
        "api_key",
        "buffer",
        "cancel",
        "chunks",
        "client_id",
        "connection",
        "correlation_id",
        "done",
        "held",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        buffer: Buffer,
    ) -> None:
        self.connection = connection
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.buffer = buffer
        self.chunks: list[Any] | None = None
        self.held = 0
        self.done = False
        self.cancel: Callable[[], None] | None = None

    @property
    def peer_host(self) -> str:
        return self.connection.peer_host

    @property
    def listener(self) -> tuple[str, int]:
        return self.connection.listener

    @property
    def user(self) -> str | None:
        """None where nobody is asked who he is."""
        return self.connection.session.user if self.connection.session is not None else None

    @property
    def ticket(self) -> Call:
        return self

    def reply(self, response: Any) -> None:
        """Answers the request. None answers it with silence, as acks=0 asks for."""
        if self.done:
            return
        self.done = True
        self.cancel = None
        if self.connection.closed:
            _release(response)
            return
        if response is not None:
            try:
                self.chunks = encode_response(self.api_key, self.version, self.correlation_id, response)
            except Exception as error:
                self.fault(error)
                return
            self.connection.unsent_bytes += sum(len(chunk) for chunk in self.chunks if isinstance(chunk, BYTES))
        self.connection.server.flush_soon(self.connection)

    def fault(self, error: Exception) -> None:
        """A fault of ours in the middle of this request. Without an answer, the client would wait for ever."""
        self.connection.server.fault(error)
        self.connection.close("a fault of the broker")

    def drop(self) -> None:
        """Ends the connection instead of answering, where the protocol has no better word."""
        self.connection.close("request could not be answered")


def _release(response: Any) -> None:
    for topic in getattr(response, "responses", ()):
        for partition in getattr(topic, "partitions", ()):
            release = getattr(getattr(partition, "records", None), "release", None)
            if release is not None:
                release()


class Connection:
    __slots__ = (
        "_calls",
        "_ending",
        "_held_bytes",
        "_in_flight_max",
        "_inbound",
        "_mutes",
        "_paused",
        "_unsent",
        "_wants_room",
        "_writing",
        "closed",
        "flush_queued",
        "last_active",
        "listener",
        "peer_host",
        "server",
        "session",
        "transport",
        "unsent_bytes",
    )

    def __init__(self, server: Server, transport: Transport, peer_host: str, listener: tuple[str, int]) -> None:
        self.server = server
        self.transport = transport
        self.peer_host = peer_host
        self.listener = listener
        self.closed = False
        self.flush_queued = False
        self.last_active = 0.0  # when the socket last gave or took bytes
        self.unsent_bytes = 0
        self.session: Session | None = None
        self._held_bytes = 0
        self._in_flight_max = MAX_IN_FLIGHT
        self._mutes = 0
        self._inbound = Inbound(self, server.pool, server.frame_bytes_max)
        self._calls: deque[Call] = deque()
        self._unsent: deque[Any] = deque()
        self._writing = False
        self._paused = False
        self._wants_room = False
        self._ending = False

    @property
    def idle(self) -> bool:
        return not self._calls and not self._unsent

    @property
    def waits_for_us(self) -> bool:
        """Whether the client has done its part, and we owe it an answer."""
        return bool(self._calls) and not self._unsent

    @property
    def crowded(self) -> bool:
        return (
            len(self._calls) >= self._in_flight_max
            or self.unsent_bytes > MAX_UNSENT_BYTES
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
        header = parse_request_header(frame)
        if end - start > MAX_OTHER_BYTES and header.api_key != PRODUCE:
            raise MalformedMessage(
                f"request of {end - start} bytes to api key {header.api_key}; only Produce may have more than"
                f" {MAX_OTHER_BYTES}"
            )
        call = Call(self, header.api_key, header.api_version, header.correlation_id, header.client_id, buffer)
        dispatch, broker, position = self.server.dispatch, self.server.broker, header.body_position
        self.take(call, end - start, lambda: dispatch.handle(broker, frame, position, call))

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
        """Bytes that are no reply, as the tokens of old logins are; nothing else is under way then."""
        self._unsent.append(chunk)
        self.unsent_bytes += len(chunk)
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
                self._unsent.extend(call.chunks)
        if self._unsent and not self._writing:
            self._send()
        if self._paused:
            self.resume()

    def on_writable(self, now_s: float) -> None:
        self.last_active = now_s
        self._send()
        if self._paused and not self.closed:
            self.resume()

    def _send(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                if isinstance(unsent[0], BYTES):
                    self._send_bytes()
                else:
                    self._send_slice(unsent[0])
        except BlockingIOError:
            self._watch_writable(True)
            return
        except OSError as error:
            self.close(f"send failed: {error}")
            return
        self._watch_writable(False)

    def _send_bytes(self) -> None:
        buffers: list[bytes | bytearray | memoryview] = []
        for chunk in self._unsent:
            if not isinstance(chunk, BYTES) or len(buffers) == BUFFERS_PER_SEND:
                break
            buffers.append(chunk)
        sent = self.transport.send(buffers, more=len(buffers) < len(self._unsent))
        self.unsent_bytes -= sent
        self.server.broker.counters.sent_bytes += sent
        for chunk in buffers:
            if sent < len(chunk):
                self._unsent[0] = memoryview(chunk)[sent:]
                break
            sent -= len(chunk)
            self._unsent.popleft()

    def _send_slice(self, piece: Slice) -> None:
        while piece.size:
            sent = self.transport.send_file(piece.fileno(), piece.position, piece.size)
            if not sent:
                raise OSError(f"segment file ended {piece.size} bytes before the slice")
            piece.position += sent
            piece.size -= sent
            self.server.broker.counters.sent_bytes += sent
        self._unsent.popleft()
        piece.release()

    def _watch_writable(self, on: bool) -> None:
        if on is not self._writing:
            self._writing = on
            self.server.watch_writable(self, on)

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
        self._watch_writable(False)
        if not self._paused:
            self.server.watch_readable(self, False)
        for call in self._calls:
            if call.cancel is not None:
                call.cancel()
            self._unsent.extend(call.chunks or ())
        self._calls.clear()
        for chunk in self._unsent:
            if not isinstance(chunk, BYTES):
                chunk.release()
        self._unsent.clear()
        self._inbound.release()
        self.transport.close()
        self.server.closed(self, reason)
