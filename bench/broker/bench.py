"""The brokers of a run and what rows need of them: sides to take turns, topics, how much of everything.

A *side* is a broker with one meaning of an ack. Durability is a topic's setting on both brokers, so one process each
serves two sides: Tidelog syncs before every ack unless `tidelog.durability=memory`; Apache Kafka does not unless
`flush.messages=1`.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.broker.figures import KAFKA, KAFKA_DISK, MOCK, TIDELOG_DISK, TIDELOG_MEMORY, Figures
from bench.broker.load import start_load
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from against.apache_kafka import DISTRIBUTION_JVM, ApacheKafka
from against.patience import eventually
from against.rebalancing import is_led
from against.tidelog_process import TidelogProcess

ADMIN_SECONDS = 300.0
PARTITIONS_A_REQUEST = 2000  # Apache Kafka refuses to make ten thousand at once
TOUCH = bytes(4 << 20)
KAFKA_SETTINGS = {"log.retention.check.interval.ms": "3600000", "log.segment.delete.delay.ms": "0"}


class Side(NamedTuple):
    name: str
    bootstrap: str
    pid: int
    topic_config: dict[str, str]

    @property
    def is_mock(self) -> bool:
        return self.name == MOCK


class Bench:
    """`reps` repetitions; `share` of the full amount of work in each (a quick run takes a hundredth of it)."""

    def __init__(self, folder: Path, *, reps: int, share: float, quick: bool) -> None:
        self.folder = folder
        self.reps = reps
        self.share = share
        self.quick = quick
        self.figures = Figures()
        self._numbers = itertools.count()
        self._tidelog: TidelogProcess | None = None
        self._kafka: ApacheKafka | None = None
        self._mock: subprocess.Popen[str] | None = None
        self._mock_bootstrap = ""

    # Brokers ----------------------------------------------------------------------------------------------------------

    def new_tidelog(self, settings: dict[str, str] | None = None) -> TidelogProcess:
        """A broker of its own in a fresh folder, not started."""
        return TidelogProcess(self.new_folder("tidelog"), settings)

    def new_kafka(self) -> ApacheKafka:
        """The same; formatted, which does not count as starting."""
        return ApacheKafka(self.new_folder("kafka"), KAFKA_SETTINGS, jvm=DISTRIBUTION_JVM)

    def new_folder(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))

    def tidelog(self) -> TidelogProcess:
        if self._tidelog is None:
            self._tidelog = self.new_tidelog().start()
        return self._tidelog

    def kafka(self) -> ApacheKafka:
        if self._kafka is None:
            self._kafka = self.new_kafka().start()
        return self._kafka

    def mock(self) -> Side:
        if self._mock is None:
            self._mock = start_load("mock", 1)
            assert self._mock.stdout is not None
            self._mock_bootstrap = json.loads(self._mock.stdout.readline())["bootstrap"]
        return Side(MOCK, self._mock_bootstrap, self._mock.pid, {})

    def stop(self) -> None:
        for broker in (self._tidelog, self._kafka):
            if broker is not None:
                broker.stop()
        if self._mock is not None:
            self._mock.communicate()
        self._tidelog = self._kafka = self._mock = None

    # Turns ------------------------------------------------------------------------------------------------------------

    def sides(self, *, mock: bool = False) -> list[Side]:
        tidelog, kafka = self.tidelog(), self.kafka()
        sides = [
            Side(TIDELOG_DISK, tidelog.bootstrap, tidelog.pid, {}),
            Side(TIDELOG_MEMORY, tidelog.bootstrap, tidelog.pid, {"tidelog.durability": "memory"}),
            Side(KAFKA, kafka.bootstrap, kafka.pid, {}),
            Side(KAFKA_DISK, kafka.bootstrap, kafka.pid, {"flush.messages": "1"}),
        ]
        return [*sides, self.mock()] if mock else sides

    def turns(self, *, mock: bool = False, warm: bool = True) -> Iterator[tuple[Side, bool]]:
        """Every side once per repetition; the flag is False for the first round, which only warms all of them up."""
        first = 0 if warm and not self.quick else 1
        for rep in range(first, self.reps + 1):
            for side in self.sides(mock=mock):
                yield side, rep > 0

    def touch_memory(self, size: int) -> None:
        """Has the page cache hold and free as many bytes as the next turn will write.

        On a virtual machine the first touch of a page that the host took back costs more than the write that is to be
        measured, and it hits whoever comes first.
        """
        path = self.folder / "touch"
        with path.open("wb") as file:
            for _ in range(0, size, len(TOUCH)):
                file.write(TOUCH)
        path.unlink()

    def amount(self, full: int, least: int = 1) -> int:
        return max(least, int(full * self.share))

    # Topics -----------------------------------------------------------------------------------------------------------

    def new_topic(self, side: Side, partitions: int = 1) -> str:
        if side.is_mock:
            return "bench"
        name = f"bench-{next(self._numbers)}"
        admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 0})
        first = min(partitions, PARTITIONS_A_REQUEST)
        made = admin.create_topics([NewTopic(name, first, 1, config=side.topic_config)], operation_timeout=60)
        made[name].result(ADMIN_SECONDS)
        for count in range(2 * first, partitions + first, first):
            admin.create_partitions([NewPartitions(name, min(count, partitions))])[name].result(ADMIN_SECONDS)
        eventually(lambda: is_led(admin, name, partitions), seconds=ADMIN_SECONDS)
        return name

    def delete_topic(self, side: Side, name: str) -> None:
        if not side.is_mock:
            admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 0})
            admin.delete_topics([name])[name].result(ADMIN_SECONDS)

    def discard(self, broker: TidelogProcess | ApacheKafka) -> None:
        broker.stop()
        shutil.rmtree(broker.folder)
