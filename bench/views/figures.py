"""Sides and metrics of the rows of views."""

from __future__ import annotations

from bench.figures import Figures, times_better

APPLIER = "applier"
ONE_BY_ONE = "applier, a transaction each"
BY_HAND = "foreachBatch by hand"
SIDES = (APPLIER, ONE_BY_ONE, BY_HAND)

BEFORE = "before"
"""The same program of another checkout (`--before`)."""
TIDELOG, FLINK, QUIX, BY_TOPIC = "Tidelog", "PyFlink", "Quix Streams", "PySpark by hand, at least once"
OTHERS = (BEFORE, FLINK, QUIX, BY_TOPIC)

UPDATES = "updates/s"
CPU = "CPU s/M updates"
EVENTS = "events/s"
LARGE_IS_GOOD = (UPDATES, EVENTS)


def times_other(figures: Figures, row: str, metric: str, other: str) -> float | None:
    """How many times ours is ahead of it; what is measured of these is good where it is small."""
    ours, theirs = figures.median(row, metric, TIDELOG), figures.median(row, metric, other)
    return times_better(ours, theirs, large_is_good=False)


def better(figures: Figures, row: str, metric: str, side: str) -> float | None:
    """How many times a side of ours is ahead of what is written by hand."""
    ours, theirs = figures.median(row, metric, side), figures.median(row, metric, BY_HAND)
    return times_better(ours, theirs, large_is_good=metric in LARGE_IS_GOOD)
