"""The broker, the topics and the figures of a run; how a side is launched, and what it adds."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from bench.filling import send_rows
from bench.pipelines import keyed, nexmark
from bench.pipelines.figures import CPU, MEMORY, RATE
from bench.pipelines.nexmark import Events
from bench.pipelines.watch import Cannot, Seen, watched
from bench.run import Extent, Run
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError
from confluent_kafka import TopicPartition as AtOffset

from against.tidelog_process import TidelogProcess
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer

ROWS_AT_ONCE = 50_000
BROKER_SETTINGS = {"log.retention.ms": "-1"}  # the events happened in 2023


class Bench(Run):
    """`sides` and `queries`, where given, are all that is run."""

    def __init__(self, folder: Path, extent: Extent, *, sides: Sequence[str], queries: Sequence[str]) -> None:
        super().__init__(folder, extent)
        self.sides = sides
        self.queries = queries
        self.heap = "1g" if self.quick else "2g"
        self.reasons: dict[str, dict[str, str]] = defaultdict(dict)
        """Why a side has no figure, by row and side."""
        self._filled: set[str] = set()

    def chosen(self, sides: Iterable[str]) -> list[str]:
        return [side for side in sides if not self.sides or side in self.sides]

    @cached_property
    def bootstrap(self) -> str:
        return self.started(TidelogProcess(self.folder / "broker", BROKER_SETTINGS)).bootstrap

    def keyed_topic(self, given: keyed.Input) -> str:
        name = f"keyed-{given.keys}-{given.rows}"
        if name not in self._filled:
            self._filled.add(name)
            self.create(name, keyed.PARTITIONS)
            for number in range(keyed.PARTITIONS):
                keys, values = map(keyed.text, given.partition(number))
                self.fill(name, number, pa.RecordBatch.from_arrays([keys, values], ["key", "value"]))
        return name

    def nexmark_topic(self, events: Events, kind: str) -> str:
        name = f"{kind}-{events.count}"
        if name not in self._filled:
            self._filled.add(name)
            self.create(name, nexmark.PARTITIONS)
            rows, closing = events.of(kind), events.closing(kind)
            for number in range(nexmark.PARTITIONS):
                for part in (nexmark.partition(rows, number), closing):
                    times = part["dateTime"].combine_chunks().cast(pa.timestamp("ms", tz="UTC"))
                    made = [pa.nulls(len(part), pa.binary()), nexmark.to_json(part), times]
                    self.fill(name, number, pa.RecordBatch.from_arrays(made, ["key", "value", "timestamp"]))
        return name

    def new_topic(self, name: str) -> str:
        name = f"{name}-{next(self._numbers)}"
        self.create(name, nexmark.PARTITIONS)
        return name

    def values_of(self, topic: str) -> list[bytes]:
        """Of all records, partition by partition."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "judge", "enable.partition.eof": True})
        consumer.assign([AtOffset(topic, number, OFFSET_BEGINNING) for number in range(nexmark.PARTITIONS)])
        found: list[list[bytes]] = [[] for _ in range(nexmark.PARTITIONS)]
        ended = 0
        while ended < nexmark.PARTITIONS:
            for message in consumer.consume(10_000, timeout=1.0):
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    ended += 1
                else:
                    found[message.partition()].append(message.value())
        consumer.close()
        return [value for partition in found for value in partition if value is not None]

    def create(self, topic: str, partitions: int) -> None:
        with Cluster(self.bootstrap) as cluster:
            topics.create(cluster, topic, partitions=partitions)

    def fill(self, topic: str, partition: int, rows: pa.RecordBatch) -> None:
        """Columns `key`, `value` and, if there is one, `timestamp`."""
        with Cluster(self.bootstrap) as cluster, Producer(cluster) as producer:
            for first in range(0, len(rows), ROWS_AT_ONCE):
                piece = rows.slice(first, ROWS_AT_ONCE)
                send_rows(producer, TopicPartition(topic, partition), piece, timestamp_ms=0)

    # Sides ------------------------------------------------------------------------------------------------------------

    def attempt(
        self, row: str, side: str, module: str, work: dict[str, Any], seconds: float, python: str = sys.executable
    ) -> Seen | None:
        """What was seen of a side at this work; None where it cannot do it, and then the reason is kept."""
        path = module.replace(".", "/") + ".py"
        command = [python, *(["-m", module] if python == sys.executable else [path]), json.dumps(work)]
        try:
            return watched(command, seconds=seconds)
        except Cannot as why:
            self.cannot(row, side, str(why))
            return None

    def cannot(self, row: str, side: str, why: str) -> None:
        self.reasons[row][side] = why
        print(f"{row}: {side}: {why}", file=sys.stderr, flush=True)

    def add(self, row: str, side: str, rows: int, seconds: float, seen: Seen) -> None:
        self.figures.add(row, RATE, side, rows / seconds)
        self.figures.add(row, CPU, side, seen.cpu / rows * 1e6)
        self.figures.add(row, MEMORY, side, seen.memory_mb)
        print(
            f"{row}: {side}: {rows / seconds:,.0f} rows/s, {seen.cpu / rows * 1e6:.2f} CPU s/M rows,"
            f" {seen.memory_mb:,.0f} MB, started in {seen.start_seconds:.0f} s",
            file=sys.stderr,
            flush=True,
        )
