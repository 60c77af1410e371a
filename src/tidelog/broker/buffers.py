"""Memory for requests: a pool of byte buffers with one budget.

A connection that waits owns no buffer. What arrives is received into the server's scratch buffer; only the rest of
a frame that has not wholly arrived, and batches on their way to disk, hold memory of their own. A *pin* keeps a
buffer from being reused: the produce handler pins the buffer that a batch lies in until the batch is written.

The budget (`queued.max.request.bytes`) bounds all of it. When it is used up, `take` returns None and the connection
stops reading until something is released, so that a flood of producers is slowed down by TCP and not by the
kernel's out-of-memory killer. One buffer is always given, however large, when no other is out: otherwise a frame
above the budget would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable

SMALLEST = 4096


class Buffer:
    """Bytes that are received into, and how many still need them. Loop thread only."""

    __slots__ = ("_pool", "data", "pins", "view")

    def __init__(self, pool: BufferPool, size: int) -> None:
        self._pool = pool
        self.data = bytearray(size)
        self.view = memoryview(self.data)
        self.pins = 1

    def pin(self) -> None:
        self.pins += 1

    def unpin(self) -> None:
        self.pins -= 1
        if not self.pins:
            self._pool.give_back(self)


class BufferPool:
    """Buffers in sizes of powers of two, reused while warm. Loop thread only."""

    def __init__(self, budget_bytes: int, retained_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._retained_bytes_max = retained_bytes
        self._retained_bytes = 0
        self._free: dict[int, list[Buffer]] = {}
        self.outstanding_bytes = 0
        self.on_room: Callable[[], None] | None = None

    def take(self, size: int) -> Buffer | None:
        rounded = max(SMALLEST, 1 << (size - 1).bit_length())
        if self.outstanding_bytes and self.outstanding_bytes + rounded > self._budget_bytes:
            return None
        self.outstanding_bytes += rounded
        free = self._free.get(rounded)
        if free:
            buffer = free.pop()
            self._retained_bytes -= rounded
            buffer.pins = 1
            return buffer
        return Buffer(self, rounded)

    def give_back(self, buffer: Buffer) -> None:
        size = len(buffer.data)
        self.outstanding_bytes -= size
        if self._retained_bytes + size <= self._retained_bytes_max:
            self._free.setdefault(size, []).append(buffer)
            self._retained_bytes += size
        if self.on_room is not None:
            self.on_room()
