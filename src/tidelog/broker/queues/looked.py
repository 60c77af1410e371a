"""What was looked up in the records of a queue whose topic asks for it: delays, and keys for order by key.

Memory only, and rebuilt from the log: records from `upto` on have not been looked at, and nobody is given them before.
A record that is not due is parked in the window. With order by key, a record is given to a member only if each earlier
one with its key is done, or is that member's own: then whoever has it works through them in order. Records without a
key have no order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog.broker.queues.delays import due_of
from tidelog.broker.queues.window import DONE, LOCKED, PARKED, Hold, QueueSpan, QueueWindow
from tidelog.record.columns import Row

AHEAD_MAX = 10_000  # records of a queue in order by key that are looked at beyond its start
PRUNE_FROM = 1_000


class Looked:
    __slots__ = ("by_key", "keys", "malformed", "upto", "window")

    def __init__(self, window: QueueWindow, by_key: bool) -> None:
        self.window = window
        self.by_key = by_key
        self.upto = window.start
        self.keys: dict[int, bytes] = {}
        self.malformed = 0  # delays that were none

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
                    until_ms = monotonic_ms + due.at_ms - wall_ms
                    self.window.hold_free(row.offset, row.offset, Hold(PARKED, "", until_ms))
                    first_due = until_ms if first_due is None else min(first_due, until_ms)
        self.upto = max(self.upto, upto)
        if len(self.keys) > PRUNE_FROM and len(self.keys) > 2 * (self.upto - self.window.start):
            self.keys = {offset: key for offset, key in self.keys.items() if offset >= self.window.start}
        return first_due

    def candidates(self, member: str) -> Iterator[int]:
        """Records that the member may be given, in order, as long as it takes each that comes."""
        blocked: set[bytes] = set()
        for span in self._known():
            if span.state in DONE:
                continue
            mine = span.hold is not None and span.hold[:2] == (LOCKED, member)
            for offset in range(span.first, min(span.last + 1, self.upto)):
                key = self.keys.get(offset)
                if span.is_free and (key is None or key not in blocked):
                    yield offset
                elif key is not None and not mine:
                    blocked.add(key)

    def _known(self) -> Iterator[QueueSpan]:
        yield from list(self.window.spans)
        if self.window.end < self.upto:
            yield QueueSpan(self.window.end, self.upto - 1, 0, 0)

    @property
    def is_far_ahead(self) -> bool:
        return self.by_key and self.upto - self.window.start >= AHEAD_MAX
