"""How far a query has read is a group's offsets, which any tool can read: here librdkafka's admin client."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from against.patience import eventually
from contract import Broker
from proving import proves
from spark.filling import Query, fill, numbers
from spark.test_sink import stream
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.spark.reporting import name_in

PATIENCE_S = 600.0
IDS = "id = 0f2c7a2e-7a63-4d9c-8e5f-3a1b2c3d4e5f\nrunId = 1f2c7a2e-7a63-4d9c-8e5f-3a1b2c3d4e5f\nbatch = 3"


@proves("eo.11")
def test_a_querys_name_is_in_the_description_of_its_jobs() -> None:
    assert name_in(f"orders\n{IDS}") == "orders"
    assert name_in(f"orders by hour\nand day\n{IDS}") == "orders by hour\nand day"
    for nameless in (None, "", IDS, "show at shell.py:1"):
        assert name_in(nameless) is None


@proves("P1", "T7", "eo.11", "T10")
@pytest.mark.timeout(300)
@pytest.mark.slow
def test_a_named_query_is_a_group_whatever_it_writes_to(
    spark: SparkSession, broker: Broker, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    topics.create(cluster, topic, partitions=2)
    fill(cluster, topic, 0, numbers(0, 9))
    fill(cluster, topic, 1, numbers(0, 4))
    rows = stream(spark, broker.bootstrap, topic, maxOffsetsPerTrigger="7")
    write = rows.writeStream.format("noop").queryName(topic).option("checkpointLocation", str(tmp_path / "checkpoint"))
    write.trigger(availableNow=True).start().awaitTermination()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert told(admin, f"tidelog.{topic}") == {(topic, 0): 9, (topic, 1): 4}
    query = write.trigger(processingTime="0 seconds").start()
    fill(cluster, topic, 1, numbers(4, 6))
    eventually(lambda: told(admin, f"tidelog.{topic}"), lambda seen: seen[topic, 1] == 6, seconds=PATIENCE_S)
    query.stop()


def told(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(one.topic, one.partition): one.offset for one in asked.result(180).topic_partitions}


@proves("P1", "eo.11", "T10")
def test_whoever_knows_the_name_tells_it_by_the_token(broker: Broker, cluster: Cluster, topic: str, group: str) -> None:
    topics.create(cluster, topic, partitions=1)
    fill(cluster, topic, 0, numbers(0, 9))
    query = Query(broker.bootstrap, subscribe=topic, startingOffsets="earliest")
    query.trigger()
    token = query.stream.planner.reporter.token
    assert token is not None
    at, name = TopicPartition(topic, 0), f"tidelog.{group}"
    groups.commit(cluster, name, {at: 0}, metadata=token)
    query.trigger()
    assert groups.committed(cluster, name)[at][0::2] == (9, "")
    query.stop()


@proves("P1", "eo.11")
def test_a_query_without_a_name_is_no_group_and_one_that_wants_none_neither(
    tidelog_broker: Broker, topic: str, group: str
) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, topic, partitions=1)
        silent = Query(tidelog_broker.bootstrap, subscribe=topic, startingOffsets="earliest", sourceGroup="none")
        nameless = Query(tidelog_broker.bootstrap, subscribe=topic, startingOffsets="earliest")
        for start in range(6):
            fill(cluster, topic, 0, numbers(start, start + 1))
            assert (silent.trigger(), nameless.trigger()) == (1, 1)
        assert nameless.stream.planner.reporter.token is None, "it was looked for often enough"
        assert groups.list_all(cluster) == []
        silent.stop()
        nameless.stop()
