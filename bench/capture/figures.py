"""Sides, metrics and goals of the rows of capture."""

from __future__ import annotations

from bench.figures import Figures, times_better

LOG, TRIGGERS = "Tidelog, log", "Tidelog, triggers"
DEBEZIUM, TUNED = "Debezium", "Debezium, poll 10 ms"
NONE = "no capture"
SIDES = (NONE, LOG, TRIGGERS, DEBEZIUM, TUNED)

SNAPSHOT, CHANGES = "snapshot rows/s", "changes/s"
CPU, MEMORY = "CPU s/M changes", "memory MB"
P50, P99 = "delay p50 ms", "delay p99 ms"
WRITE, BULK = "us/write", "us/row of a large insert"
SMALL_PEAK, LARGE_PEAK = "memory MB, small transaction", "memory MB, large transaction"
LARGE_IS_GOOD = (SNAPSHOT, CHANGES)


def better(figures: Figures, row: str, metric: str) -> float | None:
    """How many times our log capture is ahead of Debezium by its defaults."""
    ours, theirs = figures.median(row, metric, LOG), figures.median(row, metric, DEBEZIUM)
    return times_better(ours, theirs, large_is_good=metric in LARGE_IS_GOOD)


def goal_of(figures: Figures, row: str, metric: str) -> tuple[str, bool | None]:
    """What was to be reached, and whether it is; ours is capture by the log."""
    ours, tuned = figures.median(row, metric, LOG), figures.median(row, metric, TUNED)
    times = better(figures, row, metric)
    if metric in LARGE_IS_GOOD:
        return "2 times Debezium", None if times is None else times >= 2
    if metric == MEMORY:
        return "a fifth of Debezium", None if times is None else times >= 5
    if metric in (P50, P99):
        most = 10.0 if metric == P50 else 25.0
        met = None if ours is None else ours < most and (tuned is None or ours <= tuned)
        return f"below {most:.0f}, and tuned Debezium's", met
    return "", None
