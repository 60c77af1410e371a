"""Topics with known records, and the source driven as Spark drives it, without a session."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.spark.source import TidelogSource, TopicReader, TopicStream


def fill(
    cluster: Cluster, topic: str, partition: int, values: Iterable[bytes], *, timestamp: int | None = None
) -> None:
    with Producer(cluster) as producer:
        for value in values:
            producer.send(topic, value, key=b"k" + value, partition=partition, timestamp=timestamp)


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def source(bootstrap: str, **options: str) -> tuple[TidelogSource, StructType]:
    made = TidelogSource(CaseInsensitiveDict({"kafka.bootstrap.servers": bootstrap, **options}))
    return made, made.schema()


def reader(bootstrap: str, **options: str) -> TopicReader:
    made, schema = source(bootstrap, **options)
    return made.reader(schema)


class Query:
    """Micro-batches as Spark makes them: offsets go through JSON, and what was read is kept as rows."""

    def __init__(self, bootstrap: str, offsets: Mapping[str, Any] | None = None, **options: str) -> None:
        made, schema = source(bootstrap, **options)
        self.stream: TopicStream = made.streamReader(schema)
        self.offsets: dict[str, Any] = _through_json(self.stream.initialOffset() if offsets is None else offsets)
        self.rows: list[dict[str, Any]] = []

    def trigger(self, limit: ReadLimit | None = None) -> int:
        """Rows of one micro-batch."""
        limit = self.stream.getDefaultReadLimit() if limit is None else limit
        end = _through_json(self.stream.latestOffset(self.offsets, limit))
        came = []
        if end != self.offsets:
            for partition in self.stream.partitions(self.offsets, end):
                came += rows_of(self.stream.read(partition))
            self.stream.commit(end)
            self.offsets = end
        self.rows += came
        return len(came)

    def values(self, partition: int = 0) -> list[bytes]:
        return [row["value"] for row in self.rows if row["partition"] == partition]

    def stop(self) -> None:
        self.stream.stop()


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def _through_json(offsets: Mapping[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(offsets)))
