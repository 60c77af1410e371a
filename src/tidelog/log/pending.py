"""Appends that are not visible yet, and those who wait for them. The loop's thread only."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.log.producers import ProducerState
from tidelog.log.segment import Segment

Done = Callable[[StorageError | None], None]
Release = Callable[[], None]


class Pending(NamedTuple):
    """An append, with what to put back should it fail."""

    next_offset: int
    release: Release | None
    producer_id: int
    producer: ProducerState | None
    segment: Segment
    position: int
    max_timestamp: int
    max_timestamp_offset: int


def let_go(pending: deque[Pending], high_watermark: int) -> None:
    """These are visible: their buffers are free."""
    while pending and pending[0].next_offset <= high_watermark:
        release = pending.popleft().release
        if release is not None:
            release()


def take_back(pending: deque[Pending], producers: dict[int, ProducerState], end_offset: int) -> None:
    """Undoes every append above an offset, the last one first."""
    while pending and pending[-1].next_offset > end_offset:
        taken = pending.pop()
        if taken.producer is not None:
            producers[taken.producer_id] = taken.producer
        elif taken.producer_id >= 0:
            producers.pop(taken.producer_id, None)
        taken.segment.cut(taken.position, taken.max_timestamp, taken.max_timestamp_offset)
        if taken.release is not None:
            taken.release()


class Waiters:
    """Who waits for which offset, in order of the offsets."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Done]] = deque()

    def add(self, offset: int, done: Done) -> None:
        waiting = self._waiting
        if not waiting or waiting[-1][0] <= offset:
            waiting.append((offset, done))
        else:
            waiting.insert(bisect_right(waiting, offset, key=lambda waiter: waiter[0]), (offset, done))

    def reach(self, high_watermark: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1](None)

    def fail_above(self, offset: int, error: StorageError) -> None:
        failed = []
        while self._waiting and self._waiting[-1][0] > offset:
            failed.append(self._waiting.pop()[1])
        for done in reversed(failed):
            done(error)
