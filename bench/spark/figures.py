"""Sides of the rows about Spark, what each figure should be, and how many times better ours is.

A side is a connector on a broker, or a session. Ours on Apache Kafka is compared with Spark's JVM connector on the same
Apache Kafka, ours on Tidelog with it on the same Tidelog, and a goal is met where it is met on both.
"""

from __future__ import annotations

from typing import NamedTuple

from bench.figures import Figures, times_better

OURS, JVM = "tidelog", "kafka"  # Spark's names of the formats
KAFKA, TIDELOG = "Kafka", "Tidelog"  # brokers
OURS_KAFKA, JVM_KAFKA = "ours, Kafka", "JVM, Kafka"
OURS_TIDELOG, JVM_TIDELOG = "ours, Tidelog", "JVM, Tidelog"
PARQUET = "Parquet"
TOPIC_SIDES = (OURS_KAFKA, JVM_KAFKA, OURS_TIDELOG, JVM_TIDELOG, PARQUET)
OUR_SESSION, DEFAULT_SESSION = "our session", "PySpark's defaults"
SESSION_SIDES = (OUR_SESSION, DEFAULT_SESSION)
PAIRS = ((OURS_KAFKA, JVM_KAFKA), (OURS_TIDELOG, JVM_TIDELOG), (OUR_SESSION, DEFAULT_SESSION))

LARGE_IS_GOOD = ("rows/s", "MB/s")


def side_of(connector: str, broker: str) -> str:
    return f"{'ours' if connector == OURS else 'JVM'}, {broker}"


class Goal(NamedTuple):
    row: str
    """What the row's name begins with."""
    metric: str
    times: float | None = None
    """Better than the other side of the pair; None for a bound in the metric's own unit."""
    bound: float | None = None

    def says(self) -> str:
        return f"{self.times:g} x" if self.times else f"below {self.bound:g}"

    def is_met(self, figures: Figures, row: str) -> bool | None:
        if self.times is not None:
            found = [times for pair in PAIRS if (times := better(figures, row, self.metric, pair)) is not None]
            return min(found) >= self.times if found else None
        ours = figures.median(row, self.metric, OUR_SESSION)
        return None if ours is None or self.bound is None else ours < self.bound


GOALS = (
    Goal("read 100 B", "rows/s", times=3.5),
    Goal("read 1 KB", "rows/s", times=2),
    Goal("topic to topic 100 B, exactly once", "rows/s", times=2),
    Goal("topic to topic 1 KB, exactly once", "rows/s", times=2),
    Goal("micro-batch of 10 rows, topic", "ms", times=3),
    Goal("age of a record", "p50 ms", bound=100),
)


def goal_of(row: str, metric: str) -> Goal | None:
    return next((goal for goal in GOALS if row.startswith(goal.row) and metric == goal.metric), None)


def better(figures: Figures, row: str, metric: str, pair: tuple[str, str]) -> float | None:
    ours, theirs = (figures.median(row, metric, side) for side in pair)
    return times_better(ours, theirs, large_is_good=metric in LARGE_IS_GOOD)
