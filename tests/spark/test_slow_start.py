"""A machine so busy that Spark's Python workers take longer to start than Spark waits for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidelog
from proving import proves
from spark.filling import fill, numbers
from spark.slow_python import slow_python
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster


@pytest.mark.full
@pytest.mark.story
@proves("P1", "F1")
def test_a_topic_is_read_by_a_query_whose_worker_takes_longer_to_start_than_spark_waits(
    spark: SparkSession, tmp_path: Path
) -> None:
    with tidelog.Broker() as broker, slow_python(spark, tmp_path) as started:
        with Cluster(broker.bootstrap) as cluster:
            topics.create(cluster, "t", partitions=1)
            fill(cluster, "t", 0, numbers(0, 10))
        reached = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t", "startingOffsets": "earliest"}
        rows = spark.readStream.format("tidelog").options(**reached).load()
        read = rows.select("value").writeStream.format("memory").queryName("slow_start")
        read.trigger(availableNow=True).start().awaitTermination()
    assert sorted(bytes(row.value) for row in spark.table("slow_start").collect()) == numbers(0, 10)
    assert "python_streaming_source_runner" in started.read_text()
