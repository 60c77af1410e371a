"""A stream of Spark over the events of a store, with state and a sink: `python erasure_pipeline.py BOOTSTRAP FOLDER`.

Everything that it writes is below FOLDER: the checkpoint with its state, `spark.local.dir`, the sink, temporary files.
"""

from __future__ import annotations

import shutil
import sys

import tidelog


def main(bootstrap: str, folder: str) -> None:
    temporary = f"-Djava.io.tmpdir={folder}/tmp"
    settings = {
        "spark.local.dir": f"{folder}/local",
        "spark.driver.extraJavaOptions": temporary,
        "spark.sql.shuffle.partitions": "2",
        "spark.shuffle.compress": "false",  # what is compressed is not found by a search
        "spark.sql.parquet.compression.codec": "uncompressed",
        "spark.cleaner.referenceTracking": "false",  # what a shuffle has written stays where it is looked for
    }
    spark = tidelog.spark_session("erasure", cores=2, settings=settings)
    events = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "people.events")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("cast(key as string) as entity", "cast(value as string) as value")
    )
    latest = events.groupBy("entity").agg({"value": "max", "entity": "count"})
    query = (
        latest.writeStream.outputMode("update")
        .foreachBatch(lambda rows, batch: rows.write.mode("append").parquet(f"{folder}/sink"))
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for name in ("local", "tmp"):  # a session clears them up when it ends
        sockets = shutil.ignore_patterns("*.sock")
        shutil.copytree(f"{folder}/{name}", f"{folder}/{name}.copy", ignore=sockets, ignore_dangling_symlinks=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
