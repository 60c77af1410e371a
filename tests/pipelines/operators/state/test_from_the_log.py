"""A checkpoint is made once with as many partitions as it has; the log is what makes another one of any size."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from contract import Broker
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.pipelines.operators.changelog import as_changelog
from tidelog.pipelines.operators.state.reading import read_states
from tidelog.spark.providers import state_store

PARTITIONS = "spark.sql.shuffle.partitions"
KEYS, RECORDS = 50, 400


def kept_up(spark: SparkSession, bootstrap: str, topic: str, folder: Path) -> dict[str, int]:
    """What the changelog of the topic's latest values comes to, when all of the topic was read."""
    reader = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    rows = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "150").load()
    named = rows.selectExpr("cast(key as string) as name", "cast(cast(value as string) as int) as level", "offset")
    table: dict[str, int] = {}

    def add_up(changes: DataFrame, _: int) -> None:
        for row in changes.orderBy("_seq").collect():
            if row["_op"].startswith("-"):
                assert table.pop(row["name"]) == row["level"]
            else:
                assert table.setdefault(row["name"], row["level"]) == row["level"]

    changelog = named.transform(as_changelog(["name"], order="offset"))
    writer = changelog.writeStream.foreachBatch(add_up).option("checkpointLocation", str(folder))
    with state_store(changelog):
        query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return table


@pytest.mark.full
@proves("P1", "F4")
def test_state_in_two_partitions_is_rebuilt_from_the_log_in_eight(
    spark: SparkSession, broker: Broker, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    with Producer(cluster) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number, key=b"key %d" % (number % KEYS), partition=0)
    latest = {f"key {number % KEYS}": number for number in range(RECORDS)}
    before = spark.conf.get(PARTITIONS)
    try:
        for partitions in ("2", "8"):
            spark.conf.set(PARTITIONS, partitions)
            assert kept_up(spark, broker.bootstrap, topic, tmp_path / partitions) == latest
    finally:
        spark.conf.set(PARTITIONS, str(before))
    layouts = [state.layout for made in ("2", "8") for state in read_states(spark, tmp_path / made)]
    assert layouts == [(8, 2), (32, 8)]
