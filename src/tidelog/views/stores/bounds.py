"""How much one page of a store may take: rows, bytes and time. Pure but for the clock.

    rows     `Ask.limit`, PAGE_ROWS_MAX at most
    bytes    `Ask.max_bytes`: of the rows' values as they are in memory, roughly; the first row always fits
    time     `Ask.within_s`, from the moment that the bounds are made

Rules:
- A page that is full in any of the three ways ends, with `more`, and the next one goes on behind `Page.last`.
- A store that is asked for rows chunk by chunk asks for few at first, and then for as many as fit by what it has seen:
  rows may have a megabyte each.
"""

from __future__ import annotations

import math
import time
from json import dumps
from typing import Any

from tidelog.schema.declaration import Row
from tidelog.views.stores.store import PAGE_ROWS, PAGE_ROWS_MAX, Ask

FIRST_ROWS = PAGE_ROWS + 1  # a page as most ask for it is one chunk
NUMBER_BYTES = 8


class Bounds:
    """Of one page."""

    def __init__(self, ask: Ask) -> None:
        self.limit = max(0, min(ask.limit, PAGE_ROWS_MAX))
        self._bytes_max = math.inf if ask.max_bytes is None else ask.max_bytes
        self._until = math.inf if ask.within_s is None else time.monotonic() + ask.within_s
        self._taken = self._bytes = 0
        self._seen = self._seen_bytes = 0

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self._until

    @property
    def left_s(self) -> float | None:
        """None where there is no end of time; never 0, which means so to some."""
        return None if self._until == math.inf else max(0.001, self._until - time.monotonic())

    def takes(self, row: Row) -> bool:
        """Whether the page has room for it; it is counted then."""
        size = 0 if self._bytes_max == math.inf else size_of(row)
        if self._taken == self.limit or (self._taken and self._bytes + size > self._bytes_max):
            return False
        self._taken += 1
        self._bytes += size
        return True

    def looked_at(self, row: Row) -> None:
        """For the size of the next chunk."""
        if self._bytes_max != math.inf:
            self._seen += 1
            self._seen_bytes += size_of(row)

    def chunk(self, most: int) -> int:
        """How many rows to ask for next."""
        if self._bytes_max == math.inf:
            return most
        if not self._seen:
            return min(most, FIRST_ROWS)
        return max(1, min(most, int(self._bytes_max / max(1.0, self._seen_bytes / self._seen))))


def size_of(row: Row) -> int:
    return sum(map(_size, row.values()))


def _size(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return len(dumps(value)) if isinstance(value, list | dict) else NUMBER_BYTES
