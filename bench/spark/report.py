"""The figures as tables: on the terminal, as docs/benchmarks_spark.md, and as JSON with every single value."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

from bench.broker import report as of_brokers
from bench.broker.figures import Figures
from bench.broker.load import REPOSITORY
from bench.spark.figures import PAIRS, SESSION_SIDES, TOPIC_SIDES, better, goal_of

PAGE = REPOSITORY / "docs" / "benchmarks_spark.md"
RESULTS = REPOSITORY / "bench" / "results" / "spark.json"

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


def tables(figures: Figures) -> tuple[list[list[str]], list[list[str]]]:
    """From topics, and of sessions."""
    return _table(figures, TOPIC_SIDES), _table(figures, SESSION_SIDES)


def _table(figures: Figures, sides: tuple[str, ...]) -> list[list[str]]:
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
            cells.append(of_brokers.shown(figures.median(row, metric, side)))
            times = better(figures, row, metric, pair) if pair else None
            cells += [] if pair is None else [f"{times:.2f}" if times else ""]
        goal = goal_of(row, metric)
        met = goal.is_met(figures, row) if goal else None
        verdict = "" if met is None else ("met" if met else "MISSED")
        lines.append([row, metric, *cells, goal.says() if goal else "", verdict])
    return lines


def print_tables(figures: Figures) -> None:
    for lines in tables(figures):
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        for line in lines:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        print()


def markdown(figures: Figures, taken: dict[str, Any]) -> str:
    topics, sessions = tables(figures)
    out = [HEAD, *_lines(topics), SESSIONS, *_lines(sessions), "", "## Taken", ""]
    for name, facts in taken.items():
        out.append(
            f"- `{name}`: {facts['date']}, commit {facts['commit']}, {facts['reps']} repetitions, load"
            f" {facts['load']}, on {facts['machine']}, PySpark {facts['pyspark']}"
        )
    return "\n".join(out) + "\n"


def _lines(table: list[list[str]]) -> list[str]:
    head, *lines = table
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(line) + " |" for line in lines),
    ]


def facts(reps: int) -> dict[str, Any]:
    """The load is the run's own and that of others: on two cores a run of its own has about two."""
    return {**of_brokers.facts(reps), "pyspark": version("pyspark"), "load": f"{os.getloadavg()[1]:.1f}"}


def publish(figures: Figures, earlier: list[dict[str, Any]], taken: dict[str, Any]) -> None:
    """This run's figures, and those of an earlier one for the rows that this one has not taken."""
    shown = of_brokers.merged(figures, earlier)
    of_brokers.keep(RESULTS, shown, taken)
    PAGE.write_text(markdown(shown, taken))


def earlier() -> dict[str, Any]:
    return of_brokers.earlier(RESULTS)
