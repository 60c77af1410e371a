"""When what is due: session, rebalance and join time-outs of all groups, by key.

Every heartbeat moves a deadline, mostly to later, so `put` costs a dictionary entry and the heap is touched only when
the deadline is new or earlier than before. An entry of the heap that comes up early is put back at its present time;
an entry whose key is gone is forgotten. Times are monotonic milliseconds.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import NamedTuple


class Key(NamedTuple):
    """What is due. Kinds: session, pending (a member id given out, not yet used), join, sync, rebalance, retention;
    of a classic member in a KIP-848 group also rejoin and resync."""

    group: str
    kind: str
    member: str = ""


class Deadlines:
    __slots__ = ("_at", "_heap", "_queued")

    def __init__(self) -> None:
        self._at: dict[Key, int] = {}
        self._queued: dict[Key, int] = {}  # the earliest entry of the heap for each key
        self._heap: list[tuple[int, Key]] = []

    def put(self, key: Key, at_ms: int) -> None:
        self._at[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._queued[key] = at_ms
            heappush(self._heap, (at_ms, key))

    def drop(self, key: Key) -> None:
        self._at.pop(key, None)

    def get(self, key: Key) -> int | None:
        return self._at.get(key)

    def first(self) -> int | None:
        """The earliest deadline, or None."""
        while self._heap:
            queued, key = self._heap[0]
            at = self._at.get(key)
            if self._queued.get(key) != queued or at is None:
                heappop(self._heap)
                if self._queued.get(key) == queued:
                    del self._queued[key]
            elif at > queued:
                self._queued[key] = at
                heapreplace(self._heap, (at, key))
            else:
                return at
        return None

    def take_due(self, now_ms: int) -> list[Key]:
        """The keys whose deadline has come, earliest first; they are forgotten."""
        due: list[Key] = []
        while (first := self.first()) is not None and first <= now_ms:
            _, key = heappop(self._heap)
            del self._queued[key]
            del self._at[key]
            due.append(key)
        return due

    def __len__(self) -> int:
        return len(self._at)
