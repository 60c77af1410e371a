"""How much somebody has used of late, and how long they have to wait: the arithmetic of quotas. Pure.

A rate is a sum over the last `windows` windows, each `window_s` long, by the time since the oldest began; a meter that
has just begun counts as if all windows but one had passed, so that a first large request is not an excess. Above the
quota the wait is just long enough that the rate over the longer time is the quota: (rate - quota) / quota of that time.
These are Kafka's rules (quota.window.num, quota.window.size.seconds).
"""

from __future__ import annotations

from collections import deque

METERS_MAX = 10_000


class Meter:
    __slots__ = ("_samples", "_window_s", "_windows")

    def __init__(self, windows: int, window_s: float) -> None:
        self._windows = windows
        self._window_s = window_s
        self._samples: deque[list[float]] = deque()  # when it began, what was used in it

    def record(self, amount: float, now_s: float) -> None:
        self._forget(now_s)
        if not self._samples or now_s - self._samples[-1][0] >= self._window_s:
            self._samples.append([now_s, 0.0])
        self._samples[-1][1] += amount

    def used(self, now_s: float) -> float:
        self._forget(now_s)
        return sum(amount for _, amount in self._samples)

    def span_s(self, now_s: float) -> float:
        """The time that a rate is over."""
        elapsed = now_s - self._samples[0][0] if self._samples else 0.0
        whole = int(elapsed / self._window_s)
        missing = max(0, self._windows - 1 - whole)
        return max(elapsed + missing * self._window_s, 0.001)

    def wait_s(self, limit: float, now_s: float) -> float:
        """How long to wait so that the rate comes down to the limit; 0 when it is not above it."""
        used, span = self.used(now_s), self.span_s(now_s)
        return max(0.0, used / limit - span)

    def last_s(self) -> float:
        return self._samples[-1][0] if self._samples else 0.0

    def _forget(self, now_s: float) -> None:
        oldest = now_s - self._windows * self._window_s
        while self._samples and self._samples[0][0] <= oldest:
            self._samples.popleft()


class Meters:
    """One meter for each quota and whom it is shared by; those that are long unused are forgotten."""

    def __init__(self, windows: int, window_s: float) -> None:
        self._windows = windows
        self._window_s = window_s
        self._meters: dict[tuple[str, object], Meter] = {}

    def meter(self, key: str, sharers: object) -> Meter:
        found = self._meters.get((key, sharers))
        if found is None:
            if len(self._meters) >= METERS_MAX:
                self._drop_idle()
            found = self._meters[key, sharers] = Meter(self._windows, self._window_s)
        return found

    def _drop_idle(self) -> None:
        """The quarter that was used longest ago: client ids are anybody's choice, and must not fill the memory."""
        by_age = sorted(self._meters, key=lambda one: self._meters[one].last_s())
        for one in by_age[: METERS_MAX // 4]:
            del self._meters[one]
