"""How the tests use confluent-kafka: a producer, a consumer, and reading exactly so many messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from against.brokers import HEARTBEAT_MS, SESSION_MS, Broker

SECONDS = 180.0
CLASSIC = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
CONSUMER = {"group.protocol": "consumer"}
PROTOCOLS = pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER], ids=["classic", "consumer"])


def producer_of(broker: Broker, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, **dotted(settings)})


def consumer_of(broker: Broker, group: str = "unused", **settings: Any) -> Consumer:
    defaults = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    return Consumer({**defaults, "enable.auto.commit": False, "check.crcs": True, **dotted(settings)})


def dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "."): value for key, value in settings.items()}


def read(consumer: Consumer, count: int, seconds: float = SECONDS) -> list[Message]:
    """Exactly `count` messages; fewer within the time is a failure, an error of the consumer is raised."""
    messages: list[Message] = []
    deadline = time.monotonic() + seconds
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages within {seconds} s"
        for message in consumer.consume(count - len(messages), 0.2):
            if (error := message.error()) is not None:
                raise KafkaException(error)
            messages.append(message)
    return messages


def read_partition(broker: Broker, topic: str, count: int, partition: int = 0, **settings: Any) -> list[Message]:
    consumer = consumer_of(broker, **settings)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    try:
        return read(consumer, count)
    finally:
        consumer.close()


def reports(into: list[tuple[KafkaError | None, Message]]) -> Callable[[KafkaError | None, Message], None]:
    return lambda error, message: into.append((error, message))


@contextmanager
def member(broker: Broker, group: str, topics: list[str], **settings: Any) -> Iterator[Consumer]:
    defaults = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    quick = {"enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 300}
    consumer = Consumer({**defaults, **quick, **settings})
    consumer.subscribe(topics)
    try:
        yield consumer
    finally:
        consumer.close()


def owned(consumer: Consumer) -> set[tuple[str, int]]:
    consumer.poll(0.05)
    return {(partition.topic, partition.partition) for partition in consumer.assignment()}
