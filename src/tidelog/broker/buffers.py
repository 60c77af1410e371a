"""Memory for requests: a pool of byte buffers with one budget.

A connection that waits owns no buffer. What arrives is received into one scratch buffer for all; only a frame that has
not wholly arrived, and batches on their way to disk, hold memory of their own. A *pin* keeps a buffer from being
reused: the produce handler pins the buffer that a batch lies in until the batch is written.

The budget (`queued.max.request.bytes`) bounds all of it. When it is used up, `take` and `scratch` return None and the
connection stops reading until something is released, so that a flood of producers is slowed down by TCP and not by
the kernel's out-of-memory killer. Beyond it there is at any time at most:

    the scratch      while nothing stays in it; from then on it counts
    one overdraft    for who waits longest (`overdraw`): else frames that have half arrived could wait for each other,
                     and one above the budget for ever
"""

from __future__ import annotations

from collections.abc import Callable

SMALLEST = 4096
SCRATCH_BYTES = 256 << 10
UNLIMITED = -1


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
        """`retained_bytes` are kept for reuse beside what is out."""
        self._budget_bytes = budget_bytes
        self._retained_bytes_max = retained_bytes
        self._retained_bytes = 0
        self._free: dict[int, list[Buffer]] = {}
        self._scratch: Buffer | None = None
        self._overdraft: Buffer | None = None
        self.outstanding_bytes = 0
        self.on_room: Callable[[], None] | None = None

    def take(self, size: int, *, overdraw: bool = False) -> Buffer | None:
        rounded = max(SMALLEST, 1 << (size - 1).bit_length())
        if self._has_room(rounded):
            self.outstanding_bytes += rounded
            return self._make(rounded)
        if not overdraw or self._overdraft is not None:
            return None
        self._overdraft = self._make(rounded)
        return self._overdraft

    def scratch(self) -> Buffer | None:
        """Where to receive into; it belongs to the pool, and whoever needs what is in it for longer pins it."""
        scratch = self._scratch
        if scratch is not None and scratch.pins > 1:
            self.outstanding_bytes += SCRATCH_BYTES
            scratch.unpin()
            self._scratch = scratch = None
        if scratch is None and self._has_room(0):
            self._scratch = scratch = self._make(SCRATCH_BYTES)
        return scratch

    def give_back(self, buffer: Buffer) -> None:
        size = len(buffer.data)
        if buffer is self._overdraft:
            self._overdraft = None
        else:
            self.outstanding_bytes -= size
        if self._retained_bytes + size <= self._retained_bytes_max:
            self._free.setdefault(size, []).append(buffer)
            self._retained_bytes += size
        if self.on_room is not None:
            self.on_room()

    def _has_room(self, size: int) -> bool:
        return self._budget_bytes == UNLIMITED or self.outstanding_bytes + size <= self._budget_bytes

    def _make(self, size: int) -> Buffer:
        free = self._free.get(size)
        if not free:
            return Buffer(self, size)
        buffer = free.pop()
        self._retained_bytes -= size
        buffer.pins = 1
        return buffer
