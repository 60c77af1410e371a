"""Count and last value by key from a topic, three ways, in a Spark session of its own; or a stateful operator.

fold      `run_fold`: the mechanism under Tidelog's stateful operators, RocksDB
per key   `transformWithState` with a group a key, Row flavour, as Spark's guide has it, RocksDB
native    groupBy in the JVM; state on the heap, Tidelog's default, or in RocksDB
operators `sides/stateful.py`, and by hand the same with a group a key (`by_key/`), both in RocksDB

What would be over only after the last row is left alone: a micro-batch without rows is in no figure.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from typing import TYPE_CHECKING, Any

from bench.pipelines.by_key.programs import BY_HAND, by_hand
from bench.pipelines.count_and_last import OUTPUT, CountAndLast, PerKey
from bench.pipelines.keyed import CHECKSUM_SQL, PARTITIONS, checksum_sql
from bench.pipelines.sides.marks import ended, say, work
from bench.pipelines.sides.stateful import OPERATORS
from bench.session import QUIET

import tidelog
from tidelog.pipelines.operators.changelog import SEQ
from tidelog.pipelines.operators.state.operator import run_fold
from tidelog.spark.providers import state_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.02
PROGRESS = {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
NO_EMPTY_BATCHES = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}


def main() -> None:
    given = work()
    folder = tempfile.mkdtemp(prefix="tidelog-state-", dir=given["folder"])
    settings = {**QUIET, **PROGRESS, **NO_EMPTY_BATCHES, "spark.local.dir": folder}
    session = tidelog.spark_session("state", cores=PARTITIONS, memory=given["heap"], settings=settings)
    try:
        query = started(session, given, f"{folder}/checkpoint")
        while query.isActive and len(with_rows(query)) < given["warm"]:
            time.sleep(LOOK_S)
        say("begin")
        query.awaitTermination()
        ended(batches=[told(one) for one in with_rows(query)])
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)


def started(session: SparkSession, given: dict[str, Any], checkpoint: str) -> StreamingQuery:
    reader = session.readStream.format("tidelog").option("kafka.bootstrap.servers", given["bootstrap"])
    reader = reader.option("subscribe", given["topic"]).option("startingOffsets", "earliest")
    rows = reader.option("maxOffsetsPerTrigger", str(given["a_batch"])).load()
    rows = rows.selectExpr("cast(string(key) as bigint) key", "cast(string(value) as bigint) value", "offset")
    counted = (WAYS | STATEFUL)[given["way"]](rows)
    observed = counted.selectExpr("*").observe("sums", *sums(given["way"], counted.columns))
    writer = observed.writeStream.format("noop").option("checkpointLocation", checkpoint)
    kind = "heap" if given["way"] == "native, heap" else "rocksdb"
    with state_store(counted, kind):
        return writer.outputMode("append" if given["way"] in APPENDING else "update").trigger(availableNow=True).start()


def sums(way: str, columns: list[str]) -> list[Any]:
    from pyspark.sql import functions as F

    whole = checksum_sql(name for name in columns if name != SEQ)
    return [F.count("*").alias("rows"), F.expr(CHECKSUM_SQL if way in WAYS else whole).alias("checksum")]


def fold(rows: DataFrame) -> DataFrame:
    return run_fold(rows.drop("offset"), ["key"], CountAndLast())


def per_key(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").transformWithState(PerKey(), OUTPUT, "Update", "None")


def native(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.groupBy("key").agg(F.count("*").alias("n"), F.max_by("value", "offset").alias("last"))


WAYS = {"fold": fold, "per key": per_key, "native, heap": native, "native, RocksDB": native}
STATEFUL = OPERATORS | {by_hand(name): program for name, program in BY_HAND.items()}
APPENDING = {"fold", *STATEFUL}


def with_rows(query: StreamingQuery) -> list[Any]:
    return [one for one in query.recentProgress if one.numInputRows]


def told(progress: Any) -> dict[str, Any]:
    end = progress.sources[0].endOffset
    found = progress.observedMetrics["sums"]
    return {
        "rows": progress.numInputRows,
        "seconds": progress.durationMs["triggerExecution"] / 1000,
        "end": json.loads(end) if isinstance(end, str) else end,
        "sums": [found["rows"], found["checksum"]],
    }


if __name__ == "__main__":
    main()
