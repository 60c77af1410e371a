"""Late rows in a topic of their own, written by the query that writes the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from contract import Broker
from pipelines.operators.test_event_time import START, send, stream
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.pipelines.operators.aggregates import count
from tidelog.pipelines.operators.time import event_time
from tidelog.pipelines.operators.windows.tumbling import tumbling
from tidelog.spark.providers import state_store

MINUTE_MS = 60_000
FIRST = START - START % MINUTE_MS


@pytest.mark.full
@proves("P7", "P8")
def test_results_and_late_rows_go_each_to_their_topic_by_one_query(
    spark: SparkSession, broker: Broker, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    results, late = f"{topic}-results", f"{topic}-late"
    for name in (topic, results, late):
        topics.create(cluster, name, partitions=1)
    rows = stream(spark, broker.bootstrap, topic)
    timed = rows.selectExpr("cast(key as string) as k", "cast(value as string) as what", "timestamp")
    timed = timed.transform(event_time("timestamp", "10 seconds"))
    counted = timed.transform(tumbling("1 minute", by="k", aggregates={"n": count()}, late="side_output"))
    routed = counted.select(
        F.when(F.col("_late").isNull(), results).otherwise(late).alias("topic"),
        F.coalesce(F.to_json("_late.row"), F.to_json(F.struct("k", "n"))).alias("value"),
    )
    writer = routed.writeStream.format("tidelog").option("kafka.bootstrap.servers", broker.bootstrap)

    def run() -> None:
        with state_store(routed):
            query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(500)

    send(cluster, topic, [FIRST + 10_000, FIRST + 5 * MINUTE_MS])
    run()
    send(cluster, topic, [FIRST + 20_000], value=b"late")
    run()

    def written(name: str) -> list[dict[str, Any]]:
        reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", broker.bootstrap)
        found = reader.option("subscribe", name).load().orderBy("offset").collect()
        return [json.loads(row["value"]) for row in found]

    assert written(results) == [{"k": "k", "n": 1}]
    assert [(row["k"], row["what"]) for row in written(late)] == [("k", "late")]
