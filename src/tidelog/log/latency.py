"""How long something took, counted by size: a histogram of fixed bounds, cheap enough to be always on."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Histogram:
    """`counts[n]` took at most `BOUNDS_S[n]`, and longer than the bound before; the last one longer than all."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds
