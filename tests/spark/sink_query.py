"""A program that copies a topic until it is killed: `sink_query.py BOOTSTRAP INPUT OUTPUT CHECKPOINT`."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

ROWS_A_MICRO_BATCH = 40
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def copy(
    spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: str, **options: str
) -> StreamingQuery:
    """What there is; `options` are of the read."""
    read = spark.readStream.format("tidelog").options(
        **{"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest", **options}
    )
    write = read.load().select("key", "value").writeStream.format("tidelog").queryName(f"copy-{target}")
    write = write.options(**{"kafka.bootstrap.servers": bootstrap, "topic": target, "checkpointLocation": checkpoint})
    return write.trigger(availableNow=True).start()


if __name__ == "__main__":
    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    slowly = {"maxOffsetsPerTrigger": str(ROWS_A_MICRO_BATCH), "minPartitions": "4"}
    copy(session, *sys.argv[1:5], **slowly).awaitTermination()
