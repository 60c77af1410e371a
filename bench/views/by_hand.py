"""What a PySpark user writes: rows of a micro-batch are collected in `foreachBatch` and upserted, one transaction each.

The rows are made and counted before the clock starts, since the applier's are in the topic, too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from bench.spark.bench import Used, measured
from bench.views.bench import Bench

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "id long, product string, revenue double, orders long"
TABLE = "(id BIGINT PRIMARY KEY, product TEXT, revenue DOUBLE PRECISION, orders BIGINT)"
NEW = "product = excluded.product, revenue = excluded.revenue, orders = excluded.orders"
SQLITE_UPSERT = f"INSERT INTO view VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET {NEW}"
POSTGRES_UPSERT = f"INSERT INTO view VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET {NEW}"

Upsert = Callable[[Sequence[Any]], None]


def upserted(bench: Bench, topic: str, size: int, store: str, *, rows: int) -> Used:
    """Of rows that are there, micro-batch by micro-batch. `rows`: as many as there are in the end."""
    return hand_over(store, partial(_run_query, bench, topic, size), rows=rows)


def hand_over(store: str, run_query: Callable[[Upsert, Used], None], *, rows: int) -> Used:
    """Gives the query a function that upserts into an empty table of that store."""
    used = Used()
    if store.startswith("sqlite:///"):
        with closing(sqlite3.connect(Path(store.removeprefix("sqlite:///")), check_same_thread=False)) as lite:
            # As the applier has its file: readers do not wait, and a power cut may take the last transactions.
            lite.execute("PRAGMA journal_mode = WAL")
            lite.execute("PRAGMA synchronous = NORMAL")
            lite.execute(f"CREATE TABLE view {TABLE}")
            run_query(partial(into_sqlite, lite), used)
            (count,) = lite.execute("SELECT count(*) FROM view").fetchone()
    else:
        place, _, schema = store.partition("&schema=")
        with psycopg.connect(place) as connection:
            connection.execute(f"CREATE SCHEMA {schema}".encode())
            connection.execute(f"SET search_path = {schema}".encode())
            connection.execute(f"CREATE TABLE view {TABLE}".encode())
            connection.commit()
            run_query(partial(into_postgres, connection), used)
            found = connection.execute("SELECT count(*) FROM view").fetchone()
            count = 0 if found is None else int(found[0])
    assert count == rows, f"{count} rows of {rows}"
    return used


def into_sqlite(connection: sqlite3.Connection, rows: Sequence[Any]) -> None:
    with connection:
        connection.executemany(SQLITE_UPSERT, rows)


def into_postgres(connection: psycopg.Connection[Any], rows: Sequence[Any]) -> None:
    with connection.transaction(), connection.cursor() as cursor:
        cursor.executemany(POSTGRES_UPSERT, rows)


def _run_query(bench: Bench, topic: str, size: int, upsert: Upsert, used: Used) -> None:
    def each(rows: DataFrame, batch_id: int) -> None:
        kept = rows.persist()
        kept.count()
        with measured() as one:
            upsert([tuple(row) for row in kept.collect()])
        used.seconds += one.seconds
        used.cpu += one.cpu
        kept.unpersist()

    writer = rows_from(bench, topic, size).writeStream.foreachBatch(each).trigger(availableNow=True)
    writer.option("checkpointLocation", str(bench.folder / bench.new_name())).start().awaitTermination()


def rows_from(bench: Bench, topic: str, size: int) -> DataFrame:
    """A stream in micro-batches of that size."""
    from pyspark.sql import functions as F

    read = bench.session.readStream.format("tidelog").option("kafka.bootstrap.servers", bench.broker)
    read = read.option("subscribe", topic).option("startingOffsets", "earliest")
    values = read.option("maxOffsetsPerTrigger", str(size)).load().select(F.col("value").cast("string").alias("value"))
    return values.select(F.from_json("value", SCHEMA).alias("row")).select("row.*")
