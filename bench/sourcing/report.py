"""The figures as a table: on the terminal, as docs/benchmarks_sourcing.md, and as JSON with every single value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bench import reporting
from bench.figures import Figures
from bench.reporting import Page, Table, Taken, shown, shown_times, verdict
from bench.run import Run
from bench.sourcing.figures import SIDES, better, goal_of

NOTE = "TIDELOG_BENCH_NOTE"
HEAD = """# Benchmarks of event sourcing

Written by `make bench-sourcing`; do not edit. All sides take turns in one run on one machine; figures are medians.
`TIDELOG_BENCH_NOTE` in the environment is told with the rows that a run took.

- *eventsourcing* is the Python library of that name, 9.5, on a file of SQLite (WAL, `synchronous=FULL`) and on a server
  of PostgreSQL (`fsync` and `synchronous_commit` on). Tidelog is a broker and an event store of one partition.
- *A command* makes one event, of a new entity, and is on disk when it is answered, on all sides. Clients are threads of
  one process, and send one command after the other. *CPU* is of that process: of clients with the owner of the
  partition, or with the library; no broker's or server's is in it.
- *Replay* folds a history of 20,000 events through decoding and the user's `apply`; *CPU* is of the thread that reads.
- *Take-over*: a new process becomes the owner of a partition, from fencing the last one to the first command that it
  may decide. *CPU* and *memory* are of the whole process by then, imports included. Entities have one event each, and
  100,000 of them stay decoded (`cache_entities`). *To end* is what a stop takes: after a start from events alone, a
  snapshot of every entity is written.
- *Times*: Tidelog beside the better one of the two; above 1 is ahead.
- *Load* is the machine's, over five minutes, when a row was done: a run alone on two cores has about two. Where it is
  more, rates by the clock say little, and CPU is the better guide.
"""


def table(figures: Figures) -> Table:
    lines = [["row", "metric", *SIDES, "times", "goal", ""]]
    for row, metric in figures.rows():
        goal, met = goal_of(figures, row, metric)
        cells = [shown(figures.median(row, metric, side)) for side in SIDES]
        lines.append([row, metric, *cells, shown_times(better(figures, row, metric)), goal, verdict(met)])
    return lines


def markdown(figures: Figures, taken: Taken) -> str:
    return "\n".join([HEAD, *reporting.as_markdown(table(figures)), *reporting.taken_as_markdown(taken)]) + "\n"


def facts(run: Run) -> Mapping[str, Any]:
    note = os.environ.get(NOTE)
    told = {**reporting.facts(run), "share": run.share, "load": f"{os.getloadavg()[1]:.1f}"}
    return told if note is None else {**told, "note": note}


PAGE = Page(
    path=reporting.DOCS / "benchmarks_sourcing.md",
    results=reporting.RESULTS / "sourcing.json",
    tables=lambda figures: [table(figures)],
    markdown=markdown,
    facts=facts,
)
