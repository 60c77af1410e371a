"""What the figures should be: against Apache Kafka in the same run, or an absolute bound.

`better` is how many times better Tidelog with a sync before every ack is than Apache Kafka without one: more of what
should be large, less of what should be small.
"""

from __future__ import annotations

from typing import NamedTuple

from bench.broker.figures import KAFKA, KAFKA_DISK, TIDELOG_DISK
from bench.figures import Figures, times_better

LARGE_IS_GOOD = ("MB/s", "reader MB/s", "transactions/s", "records/s", "records read/s", "attacks/s", "workers busy")


class Goal(NamedTuple):
    row: str
    """What the row's name begins with, and may end with."""
    ends: str
    metric: str
    against: str | None
    """The side of Apache Kafka to be measured by; None for a bound in the metric's own unit."""
    times: float

    def fits(self, row: str, metric: str) -> bool:
        return row.startswith(self.row) and row.endswith(self.ends) and metric == self.metric

    def says(self) -> str:
        if self.against is None:
            return f"at most {self.times:g}"
        return f"{self.times:g} x {self.against}" if self.times != 1 else f"no worse than {self.against}"

    def is_met(self, figures: Figures, row: str) -> bool | None:
        ours = figures.median(row, self.metric, TIDELOG_DISK)
        if ours is None:
            return None
        if self.against is None:
            return ours <= self.times
        times = better(figures, row, self.metric, self.against)
        return None if times is None else times >= self.times


GOALS = (
    Goal("produce", "16 KB batches", "MB/s", KAFKA, 2),
    Goal("produce", "large batches", "MB/s", KAFKA, 1),
    Goal("consume", "", "MB/s", KAFKA, 1),
    Goal("transactions", "", "transactions/s", KAFKA, 1),
    Goal("transactions", "", "CPU s/1,000", KAFKA, 1),
    Goal("transactions", "", "records read/s", KAFKA, 1),
    Goal("compaction", "", "MB/s", KAFKA, 1),
    Goal("TLS", "", "MB/s", KAFKA, 1),
    Goal("acks,", "", "p99 ms", KAFKA_DISK, 1),
    Goal("latency at", "", "end to end p50 ms", KAFKA_DISK, 1),
    Goal("latency beside", "", "ack max ms", None, 1000),
    Goal("produce on a backlog", "", "times the CPU of an empty one", None, 1.1),
    Goal("launch to first ack", "", "ms", KAFKA, 15),
    Goal("memory", "", "idle MB", KAFKA, 10),
    Goal("memory", "", "after load MB", KAFKA, 10),
    Goal("one worker takes", "", "records/s", KAFKA, 1),
    Goal("8 workers of one partition", "", "times the ideal", None, 1.5),
    Goal("8 of our workers", "", "times the ideal", None, 1.5),
    Goal("1,000 idle consumers", "", "CPU ms/s each", None, 0.1),
    Goal("1,000 idle consumers", "", "record seen p50 ms", None, 2.0),
)


def goal_of(row: str, metric: str) -> Goal | None:
    return next((goal for goal in GOALS if goal.fits(row, metric)), None)


def better(figures: Figures, row: str, metric: str, against: str = KAFKA) -> float | None:
    ours, theirs = figures.median(row, metric, TIDELOG_DISK), figures.median(row, metric, against)
    return times_better(ours, theirs, large_is_good=metric in LARGE_IS_GOOD)
