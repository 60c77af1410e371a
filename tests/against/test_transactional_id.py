"""A transactional producer, which comes with the next release: every client hears at once that it cannot be had."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TransactionalIdAuthorizationFailed
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import TransactionalIdAuthorizationFailedError

from proving import proves
from tidelog.testing.broker import TestBroker

SECONDS = 60  # what is tried again and again ends with another error, and only then


@proves("F3")
def test_confluent_kafka_is_told_that_it_is_fatal(tidelog_session_broker: TestBroker) -> None:
    producer = Producer(
        {"bootstrap.servers": tidelog_session_broker.bootstrap, "transactional.id": "t", "log_level": 0}
    )
    with pytest.raises(KafkaException) as raised:
        producer.init_transactions(SECONDS)
    error = raised.value.args[0]
    assert (error.name(), error.fatal()) == ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", True)


@proves("F3")
def test_kafka_python_is_told_that_it_is_fatal(tidelog_session_broker: TestBroker) -> None:
    producer = KafkaProducer(
        bootstrap_servers=tidelog_session_broker.bootstrap, transactional_id="t", max_block_ms=SECONDS * 1000
    )
    with pytest.raises(TransactionalIdAuthorizationFailedError):
        producer.init_transactions()
    producer.close(1)


@proves("F3")
def test_aiokafka_is_told_that_it_is_fatal(tidelog_session_broker: TestBroker) -> None:
    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=tidelog_session_broker.bootstrap, transactional_id="t")
        try:
            await asyncio.wait_for(producer.start(), SECONDS)
        finally:
            await producer.stop()

    with pytest.raises(TransactionalIdAuthorizationFailed):
        asyncio.run(start())
