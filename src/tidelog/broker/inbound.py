"""From bytes to frames: what one connection has received and not yet handled.

A frame is handled where it was received, in the pool's scratch buffer. What cannot be handled yet is kept:

    nothing    between two frames; up to 3 bytes of a size, and what came while there was no room, are in `_head`
    partial    a frame has begun: what came of it is in a buffer of its own, which grows as more comes
    held       whole frames that came while the connection was crowded with unanswered ones; handled when it is not

Memory is taken for bytes that have come and not for bytes that are announced: a frame's buffer is twice what is in it,
or as large as frames of this connection have been before. Only who waits longest for room gets all of it at once.
"""

from __future__ import annotations

import struct
from typing import Protocol

from tidelog.broker.buffers import Buffer, BufferPool
from tidelog.broker.transport import Transport
from tidelog.errors import MalformedMessage

FIRST_BYTES = 16 << 10  # of the buffer of a frame that has begun
TRUSTED_BYTES = 8 << 20  # up to this size the next frame is believed to be as large as the largest so far
SMALLEST_FRAME = 8
STALLED_S = 3.0  # without a byte of a frame that has begun,
SLOW_S = 30.0  # or for the whole of it: too slow when others wait for room
OTHER_PROTOCOLS = {
    b"\x16\x03": "TLS, which this port does not; give its client security.protocol=PLAINTEXT",
    b"GET ": "HTTP; this port is for Kafka clients",
    b"POST": "HTTP; this port is for Kafka clients",
}

_SIZE = struct.Struct(">i")


class Receiver(Protocol):
    """The connection, as what is received sees it."""

    transport: Transport
    peer_host: str
    closed: bool

    @property
    def crowded(self) -> bool: ...

    def handle(self, buffer: Buffer, start: int, end: int) -> None: ...

    def wait_for_room(self) -> None: ...

    def close(self, reason: str | None) -> None: ...


class Inbound:
    """`receive` may raise what the socket raises, and MalformedMessage."""

    __slots__ = (
        "_began_s",
        "_filled",
        "_frame",
        "_frame_bytes_max",
        "_head",
        "_held",
        "_largest",
        "_pool",
        "_receiver",
        "_size",
    )

    def __init__(self, receiver: Receiver, pool: BufferPool, frame_bytes_max: int) -> None:
        self._receiver = receiver
        self._pool = pool
        self._frame_bytes_max = frame_bytes_max
        self._head = b""
        self._held: tuple[Buffer, int, int] | None = None
        self._frame: Buffer | None = None
        self._filled = 0
        self._size = 0
        self._largest = 0
        self._began_s = 0.0

    def limit(self, frame_bytes_max: int) -> None:
        """From now on; what has begun already is not looked at again."""
        self._frame_bytes_max = frame_bytes_max

    @property
    def held(self) -> bool:
        return self._held is not None

    def is_slow(self, last_active_s: float, now_s: float) -> bool:
        """Whether a frame has begun that does not come on; `last_active_s` is when the last bytes came."""
        return self._frame is not None and (now_s - last_active_s > STALLED_S or now_s - self._began_s > SLOW_S)

    def receive(self, now_s: float) -> bool:
        """One receive, and the handling of what it completes. False when there is nothing more to receive now."""
        if self._held is not None:
            return self._handle_held(*self._held, now_s)
        if self._frame is not None:
            return self._receive_rest(self._frame)
        scratch = self._pool.scratch()
        if scratch is None:
            self._receiver.wait_for_room()
            return False
        head = len(self._head)
        scratch.data[:head] = self._head
        count = self._receiver.transport.receive_into(scratch.view[head:] if head else scratch.view)
        if not count:
            self._receiver.close("stream ended inside a frame" if head else None)
            return False
        self._head = b""
        self._split(scratch, 0, head + count, now_s)
        return head + count == len(scratch.data)

    def _split(self, buffer: Buffer, position: int, end: int, now_s: float) -> None:
        """Handles every whole frame, and keeps what is left."""
        receiver = self._receiver
        while end - position >= _SIZE.size and not receiver.closed:
            if receiver.crowded:
                self._hold(buffer, position, end)
                return
            frame_end = position + self._frame_size(buffer.data, position)
            if frame_end > end:
                self._began_s = now_s
                self._keep(buffer.view[position:end])
                return
            receiver.handle(buffer, position + _SIZE.size, frame_end)
            position = frame_end
        self._head = bytes(buffer.view[position:end])

    def _frame_size(self, data: bytes | bytearray, position: int) -> int:
        """With the size itself."""
        (size,) = _SIZE.unpack_from(data, position)
        if not SMALLEST_FRAME <= size <= self._frame_bytes_max:
            begins = bytes(data[position : position + _SIZE.size])
            speaks = next((name for start, name in OTHER_PROTOCOLS.items() if begins.startswith(start)), None)
            if speaks is not None:
                raise MalformedMessage(f"{self._receiver.peer_host} speaks {speaks}")
            raise MalformedMessage(
                f"frame of {size} bytes from {self._receiver.peer_host} is outside"
                f" {SMALLEST_FRAME}..{self._frame_bytes_max}; if it is a Kafka client, raise socket.request.max.bytes"
                " (before a login tidelog.frame.bytes.before.authentication)"
            )
        return int(size) + _SIZE.size

    # Frames that came too soon ---------------------------------------------------------------------------------------

    def _hold(self, buffer: Buffer, position: int, end: int) -> None:
        size = end - position
        own = self._pool.take(size) if 2 * size < len(buffer.data) else None
        if own is None:
            buffer.pin()
            self._held = buffer, position, end
        else:
            own.data[:size] = buffer.view[position:end]
            self._held = own, 0, size

    def _handle_held(self, buffer: Buffer, position: int, end: int, now_s: float) -> bool:
        self._held = None
        try:
            self._split(buffer, position, end, now_s)
        finally:
            buffer.unpin()
        return True

    # Frames that come in pieces --------------------------------------------------------------------------------------

    def _keep(self, came: memoryview) -> None:
        """The beginning of a frame. Without room it is kept aside, and the rest stays in the kernel."""
        self._size = self._frame_size(bytes(came[: _SIZE.size]), 0)
        if not self._move(came, overdraw=False):
            self._head = bytes(came)
            self._receiver.wait_for_room()

    def _receive_rest(self, frame: Buffer) -> bool:
        stop = min(len(frame.data), self._size)
        count = self._receiver.transport.receive_into(frame.view[self._filled : stop])
        if not count:
            self._receiver.close("stream ended inside a frame")
            return False
        self._filled += count
        if self._filled == self._size:
            self._handle_frame(frame)
        elif self._filled == stop and not self._move(frame.view[:stop], overdraw=False):
            self._receiver.wait_for_room()
            return False
        return True

    def _handle_frame(self, frame: Buffer) -> None:
        self._frame = None
        self._largest = max(self._largest, self._size)
        try:
            self._receiver.handle(frame, _SIZE.size, self._size)
        finally:
            frame.unpin()

    def _move(self, came: memoryview, *, overdraw: bool) -> bool:
        """Gives the frame a buffer, or a larger one; False when there is no room for it."""
        filled = len(came)
        larger = self._pool.take(min(self._size, max(FIRST_BYTES, 2 * filled, min(self._largest, TRUSTED_BYTES))))
        if larger is None and overdraw:
            larger = self._pool.take(self._size, overdraw=True)
        if larger is None:
            return False
        larger.data[:filled] = came
        before, self._frame, self._filled = self._frame, larger, filled
        if before is not None:
            before.unpin()
        return True

    def room_came(self) -> bool:
        """It is this connection's turn, and there may be room again. False when there is not."""
        if self._frame is not None:
            return self._move(self._frame.view[: self._filled], overdraw=True)
        if len(self._head) >= _SIZE.size:
            if not self._move(memoryview(self._head), overdraw=True):
                return False
            self._head = b""
            return True
        return self._pool.scratch() is not None

    def release(self) -> None:
        """The connection is closed."""
        for buffer in (self._frame, self._held[0] if self._held is not None else None):
            if buffer is not None:
                buffer.unpin()
        self._frame = self._held = None
        self._head = b""
