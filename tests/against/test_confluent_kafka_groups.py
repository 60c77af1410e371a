"""confluent-kafka (librdkafka) in groups, under both protocols: rebalances, commits, static members, subscription by
pattern.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from against.brokers import Broker
from against.confluent import CLASSIC, CONSUMER, PROTOCOLS, SECONDS, member, owned, producer_of, read
from against.patience import eventually
from against.rebalancing import (
    Member,
    all_read_and_committed,
    create,
    members_come_go_and_crash,
    produce_round,
    shared_evenly,
    ways,
)
from proving import proves

WAYS_TO_SHARE = {
    "range": {**CLASSIC, "partition.assignment.strategy": "range"},
    "roundrobin": {**CLASSIC, "partition.assignment.strategy": "roundrobin"},
    "cooperative-sticky": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer-uniform": {**CONSUMER, "group.remote.assignor": "uniform"},
    "consumer-range": {**CONSUMER, "group.remote.assignor": "range"},
}


@proves("T3", "T7")
@pytest.mark.parametrize("way", ways(WAYS_TO_SHARE, "consumer-uniform"))
def test_members_come_go_and_crash_and_each_record_is_read_once(
    broker: Broker, topic: str, group: str, way: str
) -> None:
    members_come_go_and_crash(broker, "confluent_kafka", group, topic, **WAYS_TO_SHARE[way])


@proves("T7")
@PROTOCOLS
def test_a_group_resumes_where_it_committed(broker: Broker, topic: str, group: str, protocol: dict[str, Any]) -> None:
    create(broker.bootstrap, topic, 1)
    produce_round(broker.bootstrap, topic, "r", 1)
    with member(broker, group, [topic], **protocol) as consumer:
        seen = read(consumer, 10)
        consumer.commit(seen[-1], asynchronous=False)
    with member(broker, group, [topic], **protocol) as consumer:
        assert read(consumer, 1)[0].offset() == 10
        committed = consumer.committed([TopicPartition(topic, 0)], timeout=SECONDS)
        assert committed[0].offset == 10


@proves("T7")
@pytest.mark.ends_broker
@PROTOCOLS
def test_a_commit_keeps_its_metadata_and_survives_a_restart_of_the_broker(
    broker: Broker, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    create(broker.bootstrap, topic, 2)
    with member(broker, group, [topic], **protocol) as consumer:
        eventually(lambda: owned(consumer), lambda seen: len(seen) == 2)
        consumer.commit(offsets=[TopicPartition(topic, 0, 3, metadata="my note")], asynchronous=False)
    broker.restart()
    with member(broker, group, [topic], **protocol) as consumer:
        eventually(lambda: owned(consumer), lambda seen: len(seen) == 2)
        partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        committed = consumer.committed(partitions, timeout=SECONDS)
        assert [(p.offset, p.metadata) for p in committed] == [(3, "my note"), (-1001, None)]


@proves("T7")
@PROTOCOLS
def test_offsets_are_committed_by_themselves_when_asked(
    broker: Broker, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    create(broker.bootstrap, topic, 1)
    produce_round(broker.bootstrap, topic, "r", 1)
    automatic = {"enable.auto.commit": True, "auto.commit.interval.ms": 100}
    with member(broker, group, [topic], **protocol, **automatic) as consumer:
        read(consumer, 40)

        def committed() -> int:
            consumer.poll(0.05)
            return int(consumer.committed([TopicPartition(topic, 0)], timeout=SECONDS)[0].offset)

        eventually(committed, lambda offset: offset == 40)


@proves("T3")
@PROTOCOLS
def test_two_groups_read_independently(broker: Broker, topic: str, group: str, protocol: dict[str, Any]) -> None:
    create(broker.bootstrap, topic, 1)
    expected = produce_round(broker.bootstrap, topic, "r", 1)
    for name in (f"{group}-a", f"{group}-b"):
        with member(broker, name, [topic], **protocol) as consumer:
            assert {m.value().decode() for m in read(consumer, 40)} == expected


@proves("T3")
@PROTOCOLS
def test_a_new_topic_that_matches_a_pattern_is_picked_up(
    broker: Broker, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    create(broker.bootstrap, f"{topic}.first", 1)
    with member(broker, group, [f"^{topic}\\..*"], **protocol) as consumer:
        eventually(lambda: owned(consumer), lambda seen: seen == {(f"{topic}.first", 0)})
        create(broker.bootstrap, f"{topic}.second", 2)
        create(broker.bootstrap, f"other.{topic}.third", 1)
        wanted = {(f"{topic}.first", 0), (f"{topic}.second", 0), (f"{topic}.second", 1)}
        eventually(lambda: owned(consumer), lambda seen: seen == wanted)
        expected = produce_round(broker.bootstrap, f"{topic}.second", "new", 2)
        assert {m.value().decode() for m in read(consumer, 40)} == expected


@proves("T3")
@PROTOCOLS
def test_a_static_member_comes_back_without_a_rebalance(
    broker: Broker, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    create(broker.bootstrap, topic, 4)
    with member(broker, group, [topic], **protocol, **{"group.instance.id": "one"}) as one:
        eventually(lambda: owned(one), lambda seen: len(seen) == 4)
        with member(broker, group, [topic], **protocol, **{"group.instance.id": "two"}) as two:
            eventually(lambda: (owned(one), owned(two)), lambda seen: len(seen[0]) == len(seen[1]) == 2)
            before = owned(two)
        kept = owned(one)
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            assert owned(one) == kept, "the partitions of an absent static member were handed out"
        with member(broker, group, [topic], **protocol, **{"group.instance.id": "two"}) as two:
            eventually(lambda: owned(two), lambda seen: seen == before)
            assert owned(one) == kept


@proves("T3")
def test_a_second_holder_of_a_static_name_fences_the_first(broker: Broker, topic: str, group: str) -> None:
    create(broker.bootstrap, topic, 1)
    with member(broker, group, [topic], **CLASSIC, **{"group.instance.id": "same"}) as first:
        eventually(lambda: owned(first), lambda seen: len(seen) == 1)
        with member(broker, group, [topic], **CLASSIC, **{"group.instance.id": "same"}) as second:
            eventually(lambda: owned(second), lambda seen: len(seen) == 1)
            with pytest.raises(KafkaException) as told:
                eventually(lambda: raising(first))
            assert told.value.args[0].code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)


def raising(consumer: Consumer) -> bool:
    message = consumer.poll(0.05)
    if message is not None and message.error() is not None:
        raise KafkaException(message.error())
    return False


@proves("T3")
@PROTOCOLS
def test_added_partitions_are_handed_out(broker: Broker, topic: str, group: str, protocol: dict[str, Any]) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    create(broker.bootstrap, topic, 1)
    with member(broker, group, [topic], **protocol) as consumer:
        eventually(lambda: owned(consumer), lambda seen: len(seen) == 1)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(SECONDS)
        eventually(lambda: owned(consumer), lambda seen: len(seen) == 3)
        producer = producer_of(broker)
        producer.produce(topic, value=b"new", partition=2)
        assert producer.flush(SECONDS) == 0
        assert read(consumer, 1)[0].value() == b"new"


@proves("T3")
def test_a_group_moves_from_the_classic_to_the_consumer_protocol(broker: Broker, topic: str, group: str) -> None:
    create(broker.bootstrap, topic, 2)
    expected = produce_round(broker.bootstrap, topic, "r", 2)
    with member(broker, group, [topic], **CLASSIC) as consumer:
        seen = {m.value().decode() for m in read(consumer, 20)}
        consumer.commit(asynchronous=False)
    with member(broker, group, [topic], **CONSUMER) as consumer:
        seen |= {m.value().decode() for m in read(consumer, 20)}
    assert seen == expected


@proves("T3", "T7")
@pytest.mark.parametrize("strategy", [pytest.param("range", marks=pytest.mark.full), "cooperative-sticky"])
@pytest.mark.slow
def test_a_group_rolls_from_the_classic_to_the_consumer_protocol_and_back(
    broker: Broker, topic: str, group: str, strategy: str
) -> None:
    create(broker.bootstrap, topic)
    classic = {**CLASSIC, "partition.assignment.strategy": strategy}
    join = lambda **settings: Member("confluent_kafka", broker.bootstrap, group, topic, **settings)  # noqa: E731
    members = [join(**classic)]
    everybody, expected = list(members), set[str]()

    def all_goes_on() -> None:
        nonlocal expected
        shared_evenly(topic, *members)
        expected |= produce_round(broker.bootstrap, topic, f"round {len(expected)}")
        all_read_and_committed(expected, *everybody)

    all_goes_on()
    for settings in (CONSUMER, classic):
        members.append(join(**settings))
        everybody.append(members[-1])
        all_goes_on()
        members.pop(0).leave()
        all_goes_on()
    members[0].leave()
    seen = [value for one in everybody for _, _, _, value in one.records]
    assert len(seen) == len(set(seen)) == len(expected), "a record was read twice although it had been committed"
