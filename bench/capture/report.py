"""The figures as a table: on the terminal, as docs/benchmarks_capture.md, and as JSON with every single value."""

from __future__ import annotations

from bench import reporting
from bench.capture.bench import HEAP
from bench.capture.figures import SIDES, better, goal_of
from bench.figures import Figures
from bench.reporting import Page, Table, Taken, shown, shown_times, verdict

HEAD = f"""# Benchmarks of capture

Written by `make bench-capture`; do not edit. All sides take turns in one run on one machine, on the same database and
the same Tidelog broker; figures are medians.

- *Debezium* 3.6 for PostgreSQL, and 3.5 for MariaDB, run on a worker of Kafka Connect 4.3, a heap of {HEAP}, exactly
  once as ours, by their defaults and with `poll.interval.ms=10`. A row without their figures was taken without them.
- Nothing warms a side up: the worker's JVM is cold in Debezium's first turn, and warm in that of 10 ms.
- *Snapshot rows/s*: 200,000 rows of about 120 bytes. *Changes/s*: a backlog of 300,000 inserts in transactions of 100.
  Both from the first record in the topic to the last, so that no side's start counts.
- *CPU* is of the process that captures, during the backlog. *Memory* is its largest resident size then.
- *Delay*: 500 inserts a second, each a transaction, from just before it is sent to the database until a consumer of
  committed records has it.
- *us/write*: a session that inserts row after row, with and without what capture needs: the log with a slot or binlog
  (`wal_level` is `logical` in all of them), and triggers. Nothing reads meanwhile. The servers do not sync.
- *Large transaction*: the same with 100,000 and with 5,000,000 rows in one transaction.
- *Times*: our capture by the log beside Debezium by its defaults; above 1 is ahead.
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


PAGE = Page(
    path=reporting.DOCS / "benchmarks_capture.md",
    results=reporting.RESULTS / "capture.json",
    tables=lambda figures: [table(figures)],
    markdown=markdown,
    facts=reporting.facts,
)
