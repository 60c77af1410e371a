"""Row `large`: one transaction that is fifty times another; the memory of capture must be the same."""

from __future__ import annotations

from bench.capture.bench import Bench, until, watched
from bench.capture.changes import filled
from bench.capture.figures import LARGE_PEAK, LOG, SMALL_PEAK, TRIGGERS

SMALL, LARGE = 100_000, 5_000_000


def run(bench: Bench) -> None:
    for database in bench.databases:
        for side in (LOG, TRIGGERS):
            for metric, rows in ((SMALL_PEAK, SMALL), (LARGE_PEAK, LARGE)):
                bench.figures.add(f"{database}, a large transaction", metric, side, peak(bench, database, side, rows))


def peak(bench: Bench, database: str, side: str, full: int) -> float:
    rows = bench.amount(full)
    table = bench.new_table(database)
    bench.run_sql(database, f"INSERT INTO {table} VALUES (0, 0, 0, 'first')")
    with bench.capturing(database, side, table, f"p{table}") as one:
        until(lambda: bench.end_of(one.topic) > 0, "no record came")
        begin = bench.end_of(one.topic)
        bench.run_sql(database, filled(database, table, 1, rows))
        return watched(bench, one, begin, rows).peak_mb
