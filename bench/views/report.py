"""The figures as a table: on the terminal, as docs/benchmarks_views.md, and as JSON with every single value."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

from bench.broker import report as of_brokers
from bench.broker.figures import Figures
from bench.broker.load import REPOSITORY
from bench.views.figures import APPLIER, BY_HAND, ONE_BY_ONE, better

PAGE = REPOSITORY / "docs" / "benchmarks_views.md"
RESULTS = REPOSITORY / "bench" / "results" / "views.json"

HEAD = """# Benchmarks of views

Written by `make bench-views`; do not edit. All sides take turns in one run on one machine; figures are medians.

- *Updates*: changes of a view, of 10,000 keys, in micro-batches of 1,000 or 10,000 rows, into an empty store. *Applier*
  reads them from the view's topic, decodes them and applies them; being behind, it takes several micro-batches in one
  transaction. *A transaction each* is the same applier where every micro-batch is one. *By hand* is what a PySpark user
  writes in `foreachBatch`: rows are collected and upserted by `executemany`, one transaction a micro-batch; only that
  is counted, not the query that made the rows. So is the applier: the query that fills the topic is not counted. What
  is written by hand says nothing of how far it has come: after a crash it may apply a micro-batch again.
- *From records*: the same 100,000 records from a topic through one aggregate of Spark's to the store, from the start of
  the query until the store has all of it: a declared view with its topic and its applier, beside a query by hand.
- CPU is of the process that writes, by hand with the JVM that hands it the rows, and never of the store's server.
- *Freshness*: from the time at which a record is due to be produced to the first look at the store that shows it,
  through `tidelog run` with one aggregate, at 1,000 records a second. *Feed*: one view's changes to many who follow it
  over HTTP, from the beginning of the transaction to the receipt of the event.
"""


def table(figures: Figures) -> list[list[str]]:
    """*Times*: ours beside what is written by hand; above 1 is ahead."""
    lines = [["row", "metric", APPLIER, "times", ONE_BY_ONE, "times", BY_HAND]]
    for row, metric in figures.rows():
        cells: list[str] = []
        for side in (APPLIER, ONE_BY_ONE):
            times = better(figures, row, metric, side)
            cells += [of_brokers.shown(figures.median(row, metric, side)), f"{times:.2f}" if times else ""]
        lines.append([row, metric, *cells, of_brokers.shown(figures.median(row, metric, BY_HAND))])
    return lines


def print_table(figures: Figures) -> None:
    lines = table(figures)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def markdown(figures: Figures, taken: dict[str, Any]) -> str:
    head, *lines = table(figures)
    out = [HEAD, f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(line)} |" for line in lines)]
    out += ["", "## Taken", ""]
    for name, facts in taken.items():
        out.append(
            f"- `{name}`: {facts['date']}, commit {facts['commit']}, {facts['reps']} repetitions, load"
            f" {facts['load']}, on {facts['machine']}, PySpark {facts['pyspark']}"
        )
    return "\n".join(out) + "\n"


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
