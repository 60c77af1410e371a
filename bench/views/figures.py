"""Sides and metrics of the rows of views."""

from __future__ import annotations

from bench.figures import Figures, times_better

APPLIER = "applier"
ONE_BY_ONE = "applier, a transaction each"
BY_HAND = "foreachBatch by hand"
SIDES = (APPLIER, ONE_BY_ONE, BY_HAND)

UPDATES = "updates/s"
CPU = "CPU s/M updates"
EVENTS = "events/s"
LARGE_IS_GOOD = (UPDATES, EVENTS)


def better(figures: Figures, row: str, metric: str, side: str) -> float | None:
    """How many times a side of ours is ahead of what is written by hand."""
    ours, theirs = figures.median(row, metric, side), figures.median(row, metric, BY_HAND)
    return times_better(ours, theirs, large_is_good=metric in LARGE_IS_GOOD)
