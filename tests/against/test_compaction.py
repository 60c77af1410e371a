"""A compacted topic, read by every client: the last record of each key, wherever they begin, however little they fetch.

Where compaction has taken records out there is a batch without records that spans their offsets. So a fetch may answer
with nothing but such batches, and may begin in the middle of one: each client must take that as progress. With
`max.partition.fetch.bytes=1` every fetch answers with one batch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from against.apache_kafka import ApacheKafka, Missing
from against.brokers import BROKER_SETTINGS, Broker
from against.java_machine import JavaMachine
from against.tidelog_process import TidelogProcess
from proving import proves

TOPIC = "table"
SECONDS = 180.0
KEYS = 7
ROUNDS = 400
QUICK = {"log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "500"}
SETTINGS = {"cleanup.policy": "compact", "internal.segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}
Read = list[tuple[int, str, str | None]]
Reader = Callable[[str, int, int, int], Read]


class Table:
    """What was written: every record in order, by its offset."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.written: Read = []

    def write(self, rounds: range, **settings: Any) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 2, **settings})
        acked: list[Any] = []
        for number in rounds:
            for key in range(KEYS):
                value = None if (number + key) % 11 == 0 else f"{number}-" + "x" * (number % 60)
                producer.produce(TOPIC, value, f"key-{key}", on_delivery=lambda error, message: acked.append(message))
            producer.poll(0)
            if number % 10 == 0:
                producer.flush()
        producer.flush()
        for message in acked:
            value = message.value()
            self.written.append((message.offset(), message.key().decode(), None if value is None else value.decode()))
        self.written.sort()

    @property
    def end(self) -> int:
        return self.written[-1][0] + 1

    def last(self, start: int) -> dict[str, str | None]:
        return {key: value for offset, key, value in self.written if offset >= start}


@pytest.fixture(
    scope="module",
    params=["tidelog", pytest.param("apache_kafka", marks=[pytest.mark.external, pytest.mark.twin])],
)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    folder, settings = tmp_path_factory.mktemp("compacted"), {**BROKER_SETTINGS, **QUICK}
    try:
        broker = (TidelogProcess if request.param == "tidelog" else ApacheKafka)(folder, settings).start()
    except Missing as missing:
        pytest.skip(str(missing))
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=SETTINGS)])[TOPIC].result(SECONDS)
        table = Table(broker)
        table.write(range(ROUNDS), **{"enable.idempotence": True, "compression.type": "zstd"})
        table.write(range(ROUNDS, 2 * ROUNDS))
        table.write(range(2 * ROUNDS, 2 * ROUNDS + 40), **{"compression.type": "lz4"})
        _await_compaction(table)
        yield table
    finally:
        broker.stop()


def _await_compaction(table: Table) -> None:
    """Until there is no more of it: the tests read several times, and compare."""
    deadline = time.monotonic() + SECONDS
    before = len(table.written)
    while True:
        assert time.monotonic() < deadline, f"{before} of {len(table.written)} records are left after {SECONDS} s"
        time.sleep(1.0)
        count = len(by_librdkafka(table.broker.bootstrap, 0, table.end, 1 << 20))
        if count == before < len(table.written) / 4:
            return
        before = count


def by_librdkafka(bootstrap: str, start: int, end: int, fetch_bytes: int) -> Read:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
            "enable.partition.eof": True,
            "max.partition.fetch.bytes": fetch_bytes,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, start)])
    found: Read = []
    deadline = time.monotonic() + SECONDS
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.name() == "_PARTITION_EOF":
                return found
            if error is not None:
                raise KafkaException(error)
            value = message.value()
            found.append((message.offset(), message.key().decode(), None if value is None else value.decode()))
    finally:
        consumer.close()
    raise AssertionError(f"librdkafka is stuck after {found[-1:]} of {end}")


def by_kafka_python(bootstrap: str, start: int, end: int, fetch_bytes: int) -> Read:
    place = PythonPartition(TOPIC, 0)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, max_partition_fetch_bytes=fetch_bytes
    )
    found: Read = []
    deadline = time.monotonic() + SECONDS
    try:
        consumer.assign([place])
        consumer.seek(place, start)
        while consumer.position(place) < end:
            assert time.monotonic() < deadline, f"kafka-python is stuck at {consumer.position(place)} of {end}"
            for records in consumer.poll(500).values():
                found += [_text(record) for record in records]
    finally:
        consumer.close()
    return found


def by_aiokafka(bootstrap: str, start: int, end: int, fetch_bytes: int) -> Read:
    async def read() -> Read:
        place = AioPartition(TOPIC, 0)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, max_partition_fetch_bytes=fetch_bytes
        )
        await consumer.start()
        found: Read = []
        try:
            consumer.assign([place])
            consumer.seek(place, start)
            async with asyncio.timeout(SECONDS):
                while await consumer.position(place) < end:
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        found += [_text(record) for record in records]
        finally:
            await consumer.stop()
        return found

    return asyncio.run(read())


def _text(record: Any) -> tuple[int, str, str | None]:
    return record.offset, record.key.decode(), None if record.value is None else record.value.decode()


READERS: dict[str, Reader] = {
    "librdkafka": by_librdkafka,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}


def check(table: Table, found: Read, start: int) -> None:
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    assert set(found) <= set(table.written)
    last = {key: value for _, key, value in found}
    expected = table.last(start)
    assert {key: value for key, value in last.items() if value is not None} == {
        key: value for key, value in expected.items() if value is not None
    }
    assert all(last.get(key) is None for key, value in expected.items() if value is None)
    assert len(found) < len(table.written) / 4


@proves("T6", "T1", "D5")
@pytest.mark.parametrize("fetch_bytes", [1, 1 << 20], ids=["a batch a fetch", "all at once"])
@pytest.mark.parametrize("name", READERS)
def test_every_client_reads_a_compacted_topic(table: Table, name: str, fetch_bytes: int) -> None:
    for start in (0, 1, table.end // 3, table.end // 2):
        check(table, READERS[name](table.broker.bootstrap, start, table.end, fetch_bytes), start)


@proves("T6", "T1", "D5")
@pytest.mark.external
def test_the_java_client_reads_a_compacted_topic(table: Table, java: JavaMachine) -> None:
    for start in (0, 1, table.end // 3, table.end // 2):
        for fetch_bytes in (1, 1 << 20):
            arguments = [str(start), str(table.end), str(fetch_bytes)]
            seen = java.run("Records", table.broker.bootstrap, "from", TOPIC, *arguments).json()
            check(table, [tuple(record) for record in seen], start)
