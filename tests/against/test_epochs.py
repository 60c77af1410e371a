"""The epochs of a producer id are used up: its transactional id goes on with another one, and nothing is lost or twice.

An epoch is an int16, and 32766 is the last that a client may have. Nobody waits for so many restarts of a program here:
raw requests take the id as often, and clients go on from there.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from against.brokers import Broker
from against.confluent import producer_of, read_partition
from against.java_machine import JavaMachine
from against.patience import PATIENCE_SECONDS
from against.rebalancing import create
from proving import proves
from tidelog.client.admin.transactions import describe
from tidelog.client.cluster import TRANSACTION, Cluster
from tidelog.client.connection import Connection
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

pytestmark = pytest.mark.external
LAST_EPOCH = 32_766
HANDS = 8
VERSION = 4
BUSY = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def take(connection: Connection, name: str) -> int:
    """The epoch that it brought; -1 when the broker is busy with the last who took it, or not ready."""
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    reply = connection.call(request, InitProducerIdResponse, version=VERSION)
    assert reply.error_code in (ErrorCode.NONE, *BUSY)
    return reply.producer_epoch


def use_up(broker: Broker, name: str, upto: int) -> None:
    """Takes the id until its epoch is exactly this: by many hands, and the last times by one."""

    def go_on(limit: int) -> None:
        with Cluster(broker.bootstrap) as cluster:
            connection = cluster.retry(lambda: cluster.coordinator(name, TRANSACTION))
            while take(connection, name) < limit:
                pass

    with ThreadPoolExecutor(HANDS) as hands:
        list(hands.map(go_on, [upto - HANDS] * HANDS))
    go_on(upto)


def holder(broker: Broker, name: str) -> tuple[int, int]:
    with Cluster(broker.bootstrap) as cluster:
        found = describe(cluster, name)
        return found.producer_id, found.epoch


def is_fenced(zombie: Producer) -> None:
    """One of a producer id that is no more is told so, and that it is fenced when it asks for an epoch again."""
    with pytest.raises(KafkaException):
        zombie.commit_transaction(PATIENCE_SECONDS)
    with pytest.raises(KafkaException) as raised:
        zombie.abort_transaction(PATIENCE_SECONDS)
    assert raised.value.args[0].code() == KafkaError._FENCED
    assert raised.value.args[0].fatal()


@proves("F2", "F3")
def test_who_takes_an_id_whose_epochs_are_used_up_gets_another_producer_id(broker: Broker, topic: str) -> None:
    """Every holder leaves a transaction open, and the next takes the id from it."""
    create(broker.bootstrap, topic, 1)
    use_up(broker, topic, LAST_EPOCH - 5)
    holders: list[tuple[int, int]] = []
    producers: list[Producer] = []
    for number in range(6):
        producer = producer_of(broker, transactional_id=topic)
        producer.init_transactions(PATIENCE_SECONDS)
        holders.append(holder(broker, topic))
        producer.begin_transaction()
        producer.produce(topic, str(number), partition=0)
        producer.commit_transaction(PATIENCE_SECONDS)
        producer.begin_transaction()
        producer.produce(topic, f"never of {number}", partition=0)
        producer.flush(PATIENCE_SECONDS)
        producers.append(producer)
    old, new = holders[0][0], holders[-1][0]
    assert old != new
    assert holders[:3] == [(old, LAST_EPOCH - 4), (old, LAST_EPOCH - 2), (old, LAST_EPOCH)]
    assert [producer_id for producer_id, _ in holders[3:]] == [new] * 3
    assert [epoch < 10 for _, epoch in holders[3:]] == [True] * 3
    for zombie in producers[:-1]:
        is_fenced(zombie)
    producers[-1].abort_transaction(PATIENCE_SECONDS)
    committed = read_partition(broker, topic, 6, isolation_level="read_committed")
    assert [message.value() for message in committed] == [b"0", b"1", b"2", b"3", b"4", b"5"]


@proves("F2", "F3")
def test_java_goes_on_with_another_producer_id_when_its_epochs_are_used_up(
    broker: Broker, java: JavaMachine, topic: str, group: str
) -> None:
    """Under transactions version 2 every end takes an epoch."""
    create(broker.bootstrap, topic, 1)
    use_up(broker, topic, LAST_EPOCH - 5)
    seen = java.run("Transactions", broker.bootstrap, "epochs", topic, group).json()
    old, new = seen["holders"][0][0], seen["holders"][-1][0]
    assert old != new
    epochs = [(old, epoch) for epoch in range(LAST_EPOCH - 2, LAST_EPOCH + 1)] + [(new, epoch) for epoch in range(9)]
    assert seen["holders"] == [list(one) for one in epochs]
    assert seen["committed"] == ["0", "1", "3", "4", "6", "7", "9", "10"]
    assert seen["offset"] == 10
    assert seen["zombie"] == "InvalidPidMappingException"
