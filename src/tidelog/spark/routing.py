"""Rows of a DataFrame as record batches by target partition: what a task does with its rows before anything is sent.

    topic        the option's, else the row's own column
    partition    the row's own where it has one, else by its key as Kafka's default partitioner has it
    no key       one partition for as many rows as are encoded at once, then the next; the first is any
    timestamp    when the rows were encoded, as Kafka's producer has it

Rows of one task that go to one partition keep their order. Small Arrow batches are put together first, up to
GATHER_BYTES: larger record batches cost everybody less.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.backoff import waits
from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.size_limits import SizeLimits
from tidelog.errors import BrokerError, DataLoss, UsageError
from tidelog.record.arrow import arrow_to_partitions
from tidelog.record.codec import peek
from tidelog.record.columns import TARGET_SIZE
from tidelog.spark.options import ELSEWHERE

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("key", "value", "headers", "topic", "partition")
GATHER_BYTES = 8 << 20
LOST_AFTER_S = 10  # so long one broker of several may know nothing of a topic that is there; to be lost is final
_TEXT = ("string", "binary")
TYPES = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


class Routed(NamedTuple):
    """One encoded batch and where it goes."""

    at: TopicPartition
    rows: int
    data: bytearray


def check_columns(types: Mapping[str, str], topic: str | None) -> None:
    """`types` are Spark's simple names by column. Columns that the sink does not know are left out, as Kafka's does."""
    if "value" not in types:
        raise UsageError(
            f"column value does not exist among {', '.join(types) or 'none'}; add it: it is what is written"
        )
    if topic is None and "topic" not in types:
        raise UsageError("no topic is given; set the option topic, or have a column topic")
    for name, allowed in TYPES.items():
        if name in types and types[name] not in (*allowed, "void"):
            raise UsageError(f"column {name} is {types[name]}; cast it to {' or '.join(allowed)}")


def lost_target(topic: str, what: str) -> DataLoss:
    """Of a topic that was made for this sink: one that came again by being written to would have neither its settings
    nor its records.
    """
    return DataLoss(f"topic {topic}, where this query writes, {what}; what it had is lost: {ELSEWHERE}")


def partitions_there(cluster: Cluster, topic: str) -> list[TopicPartition]:
    """Of a topic that was made for this sink. It is lost where it is denied again and again for LOST_AFTER_S."""
    deadline = time.monotonic() + LOST_AFTER_S
    for wait in waits():
        try:
            return cluster.partitions(topic)
        except BrokerError as error:
            if error.code not in UNKNOWN_TOPIC:
                raise
            if time.monotonic() >= deadline:
                raise lost_target(topic, "was deleted") from error
        time.sleep(wait)
    raise AssertionError("waits never end")


class Router:
    """Of one task, or of a driver that has the rows itself. `made` are topics that are not made by asking for them:
    they were, and must be there.
    """

    def __init__(self, cluster: Cluster, topic: str | None, compression: str, made: Collection[str] = ()) -> None:
        self._cluster = cluster
        self._made = made
        self._topic = topic
        self._compression = compression
        self._limits = SizeLimits(cluster)
        self._turn = int.from_bytes(os.urandom(2), "big")
        self._known: dict[str, tuple[int, int]] = {}

    def is_of(self, cluster: Cluster) -> bool:
        return cluster is self._cluster

    def route(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Routed]:
        for rows in gathered(batches):
            for topic, part in self._by_topic(rows):
                partitions, target = self._described(topic)
                self._turn += 1
                encoded = arrow_to_partitions(
                    part,
                    partitions=partitions,
                    spare=self._turn % partitions,
                    timestamp_ms=int(time.time() * 1000),
                    target=target,
                    compression=self._compression,
                )
                for partition, data in encoded:
                    yield Routed(TopicPartition(topic, partition), peek(data).count, data)

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        import pyarrow.compute as pc

        kept = [name for name in COLUMNS if name in rows.schema.names and name != "topic"]
        if self._topic is not None:
            yield self._topic, rows.select(kept)
            return
        topics = rows.column("topic")
        for topic in pc.unique(topics).to_pylist():
            if not topic:
                raise UsageError("a row has no topic; set the option topic, or fill the column topic")
            yield topic, rows.select(kept).filter(pc.equal(topics, topic))

    def _described(self, topic: str) -> tuple[int, int]:
        """How many partitions it has, and how large a batch it takes."""
        if topic not in self._known:
            partitions = len(self._partitions(topic))
            self._known[topic] = partitions, self._limits.batch_bytes(topic, TARGET_SIZE)
        return self._known[topic]

    def _partitions(self, topic: str) -> list[TopicPartition]:
        if topic in self._made:
            return partitions_there(self._cluster, topic)
        return self._cluster.partitions(topic, auto_create=True)


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Without empty ones."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        size += batch.nbytes
        if size >= GATHER_BYTES:
            yield _together(held)
            held, size = [], 0
    if held:
        yield _together(held)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
