"""Reads beside Spark's own Kafka connector: the same rows, the same schema, cut into the same tasks and micro-batches,
of a Tidelog and of an Apache Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

from contract import Broker
from proving import proves
from spark.connector import connector_jars
from spark.parity import (
    ENDS,
    FORMATS,
    OURS,
    START,
    fill_variously,
    read,
    run_to_end,
    sorted_rows,
    stream,
    table,
)
from tidelog.client.cluster import Cluster

pytestmark = pytest.mark.external

COMMITTED = {"kafka.isolation.level": "read_committed"}
BOUNDARIES = {
    "everything": {"subscribe": "T,T-stamped", "includeHeaders": "true"},
    "read_committed": {"subscribe": "T", **COMMITTED},
    "a pattern for a part of the name": {"subscribePattern": "T-st.mp"},
    "a pattern for two": {"subscribePattern": "^T(-stamped)?$"},
    "assigned": {"assign": '{"T":[2,0],"T-stamped":[0]}'},
    "offsets": {
        "subscribe": "T",
        "startingOffsets": '{"T":{"0":7,"1":-2,"2":1}}',
        "endingOffsets": '{"T":{"0":44,"1":-1,"2":1}}',
    },
    "offsets in the middle of transactions": {
        "subscribe": "T",
        "startingOffsets": '{"T":{"0":50,"1":5,"2":-2}}',
        "endingOffsets": '{"T":{"0":50,"1":14,"2":-1}}',
        **COMMITTED,
    },
    "times": {"subscribe": "T", "startingTimestamp": f"{START + 3500}", "endingTimestamp": f"{START + 33_000}"},
    "times by partition": {
        "subscribe": "T",
        "startingOffsetsByTimestamp": f'{{"T":{{"0":{START + 10_500},"1":{START},"2":{START + 1}}}}}',
        "endingOffsetsByTimestamp": f'{{"T":{{"0":{START + 30_000},"1":{START + 14_001},"2":{START + 90_000}}}}}',
    },
    "times that nothing is as young as": {
        "subscribe": "T",
        "startingTimestamp": f"{START + 45_000}",
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "times before offsets": {
        "subscribe": "T",
        "startingTimestamp": f"{START + 20_000}",
        "startingOffsets": '{"T":{"0":1,"1":1,"2":1}}',
    },
}
TASKS = {
    "at least 7": {"minPartitions": "7"},
    "at least 40": {"minPartitions": "40"},
    "both": {"minPartitions": "12", "maxRecordsPerPartition": "20"},
}
STREAMS = {
    "offsets at a time": {"subscribe": "T", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "29"},
    "few at a time": {"subscribe": "T", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "11", **COMMITTED},
    "two topics": {"subscribe": "T,T-stamped", "startingOffsets": "earliest", "includeHeaders": "true"},
    "a pattern": {"subscribePattern": "T", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"},
    "assigned": {"assign": '{"T":[0,2]}', "startingOffsets": '{"T":{"0":9,"2":-2}}', "minPartitions": "5"},
    "by time": {"subscribe": "T", "startingTimestamp": f"{START + 20_000}", "maxOffsetsPerTrigger": "13"},
    "by times": {
        "subscribe": "T",
        "startingOffsetsByTimestamp": f'{{"T":{{"0":{START + 2500},"1":{START + 90_000},"2":{START + 1}}}}}',
        "startingOffsetsByTimestampStrategy": "latest",
    },
}


@pytest.fixture
def filled(cluster: Cluster, topic: str) -> str:
    connector_jars()
    fill_variously(cluster, topic)
    return topic


def of_topic(options: dict[str, str], topic: str) -> dict[str, str]:
    """`T` in an option is the topic."""
    named = ("subscribe", "assign", "starting", "ending")
    return {
        key: value.replace("T", topic) if key.startswith(named) and "Strategy" not in key else value
        for key, value in options.items()
    }


@proves("P1", "T10")
@pytest.mark.parametrize("case", BOUNDARIES)
def test_a_batch_read_has_the_connectors_rows_and_schema(
    spark: SparkSession, broker: Broker, filled: str, case: str
) -> None:
    options = of_topic(BOUNDARIES[case], filled)
    theirs, ours = (read(spark, broker.bootstrap, kind, options) for kind in FORMATS)
    assert ours.schema == theirs.schema
    rows = sorted_rows(theirs)
    assert rows
    assert sorted_rows(ours) == rows


@proves("P1", "T10")
@pytest.mark.story
def test_everything_has_all_that_a_record_can_have(spark: SparkSession, broker: Broker, filled: str) -> None:
    """So that what is equal is not equal for want of anything."""
    rows = sorted_rows(read(spark, broker.bootstrap, "tidelog", of_topic(BOUNDARIES["everything"], filled)))
    assert len(rows) == ENDS[0] + 24 + ENDS[2] + 3, "aborted records too, but no end of a transaction"
    assert {row.timestampType for row in rows} == {0, 1}
    assert {None, b"", b"k2"} <= {row.key if row.key is None else bytes(row.key) for row in rows}
    assert {None, b"", b"v4"} <= {row.value if row.value is None else bytes(row.value) for row in rows}
    assert {None, 1, 4} == {row.headers and len(row.headers) for row in rows}
    committed = read(spark, broker.bootstrap, "tidelog", of_topic(BOUNDARIES["read_committed"], filled))
    assert committed.where("partition = 1").count() == 12


def tasks_of(rows: Iterable[Any]) -> list[list[tuple[int, int]]]:
    """Partitions and offsets by task; which task has which number means nothing."""
    found: dict[int, list[tuple[int, int]]] = {}
    for row in rows:
        found.setdefault(row.task, []).append((row.partition, row.offset))
    return sorted(map(sorted, found.values()))


@proves("P1", "T10")
@pytest.mark.parametrize("case", TASKS)
def test_a_read_is_cut_into_the_connectors_tasks(spark: SparkSession, broker: Broker, filled: str, case: str) -> None:
    options = {"subscribe": filled, **TASKS[case]}
    theirs, ours = (
        tasks_of(read(spark, broker.bootstrap, kind, options).withColumn("task", spark_partition_id()).collect())
        for kind in FORMATS
    )
    assert len(theirs) > 3
    assert ours == theirs


@proves("P1", "T10")
def test_a_micro_batch_is_cut_by_records_too(spark: SparkSession, broker: Broker, filled: str, tmp_path: Path) -> None:
    """In a batch read the connector passes `maxRecordsPerPartition` over."""
    options = {"subscribe": filled, "startingOffsets": "earliest", "maxRecordsPerPartition": "12"}
    for kind in FORMATS:
        run_to_end(
            stream(spark, broker.bootstrap, kind, options).withColumn("task", spark_partition_id()), tmp_path / kind
        )
    theirs, ours = (tasks_of(table(spark, tmp_path / kind)) for kind in FORMATS)
    assert len(theirs) > 6
    assert ours == theirs


@proves("P1", "B1", "T10")
@pytest.mark.parametrize("case", STREAMS)
def test_a_stream_has_the_connectors_micro_batches(
    spark: SparkSession, broker: Broker, filled: str, tmp_path: Path, case: str
) -> None:
    options = of_topic(STREAMS[case], filled)
    theirs, ours = (run_to_end(stream(spark, broker.bootstrap, kind, options), tmp_path / kind) for kind in FORMATS)
    assert theirs
    assert ours == theirs
    rows = table(spark, tmp_path / FORMATS[0])
    assert len(rows) == sum(one.rows for one in theirs)
    assert table(spark, tmp_path / FORMATS[1]) == rows


class Refused(NamedTuple):
    """What is asked for, and what each of both says: the fault is the same one, and ours names the option."""

    options: dict[str, str]
    theirs: str
    ours: str


REFUSED = {
    "a topic that is not there": Refused(
        {"subscribe": "T-no"},
        "This server does not host this topic-partition",
        "topic T-no is not there to read; create it, or mend the option subscribe",
    ),
    "latest": Refused(
        {"subscribe": "T", "startingOffsets": "latest"},
        "starting offset can't be latest for batch queries on Kafka",
        "startingOffsets is latest in a batch read",
    ),
    "not all partitions": Refused(
        {"subscribe": "T", "startingOffsets": '{"T":{"0":1}}'},
        "Partitions specified for Kafka start offsets don't match what are assigned",
        "option startingOffsets leaves out T[1], T[2]; name every partition",
    ),
    "a time that nothing is as young as": Refused(
        {"subscribe": "T", "startingTimestamp": f"{START + 10_000_000}"},
        "No offset matched from request",
        f"is as young as {START + 10_000_000}, the option startingTimestamp",
    ),
    "no partitions": Refused(
        {"subscribe": "T", "minPartitions": "0"}, "minPartitions must be positive", "option minPartitions is 0"
    ),
    "two choices": Refused(
        {"subscribe": "T", "subscribePattern": "T"},
        "Only one of the following options can be specified for Kafka source",
        "subscribe and subscribePattern are given; set one of the options",
    ),
    "no choice": Refused(
        {},
        "One of the following options must be specified for Kafka source",
        "set one of the options subscribe, subscribePattern, assign",
    ),
    "a reset": Refused(
        {"subscribe": "T", "kafka.auto.offset.reset": "latest"},
        "Kafka option 'auto.offset.reset' is not supported",
        "option kafka.auto.offset.reset is not supported; set startingOffsets instead",
    ),
    "a deserializer": Refused(
        {"subscribe": "T", "kafka.key.deserializer": "x"},
        "Kafka option 'key.deserializer' is not supported",
        "option kafka.key.deserializer is not supported",
    ),
}


@proves("P1", "T10")
@pytest.mark.parametrize("case", REFUSED)
def test_what_the_connector_refuses_is_refused_for_the_same_reason_and_the_option_is_named(
    spark: SparkSession, broker: Broker, filled: str, case: str
) -> None:
    options, *reasons = REFUSED[case]
    for kind, reason in zip(FORMATS, reasons, strict=True):
        with pytest.raises((PySparkException, Py4JJavaError)) as raised:
            read(spark, broker.bootstrap, kind, of_topic(options, filled)).collect()
        expected = re.sub(r"\bT(?=[\[-]| )", filled, reason) if kind == OURS else reason
        assert expected in str(raised.value)
