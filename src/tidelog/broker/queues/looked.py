"""What was looked up in the records of a queue whose topic asks for it: delays, and keys for order by key.

Memory only, and rebuilt from the log: records from `upto` on have not been looked at, and nobody is given them before.
A record that is not due is parked in the window, for the longest delay that the topic allows at most: a time that is
further away is the fault of a clock. With order by key, a record is given only if each earlier one with its key is
done. Whoever has the earlier one does not get it either: a worker has many threads, and may fail at the first of two
that it has. Records without a key have no order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from tidelog.broker.queues.delays import due_of
from tidelog.broker.queues.window import DONE, PARKED, Hold, QueueSpan, QueueWindow
from tidelog.record.columns import Row

AHEAD_MAX = 10_000  # records of a queue in order by key that are looked at beyond its start
PRUNE_FROM = 1_000


class Looked:
    __slots__ = ("_found", "_more", "_seen", "by_key", "keys", "malformed", "upto", "window")

    def __init__(self, window: QueueWindow, by_key: bool) -> None:
        self.window = window
        self.by_key = by_key
        self.upto = window.start
        self.keys: dict[int, bytes] = {}
        self.malformed = 0  # delays that were none
        self._found: list[int] = []  # candidates, as many as were asked for; right while the window is as it was seen
        self._more: Iterator[int] = iter(())
        self._seen = (-1, -1)

    def look(self, rows: Iterable[Row], upto: int, delay_max_ms: int, wall_ms: int, monotonic_ms: int) -> int | None:
        """Notes keys and parks what is not due. Returns when the first of them is, on the monotonic clock."""
        first_due: int | None = None
        for row in rows:
            if not self.upto <= row.offset < upto:
                continue
            if self.by_key and row.key is not None:
                self.keys[row.offset] = row.key
            if delay_max_ms and row.headers:
                due = due_of(row.headers, row.timestamp, delay_max_ms)
                self.malformed += due.malformed
                if due.at_ms is not None and due.at_ms > wall_ms and row.offset >= self.window.start:
                    until_ms = monotonic_ms + min(due.at_ms - wall_ms, delay_max_ms)
                    self.window.hold_free(row.offset, row.offset, Hold(PARKED, "", until_ms))
                    first_due = until_ms if first_due is None else min(first_due, until_ms)
        self.upto = max(self.upto, upto)
        if len(self.keys) > PRUNE_FROM and len(self.keys) > 2 * (self.upto - self.window.start):
            self.keys = {offset: key for offset, key in self.keys.items() if offset >= self.window.start}
        return first_due

    def candidates(self, most: int) -> list[int]:
        """Records that may be given, in order; each has another key."""
        seen = (self.window.version, self.upto)
        if seen != self._seen:
            self._seen, self._found, self._more = seen, [], self._look_through()
        self._found += islice(self._more, max(0, most - len(self._found)))
        return self._found[:most]

    def _look_through(self) -> Iterator[int]:
        """Of one window as it stands: who changes it asks anew."""
        keys: set[bytes] = set()
        for span in self._known():
            if span.state in DONE:
                continue
            for offset in range(span.first, min(span.last + 1, self.upto)):
                key = self.keys.get(offset)
                if key is not None and key in keys:
                    continue
                if key is not None:
                    keys.add(key)
                if span.is_free:
                    yield offset

    def _known(self) -> Iterator[QueueSpan]:
        yield from list(self.window.spans)
        if self.window.end < self.upto:
            yield QueueSpan(self.window.end, self.upto - 1, 0, 0)

    @property
    def is_far_ahead(self) -> bool:
        return self.by_key and self.upto - self.window.start >= AHEAD_MAX
