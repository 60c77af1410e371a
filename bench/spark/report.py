"""The figures as tables: on the terminal, as docs/benchmarks_spark.md, and as JSON with every single value."""

from __future__ import annotations

from bench import reporting
from bench.figures import Figures
from bench.reporting import Page, Table, Taken, as_markdown, goal_and_verdict, shown, shown_times
from bench.spark.figures import PAIRS, SESSION_SIDES, TOPIC_SIDES, better, goal_of

HEAD = """# Benchmarks of topics as DataFrames

Written by `make bench-spark`; do not edit. *Ours* is `format("tidelog")`, *JVM* is Spark's own Kafka connector,
`format("kafka")`; each reads and writes the same Apache Kafka 4.3 and the same Tidelog, in one warm session on all
cores, one after the other; figures are medians. *Times* is ours beside JVM on the same broker: above 1 is ahead.
Parquet is what Spark does with the same rows from files, as the ceiling. CPU is of the driver, the JVM and the Python
workers, without the broker. The JVM connector writes at least once, beside ours both ways. Every turn's rows were
counted and their checksums added up, and were the same on all sides.
"""
SESSIONS = """
## Sessions

Ours (`tidelog.spark_session`) beside PySpark's own defaults, both with our source.
"""


def tables(figures: Figures) -> tuple[Table, Table]:
    """From topics, and of sessions."""
    return _table(figures, TOPIC_SIDES), _table(figures, SESSION_SIDES)


def _table(figures: Figures, sides: tuple[str, ...]) -> Table:
    pairs = [pair for pair in PAIRS if pair[0] in sides]
    columns = [(side, next((pair for pair in pairs if pair[1] == side), None)) for side in sides]
    head = ["row", "metric"]
    for side, pair in columns:
        head += [side] if pair is None else [side, "times"]
    lines = [[*head, "goal", ""]]
    for row, metric in figures.rows():
        if all(figures.median(row, metric, side) is None for side in sides):
            continue
        cells: list[str] = []
        for side, pair in columns:
            cells.append(shown(figures.median(row, metric, side)))
            cells += [] if pair is None else [shown_times(better(figures, row, metric, pair))]
        lines.append([row, metric, *cells, *goal_and_verdict(goal_of(row, metric), figures, row)])
    return lines


def markdown(figures: Figures, taken: Taken) -> str:
    topics, sessions = tables(figures)
    out = [HEAD, *as_markdown(topics), SESSIONS, *as_markdown(sessions), *reporting.taken_as_markdown(taken)]
    return "\n".join(out) + "\n"


PAGE = Page(
    path=reporting.DOCS / "benchmarks_spark.md",
    results=reporting.RESULTS / "spark.json",
    tables=tables,
    markdown=markdown,
    facts=reporting.facts_with_spark,
)
