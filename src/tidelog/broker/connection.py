"""One client's connection: bytes to requests, replies to bytes, in order.

Rules:
- Requests are handled as they arrive; replies leave in the order of their requests, as the protocol demands. A reply
  that is not ready holds back those behind it.
- Replies that are ready together leave together: the server calls `flush` once per event, not once per request.
- At most `MAX_IN_FLIGHT` requests wait for replies, and at most `MAX_UNSENT_BYTES` of memory wait for the socket;
  then the connection stops reading until they have gone. A client that sends without reading slows down only itself.
- Slices of segment files go from page cache to socket (`send_file`); their bytes never enter this process.
- A frame that is malformed, too large or of an unknown API ends the connection; the log line says who and why.

    states       set by
    open         the constructor
    paused       too many in flight, too much unsent, or no room in the buffer pool; the reader is off until `resume`
    ending       the server is stopping: what has come is answered, and nothing more is read
    closed       end of stream, an error, or the server stopping; nothing is sent or handled any more
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from tidelog.broker.buffers import Buffer, BufferPool
from tidelog.broker.dispatch import Dispatch
from tidelog.broker.transport import Transport
from tidelog.errors import MalformedMessage
from tidelog.wire.frame import encode_response, parse_request_header

MAX_IN_FLIGHT = 512
MAX_UNSENT_BYTES = 4 << 20
SCRATCH_BYTES = 256 << 10
RECEIVES_PER_EVENT = 4
BUFFERS_PER_SEND = 64

BYTES = (bytes, memoryview, bytearray)
_SIZE = struct.Struct(">i")


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

    def scratch(self) -> Buffer | None: ...

    def watch_writable(self, connection: Connection, on: bool) -> None: ...

    def watch_readable(self, connection: Connection, on: bool) -> None: ...

    def flush_soon(self, connection: Connection) -> None: ...

    def wait_for_room(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection, reason: str | None) -> None: ...

    def fault(self, error: BaseException) -> None: ...


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
        self.done = False
        self.cancel: Callable[[], None] | None = None

    @property
    def peer_host(self) -> str:
        return self.connection.peer_host

    @property
    def listener(self) -> tuple[str, int]:
        return self.connection.listener

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
            self.chunks = encode_response(self.api_key, self.version, self.correlation_id, response)
        self.connection.server.flush_soon(self.connection)

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
        "_head",
        "_partial",
        "_partial_fill",
        "_partial_size",
        "_paused",
        "_unsent",
        "_unsent_bytes",
        "_writing",
        "closed",
        "flush_queued",
        "last_active",
        "listener",
        "peer_host",
        "server",
        "transport",
        "wanted_bytes",
    )

    def __init__(self, server: Server, transport: Transport, peer_host: str, listener: tuple[str, int]) -> None:
        self.server = server
        self.transport = transport
        self.peer_host = peer_host
        self.listener = listener
        self.closed = False
        self.flush_queued = False
        self.last_active = 0.0
        self.wanted_bytes = 0
        self._head = b""
        self._partial: Buffer | None = None
        self._partial_fill = 0
        self._partial_size = 0
        self._calls: deque[Call] = deque()
        self._unsent: deque[Any] = deque()
        self._unsent_bytes = 0
        self._writing = False
        self._paused = False
        self._ending = False

    @property
    def idle(self) -> bool:
        return not self._calls and not self._unsent

    # Receiving ---------------------------------------------------------------------------------------------------

    def on_readable(self) -> None:
        try:
            for _ in range(RECEIVES_PER_EVENT):
                if self.closed or self._paused or not self._receive():
                    return
        except BlockingIOError:
            return
        except (ConnectionError, OSError) as error:
            self.close(f"receive failed: {error}")
        except MalformedMessage as error:
            self.close(str(error))
        except Exception as error:
            # A fault of ours. The client hears of it at once and may try again; waiting for a reply it never would.
            self.server.fault(error)
            self.close("a fault of the broker")

    def _receive(self) -> bool:
        """One receive, and the handling of what it completes. False when there is nothing more to receive now."""
        if self._partial is not None:
            return self._receive_rest(self._partial)
        scratch = self.server.scratch()
        if scratch is None:
            self._await_room(SCRATCH_BYTES)
            return False
        head = len(self._head)
        if head:
            scratch.data[:head] = self._head
        count = self.transport.receive_into(scratch.view[head:] if head else scratch.view)
        if not count:
            self.close(None)
            return False
        self._head = b""
        self._split(scratch, head + count)
        return head + count == len(scratch.data)

    def _receive_rest(self, buffer: Buffer) -> bool:
        count = self.transport.receive_into(buffer.view[self._partial_fill : self._partial_size])
        if not count:
            self.close("stream ended inside a frame")
            return False
        self._partial_fill += count
        if self._partial_fill < self._partial_size:
            return True
        self._partial = None
        try:
            self._handle(buffer, 4, self._partial_size)
        finally:
            buffer.unpin()
        return True

    def _split(self, buffer: Buffer, end: int) -> None:
        """Handles every whole frame in the first `end` bytes, and keeps what is left."""
        position = 0
        while end - position >= 4:
            frame_end = position + 4 + self._frame_size(buffer, position)
            if frame_end > end:
                self._keep_partial(buffer, position, end, frame_end - position)
                return
            self._handle(buffer, position + 4, frame_end)
            if self.closed:
                return
            position = frame_end
        if position < end:
            self._head = bytes(buffer.view[position:end])

    def _frame_size(self, buffer: Buffer, position: int) -> int:
        (size,) = _SIZE.unpack_from(buffer.data, position)
        if not 8 <= size <= self.server.frame_bytes_max:
            raise MalformedMessage(
                f"frame of {size} bytes from {self.peer_host} is outside 8..{self.server.frame_bytes_max};"
                " if it is a Kafka client, raise socket.request.max.bytes"
            )
        return int(size)

    def _keep_partial(self, buffer: Buffer, position: int, end: int, size: int) -> None:
        partial = self.server.pool.take(size)
        if partial is None:
            # Nothing is lost: the part that came is kept, and the rest stays in the kernel until there is room.
            self._head = bytes(buffer.view[position:end])
            self._await_room(size)
            return
        self._partial_fill = end - position
        self._partial_size = size
        partial.data[: self._partial_fill] = buffer.view[position:end]
        self._partial = partial

    def _await_room(self, size: int) -> None:
        self.wanted_bytes = size
        self.pause()
        self.server.wait_for_room(self)

    def room_came(self) -> None:
        """The pool has room again: give the frame that has begun a buffer of its own, and read on."""
        head = self._head
        if len(head) >= 4 and self._partial is None:
            (size,) = _SIZE.unpack_from(head)
            partial = self.server.pool.take(size + 4)
            if partial is None:
                self.server.wait_for_room(self)
                return
            partial.data[: len(head)] = head
            self._partial, self._partial_fill, self._partial_size = partial, len(head), size + 4
            self._head = b""
        self.wanted_bytes = 0
        self.resume()

    def _handle(self, buffer: Buffer, start: int, end: int) -> None:
        frame = buffer.view[start:end]
        header = parse_request_header(frame)
        call = Call(self, header.api_key, header.api_version, header.correlation_id, header.client_id, buffer)
        self._calls.append(call)
        response = self.server.dispatch.handle(self.server.broker, frame, header.body_position, call)
        if response is not None:
            call.reply(response)
        if len(self._calls) >= MAX_IN_FLIGHT:
            self.pause()

    # Sending -----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Sends every reply whose turn it is, as far as the socket takes it."""
        calls = self._calls
        while calls and calls[0].done:
            chunks = calls.popleft().chunks
            if chunks is not None:
                self._unsent.extend(chunks)
                self._unsent_bytes += sum(len(chunk) for chunk in chunks if isinstance(chunk, BYTES))
        if self._unsent and not self._writing:
            self._send()
        if self._paused:
            self.resume()

    def on_writable(self) -> None:
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
        except (ConnectionError, OSError) as error:
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
        self._unsent_bytes -= sent
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
        if self._ending:
            return
        crowded = len(self._calls) >= MAX_IN_FLIGHT or self._unsent_bytes > MAX_UNSENT_BYTES or self.wanted_bytes
        if self._paused and not self.closed and not crowded:
            self._paused = False
            self.server.watch_readable(self, True)

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
        if self._partial is not None:
            self._partial.unpin()
            self._partial = None
        self.transport.close()
        self.server.closed(self, reason)
