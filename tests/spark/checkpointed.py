"""A program with three queries, to be killed and started anew: do they go on with neither a loss nor a double?

    python checkpointed.py FOLDER UNTIL [--defaults] [--java-by-pip] [--rounds N]

One query is stateless and writes files, one counts on the JVM's heap, one counts in RocksDB. The source is Spark's own:
micro-batch N has rows 10 N to 10 N + 9, so each count is known beforehand, and a micro-batch whose counts are not ends
the program. All that must last is in `FOLDER/disk`. `FOLDER/progress` says how many micro-batches every query has
committed; after UNTIL it stops them, looks at the files and says "whole". With rounds it does so again and again, each
time from what is in the folder when a line comes by standard input, and UNTIL counts from there.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import tidelog
from tidelog.spark import java
from tidelog.spark.providers import state_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS = 10
KEYS = 4
PACE = "100 milliseconds"
LOOK_S = 0.05
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",  # for a short life
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    # Snapshots of state within a few micro-batches, where they would come after a minute.
    "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("until", type=int)
    parser.add_argument("--defaults", action="store_true")
    parser.add_argument("--java-by-pip", action="store_true")
    parser.add_argument("--rounds", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.java_by_pip:
        java.USUAL_FOLDERS = ()
    settings = {**SETTINGS, "spark.local.dir": str(arguments.folder / "local")}
    spark = default_session(settings) if arguments.defaults else tidelog.spark_session(memory="1g", settings=settings)
    print("Java in", spark._jvm.System.getProperty("java.home"), flush=True)  # type: ignore[union-attr]
    for _ in range(arguments.rounds):
        sys.stdin.readline()
        run(spark, arguments.folder, last_commit(arguments.folder) + arguments.until)
    if not arguments.rounds:
        run(spark, arguments.folder, arguments.until)
    spark.stop()


def default_session(settings: dict[str, str]) -> SparkSession:
    """As anyone would make it who has never heard of Tidelog."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "1g")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(spark: SparkSession, folder: Path, until: int) -> None:
    disk = folder / "disk"
    disk.mkdir(exist_ok=True)
    queries = [start_files(spark, disk), start_counts(spark, disk, "heap"), start_counts(spark, disk, "rocksdb")]
    while (done := min(map(committed, queries))) < until:
        for query in queries:
            if query.exception() is not None:
                sys.exit(str(query.exception()))
        (folder / "progress").write_text(str(done))
        time.sleep(LOOK_S)
    for query in queries:
        query.stop()
    # What writes snapshots of state behind the queries' backs must be still before the folder is taken away.
    spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()  # type: ignore[union-attr]
    values = sorted(row.value for row in spark.read.parquet(str(disk / "table")).select("value").collect())
    assert values == list(range(len(values))), values
    assert len(values) >= until * ROWS
    print("whole", flush=True)


def last_commit(folder: Path) -> int:
    return max((int(path.name) + 1 for path in folder.glob("disk/*/commits/*") if path.name.isdigit()), default=0)


def committed(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return 0 if progress is None else int(progress["batchId"]) + 1


def numbers(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()


def start_files(spark: SparkSession, disk: Path) -> StreamingQuery:
    writer = numbers(spark).writeStream.format("parquet").option("checkpointLocation", str(disk / "files"))
    return writer.option("path", str(disk / "table")).trigger(processingTime=PACE).start()


def start_counts(spark: SparkSession, disk: Path, kind: str) -> StreamingQuery:
    counts = numbers(spark).selectExpr(f"value % {KEYS} as key").groupBy("key").count()
    writer = counts.writeStream.outputMode("complete").option("checkpointLocation", str(disk / kind))
    writer = writer.foreachBatch(check).trigger(processingTime=PACE)
    with state_store(counts, kind):  # type: ignore[arg-type]
        return writer.start()


def check(counts: DataFrame, micro_batch: int) -> None:
    expected = Counter(value % KEYS for value in range(ROWS * (micro_batch + 1)))
    found = {row["key"]: row["count"] for row in counts.collect()}
    assert found == expected, f"after micro-batch {micro_batch}: {found}, not {dict(expected)}"


if __name__ == "__main__":
    main()
