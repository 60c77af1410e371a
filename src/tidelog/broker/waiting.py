"""A fetch that waits: nothing polls, an append wakes it.

    waiting   registered with each of its partitions, one timer running; set by `wait`
    resting   waiting, and looked a moment ago: it looks again when the rest is over, if it was woken meanwhile
    done      answered, timed out or cancelled (its connection closed); in no partition's list, no timer

A woken fetch looks again at all its partitions and answers if it has `min_bytes`, or an error to tell; otherwise it
waits on. One of many partitions then rests for `REST_S` for each of them: a look takes a tenth of that, so that a fetch
of ten thousand partitions that wants many bytes does not look at all of them for every one that has grown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tidelog.broker.partition import Waiter

REST_FROM = 16  # partitions; below, a look is done sooner than a timer is set
REST_S = 1e-5


class Timer(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """The loop as the broker sees it: later, and elsewhere. The server implements it; tests have their own clock."""

    def call_soon(self, action: Callable[[], None]) -> None: ...

    def call_later(self, delay_s: float, action: Callable[[], None]) -> Timer: ...

    def in_thread(self, work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        """Runs blocking work off the loop; `done(result, error)` is called on the loop."""
        ...


class WaitingPlace(Protocol):
    """Where a fetch waits: a partition, or a queue (`queue_coordinator.Crowd`)."""

    @property
    def waiters(self) -> dict[Waiter, None]: ...


class WaitingFetch:
    __slots__ = ("_answer", "_fault", "_missed", "_ready", "_rest", "_scheduler", "_timer", "_where")

    def __init__(
        self, ready: Callable[[], bool], answer: Callable[[], None], fault: Callable[[Exception], None]
    ) -> None:
        """`ready` looks whether there is enough; `answer` sends what there is; `fault` is told what they raise.

        What wakes a fetch is the commit of a producer, and that must not fail for it.
        """
        self._ready = ready
        self._answer = answer
        self._fault = fault
        self._where: Sequence[WaitingPlace] = []
        self._timer: Timer | None = None
        self._rest: Timer | None = None
        self._missed = False

    def wait(self, where: Sequence[WaitingPlace], scheduler: Scheduler, delay_s: float) -> None:
        self._where = where
        self._scheduler = scheduler
        for partition in where:
            partition.waiters[self] = None
        self._timer = scheduler.call_later(delay_s, self.expire)

    def woken(self) -> None:
        if self._rest is not None:
            self._missed = True
            return
        try:
            if self._timer is not None and self._ready():
                self.expire()
            elif len(self._where) >= REST_FROM:
                self._rest = self._scheduler.call_later(len(self._where) * REST_S, self._rested)
        except Exception as error:
            self._fault(error)

    def _rested(self) -> None:
        self._rest = None
        missed, self._missed = self._missed, False
        if missed:
            self.woken()

    def expire(self) -> None:
        """Answers now, with what there is."""
        self.cancel()
        try:
            self._answer()
        except Exception as error:
            self._fault(error)

    def cancel(self) -> None:
        for timer in (self._timer, self._rest):
            if timer is not None:
                timer.cancel()
        self._timer = self._rest = None
        for partition in self._where:
            partition.waiters.pop(self, None)
        self._where = []
