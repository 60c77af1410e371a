"""The time of day, which may be set while a process runs: by hand, by NTP, by a host that lets a machine sleep.

Durations, deadlines and back-off are by `time.monotonic`, everywhere. Here is what is needed beside it:

    Jumps        tells that the time of day was set since the last look
    SteadyClock  the time of day for who counts silence by it: a step forward is believed when it has stood for as long
                 as is counted; a step back at once
    rest         a wait that does not end early or late when the clock is set

`SteadyClock`: a stamp is the time of day when somebody was heard, and who has been silent for E is known when the
steady time has come to the stamp and E. The steady time is the monotonic clock and the least that the time of day was
ahead of it within the last E. So a stamp that is younger than E is never passed, however often the clock was set
forward in the meantime, and one that is older always is: whoever wrote before a step is forgotten by the old time,
whoever wrote after it by the new one. A clock that is set back is believed at once, and stamps of before count for
longer. Only steps that this process has seen are known: one that starts believes the clock that it finds. While a
machine sleeps the monotonic clock stands still, so that such a time does not count as silence.
"""

from __future__ import annotations

import time
from collections import deque
from threading import Event
from typing import NamedTuple

REST_S = 0.05
JUMP_S = 5.0  # less than that is not more than clocks of two machines differ by
DRIFT_MS = 1000  # within which two looks at a clock are of one that was not set
STEPS_MAX = 1000  # the oldest are forgotten beyond that, and believed early: a clock that is wrong by 20 minutes a day


class Jumps:
    """For one who looks again and again."""

    def __init__(self) -> None:
        self._ahead = _ahead()

    def look(self) -> float:
        """By how many seconds the time of day was set since the last look: less than 0 is back, 0.0 not to speak of."""
        before, self._ahead = self._ahead, _ahead()
        jump = self._ahead - before
        return jump if abs(jump) >= JUMP_S else 0.0


class _Step(NamedTuple):
    ahead_ms: int  # of the monotonic clock
    until_ms: int  # by that: when it was last no more than this


class SteadyClock:
    """Looked at now and then: what a clock does between two looks nobody knows."""

    def __init__(self) -> None:
        self._steps = deque[_Step](maxlen=STEPS_MAX)  # each further ahead than the one before

    def look(self, *, wall_ms: int, monotonic_ms: int) -> None:
        ahead_ms, steps = wall_ms - monotonic_ms, self._steps
        while steps and steps[-1].ahead_ms >= ahead_ms:
            steps.pop()
        if steps and ahead_ms - steps[-1].ahead_ms <= DRIFT_MS:
            ahead_ms = steps.pop().ahead_ms
        steps.append(_Step(ahead_ms, monotonic_ms))

    def read(self, within_ms: int) -> int:
        """As of the last look, of which there must have been one, for silence of so long."""
        now_ms = self._steps[-1].until_ms
        return now_ms + next(one.ahead_ms for one in self._steps if one.until_ms > now_ms - within_ms)


def rest(stopping: Event, seconds: float) -> None:
    """Until then, or until it is set. By no `wait` of the event's: in a Python that was built for a glibc before 2.30,
    as portable ones are, locks wait by the time of day.
    """
    deadline = time.monotonic() + seconds
    while not stopping.is_set() and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, REST_S))


def _ahead() -> float:
    return time.time() - time.monotonic()
