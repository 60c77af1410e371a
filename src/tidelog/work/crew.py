"""Threads that call a function, one job each, and the jobs that wait for one of them. No IO.

Jobs are acquired a little ahead, for a thread that is free must not wait for the broker: as many as end within AHEAD_S,
which of long jobs is none. One that has waited for longer than PATIENCE_S all the same, behind jobs that take longer
than those before, is to be given back.

A job whose lock was lost may be given to the same crew again, while its call still runs. That call then goes on under
the new lock: the job is not called beside itself.

A thread cannot be ended from outside. A call that takes longer than its limit is left alone: its thread is not one of
the crew any more, and another takes its place.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Condition, Thread
from typing import Any

from tidelog.client.share import AcquiredRecord
from tidelog.work.job import Job, job_of

AHEAD_S = 0.02
AHEAD_MAX = 500
PATIENCE_S = 1.0
USUAL_MIN_S = 1e-4
SMOOTHING = 0.2  # of how long jobs take: how much the last one counts

JobFunction = Callable[[Job], Any]


class JobCall:
    """A call of the function: waiting, then running in a thread, then ended; or left alone."""

    __slots__ = (
        "began",
        "error",
        "given",
        "has_ended",
        "is_left",
        "job",
        "locked",
        "record",
        "result",
        "session",
        "took_s",
    )

    def __init__(self, record: AcquiredRecord, session: int) -> None:
        """`session` is in which the record was acquired: with its end, the record is not ours any more."""
        self.record, self.session = record, session
        self.job = job_of(record)
        self.given = self.locked = time.monotonic()  # when it came, and when its lock was last renewed
        self.began: float | None = None
        self.took_s = 0.0
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_left = self.has_ended = False

    def go_on(self, again: JobCall) -> None:
        """The same job was given once more: what becomes of this call counts for that lock."""
        self.record, self.session, self.given, self.locked = again.record, again.session, again.given, again.locked

    def run(self, function: JobFunction) -> None:
        try:
            self.result = function(self.job)
        except BaseException as error:  # also SystemExit: it is the job that has ended, not the worker
            self.error = error
        assert self.began is not None, "who runs it says when"
        self.took_s = time.monotonic() - self.began
        self.has_ended = True


class Crew:
    """For one thread, the loop of the workers; what the threads of the crew touch is under `_changed`."""

    def __init__(self, name: str, function: JobFunction, size: int) -> None:
        self.size = size
        self._name, self._function = name, function
        self._changed = Condition()
        self._waiting: deque[JobCall] = deque()
        self._running: dict[JobCall, None] = {}
        self._shift = 0  # threads of an earlier one go home
        self._ended: SimpleQueue[JobCall] = SimpleQueue()
        self._threads = 0  # of this shift, those that were left alone not among them
        self._earlier: set[JobCall] = set()  # that still run, of an earlier shift
        self._late: list[JobCall] = []
        self._usual_s: float | None = None

    # What is there

    def late(self) -> int:
        """Calls that were left alone and have not ended."""
        return sum(not call.has_ended for call in self._late)

    def room(self, *, anew: bool = False) -> int:
        """How many jobs more are wanted. `anew`: also those that run, for their locks are lost."""
        return max(0, self.size + self._ahead() - (0 if anew else len(self.held())))

    def _ahead(self) -> int:
        """A call that runs for longer than is usual is expected to take as long again."""
        if self._usual_s is None:
            return 0
        now, usual_s = time.monotonic(), max(self._usual_s, USUAL_MIN_S)
        with self._changed:
            running = [max(usual_s, now - (call.began or now)) for call in self._running]
        idle = max(0, self.size - len(running))
        return min(AHEAD_MAX, int(AHEAD_S * (idle / usual_s + sum(1 / one for one in running))))

    def held(self) -> list[JobCall]:
        """Those that run, and then those that wait."""
        with self._changed:
            return [*self._running, *self._waiting]

    def is_idle(self) -> bool:
        """Nothing is held, and every call that has ended was told."""
        return not self.held() and self._ended.empty()

    # What happens

    def take(self, records: list[AcquiredRecord], session: int) -> list[JobCall]:
        """Returns the calls under way that go on under a new lock; the others are new."""
        if not records:
            return []
        calls = [JobCall(record, session) for record in records]
        with self._changed:
            running = {(call.record.at, call.record.row.offset): call for call in self._running if not call.has_ended}
            new: list[JobCall] = []
            again: list[JobCall] = []
            for one in calls:
                call = running.get((one.record.at, one.record.row.offset))
                if call is not None and call.record.row == one.record.row:
                    call.go_on(one)
                    again.append(call)
                else:
                    new.append(one)
            self._waiting.extend(new)
            self._changed.notify(len(new))
        self._hire()
        return again

    def ended(self, wait_s: float) -> list[JobCall]:
        """Calls that have ended since; the first of them is waited for."""
        found: list[JobCall] = []
        try:
            found.append(self._ended.get(timeout=wait_s) if wait_s > 0 else self._ended.get_nowait())
            while True:
                found.append(self._ended.get_nowait())
        except Empty:
            pass
        self._late = [call for call in self._late if not call.has_ended]
        self._earlier.difference_update(found)
        counted = [call for call in found if not call.is_left]
        for call in counted:
            before = call.took_s if self._usual_s is None else self._usual_s
            self._usual_s = before + SMOOTHING * (call.took_s - before)
        return counted

    def leave(self, call: JobCall) -> bool:
        """Leaves a call alone: its thread, if it ever comes back, goes home. False if it has just ended."""
        with self._changed:
            if call not in self._running or call.has_ended:
                return False
            del self._running[call]
            call.is_left = True
        self._late.append(call)
        if call in self._earlier:
            self._earlier.discard(call)
        else:
            self._threads -= 1
        self._hire()
        return True

    def take_out(self, now: float) -> list[JobCall]:
        """Those that have waited too long. One that was delivered before stays: it is not to reach its last delivery
        without a call.
        """
        with self._changed:
            found = [one for one in self._waiting if now - one.given >= PATIENCE_S and one.job.delivery_count == 1]
            for call in found:
                self._waiting.remove(call)
        return found

    def drop_waiting(self) -> None:
        with self._changed:
            self._waiting.clear()

    def go_home(self) -> None:
        """Threads that are at rest end; one that is busy does when its call ends."""
        with self._changed:
            self._waiting.clear()
            self._shift += 1
            self._earlier.update(self._running)
            self._changed.notify_all()
        self._threads = 0

    # The threads

    def _hire(self) -> None:
        """As many as there is work for."""
        wanted = min(self.size - len(self._earlier), len(self.held()) - len(self._earlier))
        while self._threads < wanted:
            self._threads += 1
            name = f"job-{self._name}-{self._threads}"
            Thread(target=self._work, args=(self._shift,), name=name, daemon=True).start()

    def _work(self, shift: int) -> None:
        while (call := self._next(shift)) is not None:
            call.run(self._function)
            self._ended.put(call)  # first: what is neither running nor waiting can be found there (`is_idle`)
            with self._changed:
                self._running.pop(call, None)
            if call.is_left:
                return

    def _next(self, shift: int) -> JobCall | None:
        with self._changed:
            while self._shift == shift and not self._waiting:
                self._changed.wait()
            if self._shift != shift:
                return None
            call = self._waiting.popleft()
            call.began = time.monotonic()
            self._running[call] = None
            return call
