"""Transactions with librdkafka (confluent-kafka): all or nothing, fencing, time-outs, kills."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from against.brokers import Broker
from against.confluent import consumer_of, producer_of, read, read_partition
from against.rebalancing import create
from proving import proves

SECONDS = 180.0


def transactional(broker: Broker, name: str, **settings: object) -> Producer:
    producer = producer_of(broker, transactional_id=name, **settings)
    producer.init_transactions(SECONDS)
    return producer


def committed_values(broker: Broker, topic: str, count: int, partition: int = 0) -> list[bytes]:
    messages = read_partition(broker, topic, count, partition, isolation_level="read_committed")
    return [message.value() for message in messages]


def commit(producer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=partition)
    producer.commit_transaction(SECONDS)


@proves("F2", "F3", "T10")
def test_what_is_committed_is_seen_and_what_is_aborted_is_not(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 2)
    producer = transactional(broker, topic)
    commit(producer, topic, "a", "b")
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(topic, "aborted", partition=partition)
    producer.flush(SECONDS)
    producer.abort_transaction(SECONDS)
    commit(producer, topic, "c")
    commit(producer, topic, "d", partition=1)
    assert committed_values(broker, topic, 3) == [b"a", b"b", b"c"]
    assert committed_values(broker, topic, 1, partition=1) == [b"d"]
    everything = read_partition(broker, topic, 4, isolation_level="read_uncommitted")
    assert [message.value() for message in everything] == [b"a", b"b", b"aborted", b"c"]


@proves("F2")
def test_an_open_transaction_holds_back_what_comes_behind_it(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    producer = transactional(broker, topic)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush(SECONDS)
    plain = producer_of(broker)
    plain.produce(topic, "plain", partition=0)
    plain.flush(SECONDS)
    reader = consumer_of(broker, isolation_level="read_committed")
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert reader.poll(1.0) is None
    producer.commit_transaction(SECONDS)
    assert [message.value() for message in read(reader, 2)] == [b"open", b"plain"]
    reader.close()


@proves("F2", "F3")
def test_offsets_count_only_with_the_transaction(broker: Broker, topic: str, group: str) -> None:
    create(broker.bootstrap, topic, 1)
    producer = transactional(broker, topic)
    commit(producer, topic, "a", "b", "c")
    consumer = consumer_of(broker, group, isolation_level="read_committed")
    consumer.subscribe([topic])
    read(consumer, 3)
    for way, wanted in (("abort", -1001), ("commit", 3)):
        producer.begin_transaction()
        producer.produce(topic, way, partition=0)
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 3)], consumer.consumer_group_metadata(), SECONDS)
        getattr(producer, f"{way}_transaction")(SECONDS)
        [place] = consumer.committed([TopicPartition(topic, 0)], SECONDS)
        assert place.offset == wanted
    consumer.close()


@proves("F3")
def test_a_second_producer_of_the_same_id_fences_the_first(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    first = transactional(broker, topic)
    first.begin_transaction()
    first.produce(topic, "of the first", partition=0)
    first.flush(SECONDS)
    second = transactional(broker, topic)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(SECONDS)
    assert raised.value.args[0].fatal()
    commit(second, topic, "of the second")
    assert committed_values(broker, topic, 1) == [b"of the second"]


@proves("F2")
def test_a_transaction_that_takes_too_long_is_aborted(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    producer = transactional(broker, topic, transaction_timeout_ms=1000)
    producer.begin_transaction()
    producer.produce(topic, "too long", partition=0)
    producer.flush(SECONDS)
    plain = producer_of(broker)
    plain.produce(topic, "plain", partition=0)
    plain.flush(SECONDS)
    assert committed_values(broker, topic, 1) == [b"plain"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(SECONDS)


@proves("F2", "T6")
def test_a_transaction_survives_the_brokers_restart(tidelog_process: Broker, topic: str, group: str) -> None:
    create(tidelog_process.bootstrap, topic, 1)
    producer = transactional(tidelog_process, topic)
    producer.begin_transaction()
    producer.produce(topic, "before", partition=0)
    producer.flush(SECONDS)
    tidelog_process.kill()
    tidelog_process.start()
    producer.produce(topic, "after", partition=0)
    producer.commit_transaction(SECONDS)
    assert committed_values(tidelog_process, topic, 2) == [b"before", b"after"]


@pytest.mark.full
@proves("F2", "T6")
def test_a_commit_that_was_acked_stands_when_the_broker_is_killed_at_once(tidelog_process: Broker, topic: str) -> None:
    create(tidelog_process.bootstrap, topic, 2)
    producer = transactional(tidelog_process, topic)
    for number in range(5):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, str(number), partition=partition)
        producer.commit_transaction(SECONDS)
        tidelog_process.kill()
        tidelog_process.start()
    for partition in (0, 1):
        assert committed_values(tidelog_process, topic, 5, partition) == [b"0", b"1", b"2", b"3", b"4"]


@proves("F2", "F3")
def test_stable_offsets_are_waited_for(broker: Broker, topic: str, group: str) -> None:
    """The next owner of a partition must not begin where an open transaction may still move the offset."""
    create(broker.bootstrap, topic, 1)
    producer = transactional(broker, topic)
    commit(producer, topic, "a", "b")
    first = consumer_of(broker, group)
    first.subscribe([topic])
    read(first, 2)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 2)], first.consumer_group_metadata(), SECONDS)
    first.close()
    second: Consumer = consumer_of(broker, group, isolation_level="read_committed")
    second.subscribe([topic])
    assert second.poll(3.0) is None, "the offset is not known yet"
    producer.commit_transaction(SECONDS)
    commit(producer, topic, "c")
    assert [message.value() for message in read(second, 1)] == [b"c"]
    second.close()


@proves("F3", "T10")
def test_a_topic_with_writers_takes_records_only_from_transactions_of_that_name(
    tidelog_process: Broker, topic: str
) -> None:
    create(tidelog_process.bootstrap, topic, 1, tidelog_writers="payments-")
    commit(transactional(tidelog_process, "payments-1"), topic, "taken")
    outcomes: list[object] = []
    plain = producer_of(tidelog_process)
    plain.produce(topic, "refused", partition=0, on_delivery=lambda error, _: outcomes.append(error.name()))
    plain.flush(SECONDS)
    assert outcomes == ["TOPIC_AUTHORIZATION_FAILED"]
    other = transactional(tidelog_process, "others-1")
    other.begin_transaction()
    other.produce(topic, "refused", partition=0)
    with pytest.raises(KafkaException):
        other.commit_transaction(SECONDS)
    other.abort_transaction(SECONDS)
    assert committed_values(tidelog_process, topic, 1) == [b"taken"]
