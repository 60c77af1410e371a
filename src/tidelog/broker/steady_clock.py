"""The time of day for who counts silence by it: a step forward is believed when it has stood for as long as is counted.

    stamp   is the time of day when somebody was heard
    silent  for E, when the steady time has come to the stamp and E

The steady time is the monotonic clock and the least that the time of day was ahead of it within the last E. So a stamp
that is younger than E is never passed, however often the clock was set forward in the meantime, and one that is older
always is: whoever wrote before a step is forgotten by the old time, whoever wrote after it by the new one. A clock that
is set back is believed at once, and stamps of before count for longer.

Only steps that this process has seen are known: one that starts believes the clock that it finds. While a machine
sleeps the monotonic clock stands still, so that such a time does not count as silence.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tidelog.broker.decision import Instant

DRIFT_MS = 1000  # within which two looks at a clock are of one that was not set
STEPS_MAX = 1000  # the oldest are forgotten beyond that, and believed early: a clock that is wrong by 20 minutes a day


class _Step(NamedTuple):
    ahead_ms: int  # of the monotonic clock
    until_ms: int  # by that: when it was last no more than this


class SteadyClock:
    """Looked at now and then: what a clock does between two looks nobody knows."""

    def __init__(self, now: Instant) -> None:
        self._steps = deque[_Step](maxlen=STEPS_MAX)  # each further ahead than the one before
        self.look(now)

    def look(self, now: Instant) -> None:
        ahead_ms, steps = now.wall_ms - now.monotonic_ms, self._steps
        while steps and steps[-1].ahead_ms >= ahead_ms:
            steps.pop()
        if steps and ahead_ms - steps[-1].ahead_ms <= DRIFT_MS:
            ahead_ms = steps.pop().ahead_ms
        steps.append(_Step(ahead_ms, now.monotonic_ms))

    def read(self, within_ms: int) -> int:
        """As of the last look, for silence of so long."""
        now_ms = self._steps[-1].until_ms
        return now_ms + next(one.ahead_ms for one in self._steps if one.until_ms > now_ms - within_ms)
