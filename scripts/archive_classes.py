"""Writes an archive of Spark's classes as a JVM has them in memory: one that is started with it need not read, check
and lay out ten thousand classes anew.

    python scripts/archive_classes.py .make/spark.jsa

Tests start many JVMs, most of them for seconds, and `tests/conftest.py` gives them the archive where there is one. A
JVM of another Java, or with other jars, does without it and says nothing. The classes are those that a few queries
load: of Spark's own state and of ours, from topic to topic, as a stream and as a batch.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

import tidelog
from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.time import event_time
from tidelog.pipelines.operators.windows.tumbling import tumbling
from tidelog.testing.broker import TestBroker
from tidelog.testing.pipeline import PipelineDriver

QUIET = "-Xlog:disable -Xlog:all=error:stderr"  # which classes cannot be in it is nobody's business
SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
SECONDS = 300
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"late": "correct", "allowed_lateness": "3 minutes"},
)  # Spark's own state, and ours


def main(archive: Path) -> None:
    unfinished = archive.with_suffix(".new")
    os.environ["SPARK_SUBMIT_OPTS"] = f'{SHORT_LIFE} {QUIET} "-XX:ArchiveClassesAtExit={unfinished}"'
    settings = {"spark.log.level": "ERROR", "spark.ui.port": "0", "spark.ui.showConsoleProgress": "false"}
    spark = tidelog.spark_session("classes", cores=2, memory="1g", settings=settings)
    run_windows(spark)
    copy_topic(spark)
    gateway: Any = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    if gateway.proc.wait(SECONDS) == 0 and unfinished.exists():  # it is written when the JVM ends
        unfinished.rename(archive)
    else:
        print("this Java has written no archive of classes; the tests do without")


def run_windows(spark: SparkSession) -> None:
    with PipelineDriver(spark) as driver:
        for more in KINDS:
            clicks = driver.input("clicks", "user string, at timestamp")
            run = driver.run(counted(more), clicks)
            for time in ("10:00", "10:05"):
                clicks.add([("ada", time)])
                run.step()
            run.restart()
            run.finish()
            run.batch()
            run.fold_states()


def counted(more: dict[str, Any]) -> Any:
    def pipeline(clicks: DataFrame) -> DataFrame:
        timed = clicks.transform(event_time("at", "10 seconds"))
        return timed.transform(tumbling("1 minute", by="user", aggregates={"clicks": agg.count()}, **more))

    return pipeline


def copy_topic(spark: SparkSession) -> None:
    with tempfile.TemporaryDirectory() as folder, TestBroker(Path(folder) / "broker") as broker:
        at = {"kafka.bootstrap.servers": broker.bootstrap}
        for topic in ("words", "copies"):
            broker.create_topic(topic, partitions=2)
        broker.produce("words", ["one", "two"])
        words = spark.readStream.format("tidelog").options(**at, subscribe="words", startingOffsets="earliest").load()
        copying = words.select("key", "value").writeStream.format("tidelog").trigger(availableNow=True)
        copying.options(**at, topic="copies", checkpointLocation=f"{folder}/checkpoint").start().awaitTermination()
        copies = spark.read.format("tidelog").options(**at, subscribe="copies").load()
        assert copies.selectExpr("from_json(cast(value as string), 'a int')", "offset").groupBy().count().collect()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
