"""Writes beside Spark's own Kafka connector: the same rows become the same records, in the same partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from client.committed import rows_of
from contract import Broker
from proving import proves
from spark.connector import CONNECTOR, connector_jars
from spark.filling import fill, numbers
from spark.parity import FORMATS, OURS, PATIENCE_S, stream
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster

pytestmark = pytest.mark.external

PARTITIONS = 5
HEADERS = """case id % 4
    when 0 then null
    when 1 then array()
    when 2 then array(named_struct('key', 'a', 'value', cast(string(id) as binary)))
    else array(named_struct('key', 'ü', 'value', cast(null as binary)),
               named_struct('key', 'ü', 'value', cast('2' as binary))) end headers"""
KEYED = "cast(id as string) key"
VALUE = "case when id % 7 = 0 then null else cast(id * 2 as string) end value"
COLUMNS = {
    "text": [KEYED, VALUE],
    "bytes and headers": [f"cast({KEYED.partition(' key')[0]} as binary) key", VALUE, HEADERS],
    "empty keys": ["case when id % 2 = 0 then '' else repeat('long', 100) end key", VALUE],
    "partitions": [KEYED, VALUE, f"cast(if(id % 3 = 0, null, id % {PARTITIONS}) as int) partition"],
}


def records(cluster: Cluster, topic: str) -> list[tuple[Any, ...]]:
    """By partition, as they lie there: without their times, which are the clock's."""
    return [
        (at.topic.partition("--")[2], at.partition, row.key, row.value, row.headers)
        for at in cluster.partitions(topic)
        for row in rows_of(cluster, at)
    ]


def target(cluster: Cluster, topic: str, kind: str) -> str:
    connector_jars()
    topics.create(cluster, f"{topic}-{kind}", partitions=PARTITIONS)
    return f"{topic}-{kind}"


def write(rows: DataFrame, broker: Broker, kind: str, **options: str) -> None:
    """One task after the other writes to a topic, so that records have one order."""
    writer = rows.coalesce(1).write.format(kind).option("kafka.bootstrap.servers", broker.bootstrap)
    writer.options(**options).mode("append").save()


@proves("P1", "T10")
@pytest.mark.parametrize("case", COLUMNS)
def test_a_batch_write_makes_the_connectors_records(
    spark: SparkSession, broker: Broker, cluster: Cluster, topic: str, case: str
) -> None:
    rows = spark.range(300).selectExpr(*COLUMNS[case])
    found = []
    for kind in FORMATS:
        name = target(cluster, topic, kind)
        write(rows, broker, kind, topic=name)
        found.append(records(cluster, name))
    theirs, ours = found
    assert len(theirs) == 300
    assert ours == theirs


@proves("P1", "T10")
def test_rows_that_name_their_topic_go_there_and_rows_without_keys_anywhere(
    spark: SparkSession, broker: Broker, cluster: Cluster, topic: str
) -> None:
    found = []
    for kind in FORMATS:
        for side in "ab":
            topics.create(cluster, f"{topic}-{kind}--{side}", partitions=2)
        side = f"concat('{topic}-{kind}--', if(id % 3 = 0, 'a', 'b')) topic"
        connector_jars()
        write(spark.range(100).selectExpr(side, "cast(string(id) as binary) value"), broker, kind)
        came = [record for side in "ab" for record in records(cluster, f"{topic}-{kind}--{side}")]
        found.append(sorted((side, value) for side, _, _, value, _ in came))
    theirs, ours = found
    assert len(theirs) == 100
    assert ours == theirs


@proves("P1", "F1", "T10")
def test_a_stream_writes_the_connectors_records(
    spark: SparkSession, broker: Broker, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """Read and written by the one, and read and written by the other."""
    topics.create(cluster, topic, partitions=1)
    fill(cluster, topic, 0, numbers(0, 120))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "50"}
    found = []
    for kind in FORMATS:
        name = target(cluster, topic, kind)
        rows = stream(spark, broker.bootstrap, kind, options).selectExpr("int(string(value)) id")
        writer = rows.selectExpr(KEYED, VALUE, HEADERS).writeStream.format(kind).trigger(availableNow=True)
        given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": name, "checkpointLocation": str(tmp_path / kind)}
        assert writer.options(**given).start().awaitTermination(PATIENCE_S)
        found.append(records(cluster, name))
    theirs, ours = found
    assert len(theirs) == 120
    assert ours == theirs


@proves("P1", "T10")
@pytest.mark.parametrize(
    ("columns", "theirs", "ours"),
    [
        (["cast(id as string) key"], "Required attribute 'value' not found", "column value does not exist among key"),
        (["id value"], "value attribute unsupported type bigint", "column value is bigint"),
        (["'v' value", "id partition"], "partition attribute unsupported type bigint", "column partition is bigint"),
        (["'v' value", "'h' headers"], "headers attribute unsupported type string", "column headers is string"),
    ],
    ids=["no value", "a number as value", "a long as partition", "text as headers"],
)
def test_columns_that_the_connector_refuses_are_refused(
    spark: SparkSession, broker: Broker, cluster: Cluster, topic: str, columns: list[str], theirs: str, ours: str
) -> None:
    for kind, reason in ((CONNECTOR, theirs), (OURS, ours)):
        name = target(cluster, topic, kind)
        with pytest.raises(PySparkException) as raised:
            write(spark.range(3).selectExpr(*columns), broker, kind, topic=name)
        assert reason in str(raised.value)
        assert records(cluster, name) == []
