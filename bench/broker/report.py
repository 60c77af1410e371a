"""Figures as a table on the terminal and as docs/benchmarks.md, with the machine, the commands, the date and the
goals."""

from __future__ import annotations

from bench import reporting
from bench.broker.figures import SIDES
from bench.broker.goals import better, goal_of
from bench.figures import Figures
from bench.reporting import Page, Table, Taken, goal_and_verdict, shown, shown_times

HEAD = """# Benchmarks

Written by `make bench-broker`; do not edit. How the figures are taken and how to read them is in
[guide/benchmarks.md](guide/benchmarks.md). Tidelog and Apache Kafka 4.3 take turns in one run on one machine; figures
are medians. *Synced* means that every ack waits until the record is on disk: Tidelog's default, and Apache Kafka with
`flush.messages=1`. *Better* is Tidelog synced beside Apache Kafka as it comes, which does not sync: above 1 is ahead.
"""


def table(figures: Figures) -> Table:
    lines = [["row", "metric", *SIDES, "better", "goal", ""]]
    for row, metric in figures.rows():
        cells = [shown(figures.median(row, metric, side)) for side in SIDES]
        times = shown_times(better(figures, row, metric))
        lines.append([row, metric, *cells, times, *goal_and_verdict(goal_of(row, metric), figures, row)])
    return lines


def markdown(figures: Figures, taken: Taken) -> str:
    return "\n".join([HEAD, *reporting.as_markdown(table(figures)), *reporting.taken_as_markdown(taken)]) + "\n"


PAGE = Page(
    path=reporting.DOCS / "benchmarks.md",
    results=reporting.RESULTS / "broker.json",
    tables=lambda figures: [table(figures)],
    markdown=markdown,
    facts=reporting.facts,
)
