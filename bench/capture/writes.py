"""Row `writes`: what capture costs the application, by time of a session that writes one row after the other."""

from __future__ import annotations

import time

from bench.capture.bench import Bench, until
from bench.capture.changes import filled
from bench.capture.delay import connected
from bench.capture.figures import BULK, LOG, NONE, TRIGGERS, WRITE

WRITES, BULK_ROWS = 20_000, 100_000


def run(bench: Bench) -> None:
    for database in bench.databases:
        for _ in range(bench.reps):
            for side in (NONE, LOG, TRIGGERS):
                turn(bench, database, side)


def turn(bench: Bench, database: str, side: str) -> None:
    table = bench.new_table(database)
    bench.run_sql(database, f"INSERT INTO {table} VALUES (0, 0, 0, 'first')")
    if side == NONE:
        written(bench, database, side, table)
        return
    with bench.capturing(database, side, table, f"p{table}") as one:
        until(lambda: bench.end_of(one.topic) > 0, "no record came")
    written(bench, database, side, table)  # stopped: what it costs is the log's or the triggers', not its CPU time


def written(bench: Bench, database: str, side: str, table: str) -> None:
    count, rows = bench.amount(WRITES), bench.amount(BULK_ROWS)
    connection = connected(bench, database)
    cursor = connection.cursor()
    began = time.perf_counter()
    for number in range(1, count + 1):
        cursor.execute(f"INSERT INTO {table} VALUES ({number}, 1, 0, 'a note of some length')")
    bench.figures.add(f"{database}, writes", WRITE, side, (time.perf_counter() - began) / count * 1e6)
    began = time.perf_counter()
    cursor.execute(filled(database, table, count + 1, count + rows))
    bench.figures.add(f"{database}, writes", BULK, side, (time.perf_counter() - began) / rows * 1e6)
    connection.close()
