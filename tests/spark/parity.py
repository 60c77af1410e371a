"""The same job under two formats: Spark's own Kafka connector and ours. Topics have all that a record can have.

A job is compared by its rows, its schema and, for streams, by the offsets of each micro-batch: what Spark says of them
and what it writes into the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from spark.connector import CONNECTOR
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.client.transactions import Transactions
from tidelog.record.columns import encode

OURS = "tidelog"
FORMATS = (CONNECTOR, OURS)
PATIENCE_S = 240
START = 1_700_000_000_000
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
ENDS = {0: 50, 1: 32, 2: 3}  # of the topic's partitions; those of transactions count
HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (),
    (("a", b"1"),),
    (("a", b"1"), ("a", b"2"), ("ü", None), ("", b"")),
)


def fill_variously(cluster: Cluster, topic: str) -> None:
    """Three partitions of records of all kinds, a second apart; and `<topic>-stamped`, with times of the broker's."""
    topics.create(cluster, topic, partitions=3)
    for number, compression in enumerate(COMPRESSIONS):
        with Producer(cluster, compression=compression) as producer:
            for row in range(number * 10, number * 10 + 10):
                _send(producer, topic, row)
    _fill_in_transactions(cluster, TopicPartition(topic, 1))
    topics.create(cluster, f"{topic}-stamped", partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
    with Producer(cluster) as producer:
        for row in range(3):
            producer.send(topic, b"few", partition=2, timestamp=START + row * 20_000)
            producer.send(f"{topic}-stamped", b"%d" % row, partition=0, timestamp=5)


def _send(producer: Producer, topic: str, row: int) -> None:
    key = (None, b"", b"k%d" % row)[row % 3]
    value = (b"v%d" % row, None, b"", bytes(range(256)))[row % 4]
    headers = list(HEADERS[row % 5 % 3])
    producer.send(topic, value, key=key, headers=headers, partition=0, timestamp=START + row * 1000)


def _fill_in_transactions(cluster: Cluster, at: TopicPartition) -> None:
    """Eight of three records and an end, every other one aborted, the last too."""
    with Transactions(cluster, f"tx-{at.topic}") as transactions:
        for number in range(8):
            transactions.begin()
            rows = [(b"k", b"%d-%d" % (number, row), (), START + number * 7000 + row) for row in range(3)]
            transactions.produce(at, encode(rows))
            if number % 2:
                transactions.abort()
            else:
                transactions.commit()


def read(spark: SparkSession, bootstrap: str, kind: str, options: Mapping[str, str]) -> DataFrame:
    return spark.read.format(kind).option("kafka.bootstrap.servers", bootstrap).options(**options).load()


def stream(spark: SparkSession, bootstrap: str, kind: str, options: Mapping[str, str]) -> DataFrame:
    return spark.readStream.format(kind).option("kafka.bootstrap.servers", bootstrap).options(**options).load()


def sorted_rows(frame: DataFrame) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


class MicroBatch(NamedTuple):
    start: Any
    end: Any
    rows: int


def run_to_end(frame: DataFrame, folder: Path) -> list[MicroBatch]:
    """All that is there now, into files. Micro-batches without rows are left out: Spark adds some of its own."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.option("path", str(folder / "table")).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    return [
        MicroBatch(_parsed(one.sources[0].startOffset), _parsed(one.sources[0].endOffset), one.numInputRows)
        for one in query.recentProgress
        if one.numInputRows
    ]


def _parsed(offsets: Any) -> Any:
    return json.loads(offsets) if isinstance(offsets, str) else offsets


def table(spark: SparkSession, folder: Path) -> list[Any]:
    return sorted_rows(spark.read.parquet(str(folder / "table")))


def checkpoint_offsets(folder: Path) -> list[str]:
    """What a checkpoint says of the source, by micro-batch, as it is written."""
    files = [path for path in (folder / "checkpoint" / "offsets").iterdir() if path.name.isdigit()]
    return [path.read_text().splitlines()[-1] for path in sorted(files, key=lambda path: int(path.name))]
