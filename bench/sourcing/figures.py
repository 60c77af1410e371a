"""Sides, metrics and goals of the rows of event sourcing."""

from __future__ import annotations

from bench.figures import Figures, times_better

TIDELOG, SQLITE, POSTGRES = SIDES = ("Tidelog", "eventsourcing, SQLite", "eventsourcing, PostgreSQL")

COMMANDS, LATENCY, LATENCY_99, CPU_US = "commands/s", "median ms", "p99 ms", "CPU us/command"
EVENTS, REPLAY_CPU = "events/s", "CPU us/event"
SECONDS, CPU_S, MEMORY = "seconds", "CPU s", "memory MB"
EVENTS_READ, SECONDS_TO_END = "events read", "seconds to end"
LARGE_IS_GOOD = (COMMANDS, EVENTS)
GOALS = {("16 clients", COMMANDS): 10, ("replay", EVENTS): 5}


def better(figures: Figures, row: str, metric: str) -> float | None:
    """How many times ours is ahead of the better of the peers."""
    ours, large = figures.median(row, metric, TIDELOG), metric in LARGE_IS_GOOD
    theirs = [one for side in (SQLITE, POSTGRES) if (one := figures.median(row, metric, side)) is not None]
    best = (max if large else min)(theirs, default=None)
    return times_better(ours, best, large_is_good=large)


def goal_of(figures: Figures, row: str, metric: str) -> tuple[str, bool | None]:
    """What was to be reached, and whether it is."""
    times, wanted = better(figures, row, metric), GOALS.get((row, metric))
    if wanted is None:
        return "", None
    return f"{wanted} times the library", None if times is None else times >= wanted
