"""Sides of the rows about pipelines, what each figure should be, and how many times better ours is."""

from __future__ import annotations

from typing import NamedTuple

from bench.figures import Figures, times_better

FOLD, PER_KEY, HEAP, ROCKSDB = STATE_SIDES = ("fold", "per key", "native, heap", "native, RocksDB")
TIDELOG, BY_HAND, CONNECTOR, QUIX, BYTEWAX, FLINK = QUERY_SIDES = (
    "Tidelog",
    "PySpark by hand",
    "PySpark, JVM connector",
    "Quix Streams",
    "Bytewax",
    "PyFlink",
)
OURS = (FOLD, TIDELOG)
RATE, CPU, MEMORY = METRICS = ("rows/s", "CPU s/M rows", "peak MB")
A_TIE = 0.95  # runs of the same plan differ by as much


class Goal(NamedTuple):
    row: str
    """What the row's name begins with."""
    peer: str | None
    """None for a bound in rows/s."""
    least: float

    def says(self) -> str:
        return f"above {self.least:,.0f}" if self.peer is None else f"{self.least:g} x {self.peer}"

    def is_met(self, figures: Figures, row: str) -> bool | None:
        if self.peer is None:
            found = next((value for side in OURS if (value := figures.median(row, RATE, side))), None)
            return None if found is None else found > self.least
        times = better(figures, row, RATE, self.peer)
        return None if times is None else times >= self.least


GOALS = (
    Goal("state of 100,000 keys, micro-batches of 500,000", None, 250_000),
    Goal("state of 1,000,000 keys, micro-batches of 500,000", None, 200_000),
    Goal("state", PER_KEY, 20),
    Goal("operator", PER_KEY, 20),
    Goal("q", BY_HAND, A_TIE),
    *(Goal("q", peer, 1) for peer in (QUIX, BYTEWAX, FLINK)),
)


def goals_of(row: str) -> list[Goal]:
    return [goal for goal in GOALS if row.startswith(goal.row)]


def better(figures: Figures, row: str, metric: str, peer: str) -> float | None:
    """How many times better ours is; above 1 is ahead."""
    ours = next((value for side in OURS if (value := figures.median(row, metric, side))), None)
    theirs = figures.median(row, metric, peer)
    return times_better(ours, theirs, large_is_good=metric == RATE)
