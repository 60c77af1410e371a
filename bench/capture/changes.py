"""Row `changes`: a table is read, then a backlog of changes, by each side. Rates from the first record to the last."""

from __future__ import annotations

from bench.capture.bench import MARIADB, Bench, watched
from bench.capture.figures import CHANGES, CPU, MEMORY, SNAPSHOT

ROWS, BACKLOG = 200_000, 300_000
STATEMENT = 100  # rows of one transaction of the backlog


def run(bench: Bench) -> None:
    for database in bench.databases:
        for _ in range(bench.reps):
            for side in bench.sides(database):
                turn(bench, database, side)


def turn(bench: Bench, database: str, side: str) -> None:
    rows, backlog = bench.amount(ROWS), bench.amount(BACKLOG)
    table = bench.new_table(database)
    prefix = f"p{table}"
    bench.run_sql(database, filled(database, table, 1, rows))
    if database != MARIADB:
        bench.run_sql(database, f"ANALYZE {table}")
    with bench.capturing(database, side, table, prefix) as one:
        found = watched(bench, one, 0, rows)
        bench.figures.add(f"{database}, changes", SNAPSHOT, side, found.records / found.seconds)
    begin = bench.end_of(one.topic)
    bench.run_sql(
        database,
        *(filled(database, table, rows + 1 + at, rows + at + STATEMENT) for at in range(0, backlog, STATEMENT)),
    )
    with bench.capturing(database, side, table, prefix) as one:
        found = watched(bench, one, begin, backlog)
    bench.figures.add(f"{database}, changes", CHANGES, side, found.records / found.seconds)
    bench.figures.add(f"{database}, changes", CPU, side, found.cpu / found.records * 1e6)
    bench.figures.add(f"{database}, changes", MEMORY, side, found.peak_mb)


def filled(database: str, table: str, first: int, last: int) -> str:
    """Rows of about 120 bytes."""
    series = f"generate_series({first}, {last}) AS g(seq)" if database != MARIADB else f"seq_{first}_to_{last}"
    return f"INSERT INTO {table} SELECT seq, seq % 1000, 0, CONCAT('a note of some length, number ', seq) FROM {series}"
