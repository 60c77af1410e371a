"""The time of day, which may be set while a process runs: by hand, by NTP, by a host that lets a machine sleep.

Durations, deadlines and back-off are by `time.monotonic`, everywhere; here is what notices that the other has jumped.
"""

from __future__ import annotations

import time
from threading import Event

REST_S = 0.05
JUMP_S = 5.0  # less than that is no more than clocks of two machines differ by


class Jumps:
    """For one who looks again and again."""

    def __init__(self) -> None:
        self._ahead = _ahead()

    def look(self) -> float:
        """By how many seconds the time of day was set since the last look: less than 0 is back, 0.0 not to speak of."""
        before, self._ahead = self._ahead, _ahead()
        jump = self._ahead - before
        return jump if abs(jump) >= JUMP_S else 0.0


def rest(stopping: Event, seconds: float) -> None:
    """Until then, or until it is set. By no `wait` of the event's: in a Python that was built for a glibc before 2.30,
    as portable ones are, locks wait by the time of day.
    """
    deadline = time.monotonic() + seconds
    while not stopping.is_set() and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, REST_S))


def _ahead() -> float:
    return time.time() - time.monotonic()
