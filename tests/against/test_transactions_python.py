"""Transactions with kafka-python and aiokafka, which speak older versions than librdkafka does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AsyncPartition
from aiokafka.errors import ProducerFenced
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from against.brokers import Broker
from against.confluent import read_partition
from against.rebalancing import create
from proving import proves

SECONDS = 180.0


def committed_values(broker: Broker, topic: str, count: int) -> list[bytes]:
    return [message.value() for message in read_partition(broker, topic, count, isolation_level="read_committed")]


# kafka-python ----------------------------------------------------------------------------------------------------


@contextmanager
def transactional(broker: Broker, name: str) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name)
    try:
        producer.init_transactions()
        yield producer
    finally:
        producer.close(SECONDS)


@proves("F2", "T10")
def test_kafka_python_commits_and_aborts(broker: Broker, topic: str, group: str) -> None:
    create(broker.bootstrap, topic, 1)
    with transactional(broker, topic) as producer:
        for value, end in (("a", "commit"), ("b", "abort"), ("c", "commit")):
            producer.begin_transaction()
            producer.send(topic, value.encode(), partition=0)
            offsets = {TopicPartition(topic, 0): OffsetAndMetadata(ord(value), value, -1)}
            producer.send_offsets_to_transaction(offsets, group)
            producer.flush(SECONDS)
            getattr(producer, f"{end}_transaction")()
    assert committed_values(broker, topic, 2) == [b"a", b"c"]
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, isolation_level="read_committed")
    consumer.assign([TopicPartition(topic, 0)])
    assert consumer.committed(TopicPartition(topic, 0)) == ord("c")
    consumer.seek_to_beginning()
    values: list[bytes] = []
    while len(values) < 2:
        values += [record.value for some in consumer.poll(1000).values() for record in some]
    consumer.close()
    assert values == [b"a", b"c"]


@proves("F3")
def test_kafka_python_is_fenced_by_the_next_of_its_id(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    with transactional(broker, topic) as first, transactional(broker, topic), pytest.raises(KafkaError):
        first.begin_transaction()
        first.send(topic, b"late", partition=0).get(SECONDS)
        first.commit_transaction()


# aiokafka --------------------------------------------------------------------------------------------------------


@proves("F2", "T10")
def test_aiokafka_commits_and_aborts(broker: Broker, topic: str, group: str) -> None:
    create(broker.bootstrap, topic, 1)
    place = AsyncPartition(topic, 0)

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic) as producer:
            for value, end in (("a", "commit"), ("b", "abort"), ("c", "commit")):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, value.encode(), partition=0)
                await producer.send_offsets_to_transaction({place: ord(value)}, group)
                await getattr(producer, f"{end}_transaction")()

    async def consume() -> tuple[Any, list[bytes]]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap, group_id=group, isolation_level="read_committed"
        )
        await consumer.start()
        consumer.assign([place])
        committed = await consumer.committed(place)
        await consumer.seek_to_beginning()
        values = [(await consumer.getone()).value for _ in range(2)]
        await consumer.stop()
        return committed, values

    asyncio.run(asyncio.wait_for(produce(), SECONDS))
    assert asyncio.run(asyncio.wait_for(consume(), SECONDS)) == (ord("c"), [b"a", b"c"])


@proves("F3")
def test_aiokafka_is_fenced_by_the_next_of_its_id(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)

    async def fence() -> None:
        same = {"bootstrap_servers": broker.bootstrap, "transactional_id": topic}
        async with AIOKafkaProducer(**same) as first, AIOKafkaProducer(**same):
            await first.begin_transaction()
            await first.send_and_wait(topic, b"late", partition=0)

    with pytest.raises(ProducerFenced):
        asyncio.run(asyncio.wait_for(fence(), SECONDS))
