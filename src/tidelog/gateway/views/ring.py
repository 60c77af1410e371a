"""What was read of a view last, for all who follow it: slots in a row, the oldest leaving as new ones come.

Rules:
- Slots follow each other: what comes after one's end is in the next, or was nothing to tell.
- Readers cut the same changes into other pieces, so a cursor may lie within a slot, and be before its end in one
  partition and behind it in another. Who joins takes the slot that begins at or before its cursor in every partition,
  and gets of each slot what it has not had (`Slot.told`).
"""

from __future__ import annotations

from collections import deque
from threading import Lock

from tidelog.gateway.limits import CHUNK_BYTES, RING_BYTES, RING_CHANGES
from tidelog.gateway.views.slot import Slot
from tidelog.views.feeds import Cursor


class Ring:
    """Safe from any thread."""

    def __init__(self, position: Cursor) -> None:
        self.position = position  # where its end is
        self._lock = Lock()
        self._slots: deque[Slot] = deque()
        self._first = 0  # the number of the first slot
        self._bytes = self._changes = 0

    def add(self, slot: Slot) -> None:
        with self._lock:
            self.position = slot.end
            self._slots.append(slot)
            self._bytes += slot.size
            self._changes += len(slot.changes)
            while len(self._slots) > 1 and (self._bytes > RING_BYTES or self._changes > RING_CHANGES):
                gone = self._slots.popleft()
                self._first += 1
                self._bytes -= gone.size
                self._changes -= len(gone.changes)

    def move(self, position: Cursor) -> None:
        """There was nothing to tell up to there."""
        with self._lock:
            self.position = position

    def place_of(self, cursor: Cursor) -> int | None:
        """The number of the first slot that has what comes after `cursor`; None where it is no more in the ring."""
        with self._lock:
            after = self._first + len(self._slots)
            if cursor.generation == self.position.generation and cursor.reaches(self.position.offsets):
                return after
            for back, slot in enumerate(reversed(self._slots), 1):
                if slot.start.generation == cursor.generation and cursor.reaches(slot.start.offsets):
                    return after - back
        return None

    def since(self, number: int) -> list[Slot] | None:
        """Slots from this number on, CHUNK_BYTES of them or the first alone; None where they have left the ring."""
        with self._lock:
            if number < self._first:
                return None
            size = 0
            found: list[Slot] = []
            for index in range(number - self._first, len(self._slots)):
                slot = self._slots[index]
                size += slot.size
                if found and size > CHUNK_BYTES:
                    break
                found.append(slot)
        return found
