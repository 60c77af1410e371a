"""A fetch that waits: nothing polls, an append wakes it.

    waiting   registered with each of its partitions, one timer running; set by `wait`
    done      answered, timed out or cancelled (its connection closed); in no partition's list, no timer

A woken fetch looks again at all its partitions and answers if it has `min_bytes`, or an error to tell; otherwise it
waits on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidelog.broker.partition import Partition


class Timer(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """The loop as the broker sees it: later, and elsewhere. The server implements it; tests have their own clock."""

    def call_later(self, delay_s: float, action: Callable[[], None]) -> Timer: ...

    def in_thread(self, work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        """Runs blocking work off the loop; `done(result, error)` is called on the loop."""
        ...


class WaitingFetch:
    __slots__ = ("_answer", "_fault", "_ready", "_timer", "_where")

    def __init__(
        self, ready: Callable[[], bool], answer: Callable[[], None], fault: Callable[[Exception], None]
    ) -> None:
        """`ready` looks whether there is enough; `answer` sends what there is; `fault` is told what they raise.

        What wakes a fetch is the commit of a producer, and that must not fail for it.
        """
        self._ready = ready
        self._answer = answer
        self._fault = fault
        self._where: list[Partition] = []
        self._timer: Timer | None = None

    def wait(self, where: list[Partition], scheduler: Scheduler, delay_s: float) -> None:
        self._where = where
        for partition in where:
            partition.waiters[self] = None
        self._timer = scheduler.call_later(delay_s, self.expire)

    def woken(self) -> None:
        try:
            if self._timer is not None and self._ready():
                self.expire()
        except Exception as error:
            self._fault(error)

    def expire(self) -> None:
        """Answers now, with what there is."""
        self.cancel()
        try:
            self._answer()
        except Exception as error:
            self._fault(error)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition in self._where:
            partition.waiters.pop(self, None)
        self._where = []
