"""The brokers of a run and what rows need of them: sides to take turns, topics, how much of everything.

A *side* is a broker with one meaning of an ack. Durability is a topic's setting on both brokers, so one process each
serves two sides: Tidelog syncs before every ack unless `tidelog.durability=memory`; Apache Kafka does not unless
`flush.messages=1`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from bench.broker.figures import KAFKA, KAFKA_DISK, MOCK, TIDELOG_DISK, TIDELOG_MEMORY
from bench.broker.load import start_load
from bench.run import Run
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


class Bench(Run):
    # Brokers ----------------------------------------------------------------------------------------------------------

    def new_tidelog(self, settings: dict[str, str] | None = None) -> TidelogProcess:
        """A broker of its own in a fresh folder, not started."""
        return TidelogProcess(self.new_folder("tidelog"), settings)

    def new_kafka(self) -> ApacheKafka:
        """The same; formatted, which does not count as starting."""
        return ApacheKafka(self.new_folder("kafka"), KAFKA_SETTINGS, jvm=DISTRIBUTION_JVM)

    def new_folder(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))

    @cached_property
    def tidelog(self) -> TidelogProcess:
        return self.started(self.new_tidelog())

    @cached_property
    def kafka(self) -> ApacheKafka:
        return self.started(self.new_kafka())

    @cached_property
    def mock(self) -> Side:
        process = start_load("mock", 1)
        self._stack.callback(process.communicate)
        assert process.stdout is not None
        return Side(MOCK, json.loads(process.stdout.readline())["bootstrap"], process.pid, {})

    # Turns ------------------------------------------------------------------------------------------------------------

    def sides(self, *, mock: bool = False) -> list[Side]:
        tidelog, kafka = self.tidelog, self.kafka
        sides = [
            Side(TIDELOG_DISK, tidelog.bootstrap, tidelog.pid, {}),
            Side(TIDELOG_MEMORY, tidelog.bootstrap, tidelog.pid, {"tidelog.durability": "memory"}),
            Side(KAFKA, kafka.bootstrap, kafka.pid, {}),
            Side(KAFKA_DISK, kafka.bootstrap, kafka.pid, {"flush.messages": "1"}),
        ]
        return [*sides, self.mock] if mock else sides

    def turns(self, *, mock: bool = False, warm: bool = True) -> Iterator[tuple[Side, bool]]:
        """Every side once per repetition; the flag is False for the first round, which only warms all of them up."""
        for counts in self.rounds():
            if counts or warm:
                for side in self.sides(mock=mock):
                    yield side, counts

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
