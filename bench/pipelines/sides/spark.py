"""One of Nexmark's queries in a Spark session of its own: with Tidelog's operators, or written by hand.

Both read and write by the same connector, so that operators are compared and not connectors; for q0 there is Spark's
own Kafka connector too. Checkpoints are written with every micro-batch, rows at least once. The query first goes over a
small topic of the same shape, since the JVM compiles what is called often.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.pipelines.oracle import KEYS
from bench.pipelines.sides import by_hand, with_operators
from bench.pipelines.sides.frames import Frames
from bench.pipelines.sides.marks import ended, say, work
from bench.session import QUIET

import tidelog
from tidelog.spark.foreach_batch import topic_writer
from tidelog.spark.providers import state_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIDELOG, BY_HAND, CONNECTOR = "Tidelog", "PySpark by hand", "PySpark, JVM connector"


def main() -> None:
    given = work()
    folder = tempfile.mkdtemp(prefix="tidelog-nexmark-", dir=given["folder"])
    settings = {**QUIET, "spark.local.dir": folder}
    if given["side"] == CONNECTOR:
        settings["spark.jars"] = ",".join(map(str, connector_jars()))
    session = tidelog.spark_session("nexmark", cores=given["partitions"], memory=given["heap"], settings=settings)
    try:
        drain(session, given, "warm", given["warm_output"], f"{folder}/warm")
        say("begin")
        drain(session, given, "topics", given["output"], f"{folder}/checkpoint")
        ended()
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)


def connector_jars() -> list[Path]:
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests"))
    from spark.connector import found_jars

    if not (jars := found_jars()):
        say("cannot", why="could not be had: no jars of Spark's Kafka connector; run `make spark-kafka` (Maven)")
        raise SystemExit(0)
    return jars


def drain(session: SparkSession, given: dict[str, Any], which: str, output: str, checkpoint: str) -> None:
    connector = "kafka" if given["side"] == CONNECTOR else "tidelog"
    frames = Frames(session, connector, given["bootstrap"], given[which], given["a_batch"])
    answers, mode = written(given, frames)
    where = {"kafka.bootstrap.servers": given["bootstrap"], "topic": output, "checkpointLocation": checkpoint}
    writer = to_records(answers, KEYS.get(given["query"], ())).writeStream.outputMode(mode).trigger(availableNow=True)
    if mode == "update":  # Spark has no Python sink for it
        write = topic_writer(output, bootstrap=given["bootstrap"], checkpoint=checkpoint, at_least_once=True)
        writer = writer.foreachBatch(write).option("checkpointLocation", checkpoint)
    else:
        guarantee = {} if connector == "kafka" else {"deliveryGuarantee": "at-least-once"}
        writer = writer.format(connector).options(**where, **guarantee)
    with state_store(answers):
        query = writer.start()
    query.awaitTermination()


def written(given: dict[str, Any], frames: Frames) -> tuple[DataFrame, str]:
    """The answers, and the output mode that they come in."""
    queries = with_operators if given["side"] == TIDELOG else by_hand
    return getattr(queries, given["query"])(frames), queries.MODES.get(given["query"], "append")


def to_records(answers: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Where results change, all of one key go to one partition, so that the last of them is known."""
    from pyspark.sql import functions as F

    value = F.to_json(F.struct("*")).alias("value")
    if not keys:
        return answers.select(value)
    return answers.select(F.concat_ws(",", *keys).alias("key"), value)


if __name__ == "__main__":
    main()
