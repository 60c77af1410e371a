"""How long it takes from an event's produce until every reader of a view sees it. Pure; who looks is `watching.py`.

A produced record is visible in a view when the mark of what its store shows says that the record was read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import Ends

KEPT = 100_000  # figures, and records that are waited for, of each view


class Produced(NamedTuple):
    at: TopicPartition
    offset: int
    when_s: float


class Freshness:
    """Of one view, which reads these topics."""

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = frozenset(topics)
        self._waiting: dict[TopicPartition, deque[Produced]] = {}
        self.seconds: deque[float] = deque(maxlen=KEPT)

    def produced(self, one: Produced) -> None:
        if one.at.topic in self._topics:
            self._waiting.setdefault(one.at, deque(maxlen=KEPT)).append(one)

    def seen(self, read: Ends, when_s: float) -> None:
        """`read` are the next offsets of what is visible."""
        for at, waiting in self._waiting.items():
            while waiting and waiting[0].offset < read.get(at, 0):
                self.seconds.append(when_s - waiting.popleft().when_s)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))


def percentile(sorted_values: Sequence[float], share: float) -> float | None:
    """The least of them that at least this share is not above."""
    if not sorted_values:
        return None
    return sorted_values[max(0, -int(-len(sorted_values) * share // 1) - 1)]
