"""What a PySpark user writes: rows of a micro-batch are collected in `foreachBatch` and upserted, one transaction each.

The rows are made and counted before the clock starts, since the applier's are in the topic, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bench.spark.bench import Used, measured
from bench.views.bench import Bench
from bench.views.hand_tables import Upsert, table_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "id long, product string, revenue double, orders long"


def upserted(bench: Bench, topic: str, size: int, store: str, *, rows: int) -> Used:
    """Of rows that are there, micro-batch by micro-batch. `rows`: as many as there are in the end."""
    return hand_over(store, partial(_run_query, bench, topic, size), rows=rows)


def hand_over(store: str, run_query: Callable[[Upsert, Used], None], *, rows: int) -> Used:
    """Gives the query a function that upserts into an empty table of that store."""
    used = Used()
    with table_in(store) as table:
        run_query(table.upsert, used)
        count = table.count()
    assert count == rows, f"{count} rows of {rows}"
    return used


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
