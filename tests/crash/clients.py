"""Clients that go on while their broker dies and comes back, and write into a ledger what they are told.

Each runs in a thread of its own until `Load.stop`. None of them gives up during an outage: they do what a good program
does with its client library, no more. A client that fails for another reason ends the test.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition

from crash.ledger import Ledger, Told, value_of
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer, Fetched
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, list_offsets
from tidelog.client.producer import Delivery, Producer
from tidelog.errors import BrokerError, Disconnected
from tidelog.record.codec import scan
from tidelog.wire.error_code import ErrorCode

PATIENCE_S = 180.0
PADDING = (0, 10, 300, 3000, 20_000)
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
OUTSTANDING = 300  # messages of a confluent-kafka producer that are not acked yet
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 50, "log_level": 0}
# librdkafka joins a group when it knows the topics; if the answer to that question is lost, it asks again this late.
METADATA = {"topic.metadata.refresh.interval.ms": 500}
CLASSIC = {"group.protocol": "classic", "session.timeout.ms": 10_000, "heartbeat.interval.ms": 500}
CONSUMER = {"group.protocol": "consumer"}


class Place(NamedTuple):
    """Where a record stands, for ever: KIP-320 lets a client tell by the epoch that an offset is used again."""

    at: TopicPartition
    offset: int
    leader_epoch: int


class Load:
    """The threads, and what they share. `pause_s` is how long a writer rests between two flushes."""

    def __init__(self, bootstrap: str, ledger: Ledger, rng: random.Random, *, pause_s: float = 0.01) -> None:
        self.bootstrap = bootstrap
        self.ledger = ledger
        self.pause_s = pause_s
        self.stopped = threading.Event()
        self._rng = rng
        self._threads: list[threading.Thread] = []
        self._failed: list[BaseException] = []

    def start(self, client: Callable[..., None], *arguments: Any) -> None:
        rng = random.Random(self._rng.random())

        def run() -> None:
            while True:
                try:
                    client(self, rng, *arguments)
                except Disconnected as error:
                    # The broker went before this client had ever reached it: nothing was begun, and it knocks again.
                    if str(error).startswith("no broker was reached") and not self.stopped.wait(0.05):
                        continue
                    self._failed.append(error)
                except BaseException as error:
                    self._failed.append(error)
                return

        thread = threading.Thread(target=run, name=f"{client.__name__}{arguments[:1]}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def check(self) -> None:
        if self._failed:
            raise self._failed[0]

    def stop(self) -> None:
        self.stopped.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE_S)
            assert not thread.is_alive(), f"{thread.name} does not end"
        self.check()


# Writers --------------------------------------------------------------------------------------------------------------


def write(load: Load, rng: random.Random, name: str, partitions: list[TopicPartition], idempotent: bool) -> None:
    """Our own producer: a handful of records at a time, each to any of its partitions."""
    with Cluster(load.bootstrap, timeout_s=PATIENCE_S) as cluster:
        producer = Producer(
            cluster, idempotent=idempotent, compression=rng.choice(COMPRESSIONS), batch_bytes=rng.choice((500, 50_000))
        )
        number = 0
        while not load.stopped.is_set():
            sent: list[tuple[bytes, Delivery]] = []
            for _ in range(rng.choice((1, 5, 30))):
                at, value = rng.choice(partitions), _value(rng, name, number)
                number += 1
                load.ledger.sent[value] = at
                sent.append((value, producer.send(at.topic, value, key=name.encode(), partition=at.partition)))
            producer.flush(strict=False)
            told = [Told(one.at, one.offset, value) for value, one in sent if one.acked]
            load.ledger.acked += told
            assert len(told) == len(sent) or not idempotent, next(one.error for _, one in sent if not one.acked)
            load.stopped.wait(load.pause_s * rng.random())


def write_confluent(load: Load, rng: random.Random, name: str, partitions: list[TopicPartition]) -> None:
    """librdkafka's idempotent producer, with many requests on their way at a time."""
    settings = {"bootstrap.servers": load.bootstrap, "enable.idempotence": True, "linger.ms": rng.choice((0, 5))}
    producer = ConfluentProducer({**settings, "compression.type": rng.choice(COMPRESSIONS), **QUICK})
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)
            return
        at = TopicPartition(message.topic(), message.partition())
        load.ledger.acked.append(Told(at, message.offset(), message.value()))

    number = 0
    while not load.stopped.is_set() and not failed:
        if len(producer) < OUTSTANDING:
            at, value = rng.choice(partitions), _value(rng, name, number)
            number += 1
            load.ledger.sent[value] = at
            producer.produce(at.topic, value, name.encode(), at.partition, on_delivery=delivered)
        producer.poll(load.pause_s * rng.random() if rng.random() < 0.1 else 0)
    left = producer.flush(PATIENCE_S)
    assert not failed, failed[0]
    assert not left, f"{left} messages of {name} are not acked"


def _value(rng: random.Random, name: str, number: int) -> bytes:
    return value_of(name, number, rng.randbytes(rng.choice(PADDING) // 2).hex().encode())


# Readers --------------------------------------------------------------------------------------------------------------


def read(load: Load, rng: random.Random, partitions: list[TopicPartition]) -> None:
    """Our own consumer, over all partitions at once."""
    with Cluster(load.bootstrap, timeout_s=PATIENCE_S) as cluster:
        consumer = Consumer(cluster, max_wait_ms=100, prefetch=rng.random() < 0.5)
        consumer.assign(dict.fromkeys(partitions, 0))
        while not load.stopped.is_set():
            try:
                for fetched in consumer.fetch():
                    load.ledger.seen += [Told(fetched.at, row.offset, row.value or b"") for row in fetched.rows()]
            except BrokerError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                # Somebody deleted what this consumer had not read yet.
                starts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
                for at in partitions:
                    consumer.seek(at, max(consumer.positions[at], starts[at].offset))


def read_forgetful(load: Load, rng: random.Random, partitions: list[TopicPartition], seen: dict[Place, bytes]) -> None:
    """Reads partitions that may lose their end, over and over. What stands at an offset in an epoch never changes."""
    with Cluster(load.bootstrap, timeout_s=PATIENCE_S) as cluster:
        consumer = Consumer(cluster, max_wait_ms=100)
        consumer.assign(dict.fromkeys(partitions, 0))
        while not load.stopped.is_set():
            try:
                for fetched in consumer.fetch():
                    note_places(fetched, seen)
            except BrokerError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                consumer.assign(dict.fromkeys(partitions, 0))


def note_places(fetched: Fetched, seen: dict[Place, bytes]) -> None:
    scanned = scan(fetched.batches)
    epochs = [(header.next_offset, header.leader_epoch) for header in scanned.headers]
    for row in fetched.rows():
        epoch = next(epoch for end, epoch in epochs if row.offset < end)
        value = seen.setdefault(Place(fetched.at, row.offset, epoch), row.value or b"")
        assert value == row.value, f"{fetched.at} {row.offset} in epoch {epoch} is not what it was"


def read_in_group(load: Load, rng: random.Random, group: str, topics: list[str], protocol: dict[str, Any]) -> None:
    """A member of a group. What it has read it commits now and then, and when there is nothing more to read."""
    settings = {"bootstrap.servers": load.bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = ConfluentConsumer({**settings, "auto.offset.reset": "earliest", **QUICK, **METADATA, **protocol})
    read_up_to: dict[TopicPartition, int] = {}

    def taken_away(_: object, partitions: list[ConfluentPartition]) -> None:
        for one in partitions:
            read_up_to.pop(TopicPartition(one.topic, one.partition), None)

    consumer.subscribe(topics, on_revoke=taken_away, on_lost=taken_away)
    try:
        while not load.stopped.is_set():
            messages = _without_errors(consumer.consume(200, 0.1))
            for message in messages:
                at = TopicPartition(message.topic(), message.partition())
                load.ledger.seen.append(Told(at, message.offset(), message.value()))
                read_up_to[at] = message.offset() + 1
            if read_up_to and (not messages or rng.random() < 0.3):
                _commit(load, consumer, group, read_up_to)
    finally:
        consumer.close()


def _without_errors(messages: list[Message]) -> list[Message]:
    """An outage is reported as a message with an error, and passes; what is fatal does not."""
    for message in messages:
        if (error := message.error()) is not None and error.fatal():
            raise KafkaException(error)
    return [message for message in messages if message.error() is None]


def _commit(load: Load, consumer: ConfluentConsumer, group: str, offsets: dict[TopicPartition, int]) -> None:
    """Synchronously; during an outage or a rebalance it fails, and the next one covers it."""
    asked = [ConfluentPartition(at.topic, at.partition, offset) for at, offset in offsets.items()]
    try:
        answered = consumer.commit(offsets=asked, asynchronous=False)
    except KafkaException:
        return
    for one in answered:
        if one.error is None:
            load.ledger.commit(group, TopicPartition(one.topic, one.partition), one.offset)
            offsets.pop(TopicPartition(one.topic, one.partition), None)


def wait_for_groups(load: Load, groups: Iterable[str], ends: Mapping[TopicPartition, int]) -> None:
    """Until every group has committed what there is."""
    deadline = time.monotonic() + 2 * PATIENCE_S
    committed = load.ledger.committed
    while True:
        load.check()
        behind = {
            (group, at): f"{committed.get((group, at), 0)} of {end}"
            for group in groups
            for at, end in ends.items()
            if committed.get((group, at), 0) < end
        }
        if not behind:
            return
        assert time.monotonic() < deadline, f"groups do not read on: {behind}"
        time.sleep(0.05)
