"""The figures as a table: on the terminal, as docs/benchmarks_views.md, and as JSON with every single value."""

from __future__ import annotations

from bench import reporting
from bench.figures import Figures
from bench.reporting import Page, Table, Taken, shown, shown_times
from bench.views.figures import APPLIER, BY_HAND, ONE_BY_ONE, OTHERS, SIDES, TIDELOG, better, times_other

HEAD = """# Benchmarks of views

Written by `make bench-views`; do not edit. All sides take turns in one run on one machine; figures are medians.

- *Updates*: changes of a view, of 10,000 keys, in micro-batches of 1,000 or 10,000 rows, into an empty store. *Applier*
  reads them from the view's topic, decodes them and applies them; being behind, it takes several micro-batches in one
  transaction. *A transaction each* is the same applier where every micro-batch is one. *By hand* is what a PySpark user
  writes in `foreachBatch` (`bench/views/hand_tables.py`): rows are collected and upserted as the store's own client has
  it, one transaction, merge or request a micro-batch; only that is counted, not the query that made the rows. So is the
  applier: the query that fills the topic is not counted. What is written by hand says nothing of how far it has come:
  after a crash it may apply a micro-batch again. Where large micro-batches go into files (SQLite, Parquet, Delta), by
  hand is ahead: it has the rows as objects, and the applier decodes each from JSON.
- *From records*: the same 100,000 records from a topic through one aggregate of Spark's to the store, from the start of
  the query until the store has all of it: a declared view with its topic and its applier, beside a query by hand. By
  hand is ahead: what a view's query makes is encoded, written to the view's topic in a transaction, read and decoded.
  That is what makes it exactly once, to be followed, and to be built anew.
- CPU is of the process that writes, by hand with the JVM that hands it the rows, and never of the store's server.
- *Feed*: one view's changes to many who follow it over HTTP, from the beginning of the transaction to the receipt of
  the event.
"""
FRESHNESS = """
## Freshness

- *Freshness*: from the time at which a record is due to be produced to the first look at the store that shows it,
  through `tidelog run` with one aggregate, at 1,000 records a second. *Fold*: the same with a window of ours that
  corrects itself. *Demo*: its three views, by its own figures. *Start*: from the start of the command until a view has
  what was in the topic. *Idle*: with nothing to read. CPU there is that of the run, of all that it has started, and of
  the broker. *Before* is the same program of an older checkout, where one was given.
- *To a reader of the topic*: the same aggregate, from the time at which a record is due to the moment at which a reader
  of committed records has the row that it went into. PyFlink with checkpoints of 100 ms and Quix Streams with a commit
  each 100 ms write exactly once, as a view does; Spark with its own Kafka connector knows no transaction, and writes at
  least once. All sides have the same records, and their last rows are compared with what was sent. CPU is that of the
  side and of the broker; ours has an applier in it. *Times*: above 1, ours is ahead.
"""


def table(figures: Figures) -> Table:
    """*Times*: ours beside what is written by hand; above 1 is ahead."""
    lines = [["row", "metric", APPLIER, "times", ONE_BY_ONE, "times", BY_HAND]]
    for row, metric in figures.rows():
        if all(figures.median(row, metric, side) is None for side in SIDES):
            continue
        cells: list[str] = []
        for side in (APPLIER, ONE_BY_ONE):
            cells += [shown(figures.median(row, metric, side)), shown_times(better(figures, row, metric, side))]
        lines.append([row, metric, *cells, shown(figures.median(row, metric, BY_HAND))])
    return lines


def freshness(figures: Figures) -> Table:
    lines = [["row", "metric", TIDELOG]]
    for side in OTHERS:
        lines[0] += [side, "times"]
    for row, metric in figures.rows():
        if (ours := figures.median(row, metric, TIDELOG)) is not None:
            cells = [shown(ours)]
            for side in OTHERS:
                times = shown_times(times_other(figures, row, metric, side))
                cells += [shown(figures.median(row, metric, side)), times]
            lines.append([row, metric, *cells])
    return lines


def tables(figures: Figures) -> list[Table]:
    return [lines for lines in (table(figures), freshness(figures)) if len(lines) > 1]


def markdown(figures: Figures, taken: Taken) -> str:
    out = [HEAD, *reporting.as_markdown(table(figures))]
    if len(fresh := freshness(figures)) > 1:
        out += [FRESHNESS, *reporting.as_markdown(fresh)]
    return "\n".join([*out, *reporting.taken_as_markdown(taken)]) + "\n"


PAGE = Page(
    path=reporting.DOCS / "benchmarks_views.md",
    results=reporting.RESULTS / "views.json",
    tables=tables,
    markdown=markdown,
    facts=reporting.facts_with_spark,
)
