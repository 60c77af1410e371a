"""The indexes of complete segments that are in memory: the least recently used are let go when they are too large."""

from __future__ import annotations

import threading
from collections import OrderedDict

from tidelog.log.segment import Segment

INDEX_CACHE_BYTES = 64 << 20
ENTRY_BYTES = 16


class IndexCache:
    """Any thread."""

    __slots__ = ("_bytes", "_lock", "_segments", "limit")

    def __init__(self, limit: int = INDEX_CACHE_BYTES) -> None:
        self.limit = limit
        self._bytes = 0
        self._segments: OrderedDict[Segment, int] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, segment: Segment) -> None:
        """The segment is complete and its index has just been loaded or used."""
        with self._lock:
            index = segment.index
            if index is None:
                return
            if segment not in self._segments:
                self._segments[segment] = len(index) * ENTRY_BYTES
                self._bytes += self._segments[segment]
            self._segments.move_to_end(segment)
            while self._bytes > self.limit and len(self._segments) > 1:
                oldest, size = self._segments.popitem(last=False)
                self._bytes -= size
                oldest.let_go_of_index()

    def forget(self, segment: Segment) -> None:
        """The segment is deleted."""
        with self._lock:
            self._bytes -= self._segments.pop(segment, 0)
