"""The broker, the topics and the figures of a run; how a side is launched, and what it adds."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from bench.broker.figures import Figures
from bench.pipelines import keyed
from bench.pipelines.figures import CPU, MEMORY, RATE
from bench.pipelines.watch import Cannot, Seen, watched

from against.tidelog_process import TidelogProcess
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.record.arrow import arrow_to_batches
from tidelog.record.codec import patch

BATCH_BYTES = 100_000
ROWS_AT_ONCE = 50_000


class Bench:
    """`reps` repetitions; `share` of the full amount of work in each. `sides` and `queries`, where given, are all that
    is run."""

    def __init__(
        self, folder: Path, *, reps: int, share: float, quick: bool, sides: Sequence[str], queries: Sequence[str]
    ) -> None:
        self.folder = folder
        self.reps = reps
        self.share = share
        self.quick = quick
        self.sides = sides
        self.queries = queries
        self.heap = "1g" if quick else "2g"
        self.figures = Figures()
        self.reasons: dict[str, dict[str, str]] = defaultdict(dict)
        """Why a side has no figure, by row and side."""
        self._stack = ExitStack()
        self._filled: set[str] = set()

    def stop(self) -> None:
        self._stack.close()

    def amount(self, full: int, least: int = 1) -> int:
        return max(least, int(full * self.share))

    def chosen(self, sides: Iterable[str]) -> list[str]:
        return [side for side in sides if not self.sides or side in self.sides]

    @cached_property
    def bootstrap(self) -> str:
        broker = TidelogProcess(self.folder / "broker").start()
        self._stack.callback(broker.stop)
        return broker.bootstrap

    def keyed_topic(self, given: keyed.Input) -> str:
        name = f"keyed-{given.keys}-{given.rows}"
        if name not in self._filled:
            self._filled.add(name)
            self.create(name, keyed.PARTITIONS)
            for number in range(keyed.PARTITIONS):
                keys, values = map(keyed.text, given.partition(number))
                self.fill(name, number, pa.RecordBatch.from_arrays([keys, values], ["key", "value"]))
        return name

    def create(self, topic: str, partitions: int) -> None:
        with Cluster(self.bootstrap) as cluster:
            topics.create(cluster, topic, partitions=partitions)

    def fill(self, topic: str, partition: int, rows: pa.RecordBatch) -> None:
        """Columns `key`, `value` and, if there is one, `timestamp`."""
        with Cluster(self.bootstrap) as cluster, Producer(cluster) as producer:
            for first in range(0, len(rows), ROWS_AT_ONCE):
                piece = rows.slice(first, ROWS_AT_ONCE)
                for batch in arrow_to_batches(piece, timestamp_ms=0, target=BATCH_BYTES):
                    patch(batch, 0, -1)  # a producer's batches begin at 0
                    producer.send_batch(TopicPartition(topic, partition), batch)

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
            self.reasons[row][side] = str(why)
            print(f"{row}: {side}: {why}", file=sys.stderr, flush=True)
            return None

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
