"""kafka-python, pure Python and classic groups: it produces, consumes, commits, rebalances and finds its place by
time.

It forgets a join that its own metadata made it begin (a topic that it has only now heard of, a partition more) if
`poll` returns before SyncGroup is answered: it then sends no heartbeats, and is out of the group for good when its
session ends, whatever the broker. So `read` waits within one poll, and members of groups wait for records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import FencedInstanceIdError, InvalidRecordError, MessageSizeTooLargeError, OffsetOutOfRangeError
from kafka.structs import OffsetAndMetadata

from against.brokers import HEARTBEAT_MS, SESSION_MS, Broker
from against.rebalancing import create, members_come_go_and_crash, produce_round, ways
from proving import proves

SECONDS = 180.0
LONG_WAIT_MS = 250_000  # brokers may end it after a minute
WOKEN_SECONDS = 50.0  # before that: by the record and nothing else
QUICK = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
WAYS_TO_SHARE = {
    "range": "range.RangePartitionAssignor",
    "roundrobin": "roundrobin.RoundRobinPartitionAssignor",
    "sticky": "sticky.sticky_assignor.StickyPartitionAssignor",
    "cooperative-sticky": "cooperative_sticky.CooperativeStickyAssignor",
}


@contextmanager
def producer_of(broker: Broker, **settings: Any) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, **settings)
    try:
        yield producer
    finally:
        producer.close(SECONDS)


@contextmanager
def consumer_of(broker: Broker, *topics: str, **settings: Any) -> Iterator[KafkaConsumer]:
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "metadata_max_age_ms": 500}
    consumer = KafkaConsumer(*topics, bootstrap_servers=broker.bootstrap, **{**defaults, **settings})
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: KafkaConsumer, count: int, seconds: float = SECONDS) -> list[Any]:
    records: list[Any] = []
    deadline = time.monotonic() + seconds
    while len(records) < count:
        left = deadline - time.monotonic()
        assert left > 0, f"{len(records)} of {count} records within {seconds} s"
        polled = consumer.poll(left * 1000, max_records=count - len(records))
        records += [record for batch in polled.values() for record in batch]
    return records


def read_partition(broker: Broker, topic: str, count: int, offset: int = 0) -> list[Any]:
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), offset)
        return read(consumer, count)


@proves("T1", "T10")
def test_keys_values_headers_nulls_and_timestamps_come_back_as_they_were_sent(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    sent = [
        (b"key", b"value", [("a", b"1"), ("a", b"2"), ("empty", b"")], 1_700_000_000_000),
        (None, b"no key", [], 1_600_000_000_001),
        (b"no value", None, [], 1_700_000_000_002),
        (b"", b"", [("only", "ä€".encode())], 1_700_000_000_003),
    ]
    with producer_of(broker) as producer:
        for key, value, headers, timestamp in sent:
            producer.send(topic, value=value, key=key, headers=headers, timestamp_ms=timestamp, partition=0)
        producer.flush(SECONDS)
    got = read_partition(broker, topic, len(sent))
    assert [(r.key, r.value, r.headers, r.timestamp) for r in got] == sent
    assert [r.offset for r in got] == list(range(len(sent)))


@proves("T1")
@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_come_back(broker: Broker, topic: str, compression: str | None) -> None:
    create(broker.bootstrap, topic, 1)
    values = [b"the same words again %d " % number * 20 for number in range(100)]
    with producer_of(broker, compression_type=compression, linger_ms=20) as producer:
        for value in values:
            producer.send(topic, value, key=b"k", headers=[("h", value[:10])])
        producer.flush(SECONDS)
    assert [r.value for r in read_partition(broker, topic, len(values))] == values


@proves("T1")
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_ack_delivers(broker: Broker, topic: str, acks: int | str) -> None:
    create(broker.bootstrap, topic, 1)
    with producer_of(broker, acks=acks, enable_idempotence=False) as producer:
        futures = [producer.send(topic, b"%d" % number) for number in range(30)]
        offsets = [future.get(SECONDS).offset for future in futures]
    assert acks == 0 or offsets == list(range(30))
    assert [int(r.value) for r in read_partition(broker, topic, 30)] == list(range(30))


@proves("T1")
def test_an_idempotent_producer_numbers_batches_without_gap_or_repeat(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    with producer_of(broker, enable_idempotence=True, batch_size=200) as producer:
        futures = [producer.send(topic, b"%d" % number) for number in range(200)]
        assert [future.get(SECONDS).offset for future in futures] == list(range(200))
    assert [int(r.value) for r in read_partition(broker, topic, 200)] == list(range(200))


@proves("T1")
@pytest.mark.slow
def test_a_message_up_to_the_limit_is_taken_and_one_above_is_refused(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1, max_message_bytes="2000000")
    with producer_of(broker, max_request_size=8_000_000, enable_idempotence=False) as producer:
        assert producer.send(topic, b"x" * 1_999_000).get(SECONDS).offset == 0
        with pytest.raises(MessageSizeTooLargeError):
            producer.send(topic, b"y" * 2_000_001).get(SECONDS)
        assert producer.send(topic, b"after").get(SECONDS).offset == 1
    assert [len(r.value) for r in read_partition(broker, topic, 2)] == [1_999_000, 5]


@proves("T1")
def test_a_compacted_topic_refuses_a_record_without_key(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1, cleanup_policy="compact")
    with producer_of(broker, enable_idempotence=False) as producer:
        with pytest.raises(InvalidRecordError):
            producer.send(topic, b"no key").get(SECONDS)
        assert producer.send(topic, b"with key", key=b"k").get(SECONDS).offset == 0


@proves("T1")
def test_an_unknown_topic_is_made_by_the_first_produce(broker: Broker, topic: str) -> None:
    with producer_of(broker) as producer:
        assert producer.send(topic, b"first").get(SECONDS).offset == 0
    assert [r.value for r in read_partition(broker, topic, 1)] == [b"first"]


@proves("T7")
def test_a_consumer_seeks_into_the_middle_of_a_batch_and_to_both_ends(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    with producer_of(broker, linger_ms=100) as producer:
        for number in range(50):
            producer.send(topic, b"%d" % number)
        producer.flush(SECONDS)
    partition = TopicPartition(topic, 0)
    with consumer_of(broker) as consumer:
        consumer.assign([partition])
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 50}
        for offset in (31, 0, 49, 7):
            consumer.seek(partition, offset)
            assert int(read(consumer, 1)[0].value) == offset
        consumer.seek_to_end(partition)
        assert consumer.position(partition) == 50


@proves("T7")
def test_offsets_are_found_by_time(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    start = 1_700_000_000_000
    with producer_of(broker, batch_size=300) as producer:
        for number in range(50):
            producer.send(topic, b"%d" % number, timestamp_ms=start + number * 1000)
        producer.flush(SECONDS)
    partition = TopicPartition(topic, 0)
    with consumer_of(broker) as consumer:
        found = consumer.offsets_for_times({partition: start + 30_500})[partition]
        assert (found.offset, found.timestamp) == (31, start + 31_000)
        assert consumer.offsets_for_times({partition: start + 60_000})[partition] is None


@proves("T7")
def test_an_offset_out_of_range_is_told(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    with consumer_of(broker, auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 1000)
        with pytest.raises(OffsetOutOfRangeError):
            read(consumer, 1)


@proves("T2")
def test_a_consumer_at_the_end_is_woken_by_the_next_record(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    with consumer_of(broker, fetch_max_wait_ms=LONG_WAIT_MS, request_timeout_ms=LONG_WAIT_MS + 30_000) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert consumer.poll(1000) == {}
        with producer_of(broker) as producer:
            producer.send(topic, b"wake up").get(SECONDS)
        assert read(consumer, 1, seconds=WOKEN_SECONDS)[0].value == b"wake up"


@pytest.mark.full
@proves("T3", "T7")
@pytest.mark.parametrize("way", ways(WAYS_TO_SHARE, "cooperative-sticky"))
def test_members_come_go_and_crash_and_each_record_is_read_once(
    broker: Broker, topic: str, group: str, way: str
) -> None:
    strategy = {"partition_assignment_strategy": WAYS_TO_SHARE[way]}
    members_come_go_and_crash(broker, "kafka_python", group, topic, **QUICK, **strategy)


@proves("T7")
def test_a_group_resumes_where_it_committed(broker: Broker, topic: str, group: str) -> None:
    create(broker.bootstrap, topic, 1)
    produce_round(broker.bootstrap, topic, "r", 1)
    partition = TopicPartition(topic, 0)
    with consumer_of(broker, topic, group_id=group, **QUICK) as consumer:
        read(consumer, 10)
        consumer.commit({partition: OffsetAndMetadata(10, "ten of them", -1)})
        assert consumer.committed(partition) == 10
    with consumer_of(broker, topic, group_id=group, **QUICK) as consumer:
        assert read(consumer, 1)[0].offset == 10
        assert consumer.committed(partition, metadata=True).metadata == "ten of them"


@proves("T3")
def test_a_new_topic_that_matches_a_pattern_is_picked_up(broker: Broker, topic: str, group: str) -> None:
    first, second = f"{topic}.first", f"{topic}.second"
    with consumer_of(broker, group_id=group, **QUICK) as consumer:
        consumer.subscribe(pattern=f"^{topic}\\..*")
        for new, known in ((first, {first}), (second, {first, second})):
            create(broker.bootstrap, new, 1)
            produce_round(broker.bootstrap, new, "new", 1)
            assert {r.topic for r in read(consumer, 40)} == {new}
            assert {partition.topic for partition in consumer.assignment()} == known


@proves("T3")
def test_a_static_member_comes_back_to_what_it_had_and_its_double_is_fenced(
    broker: Broker, topic: str, group: str
) -> None:
    create(broker.bootstrap, topic, 2)
    produce_round(broker.bootstrap, topic, "r", 2)
    static = {"group_id": group, "group_instance_id": "same", **QUICK}
    with consumer_of(broker, topic, **static) as first:
        read(first, 1)
        assert len(first.assignment()) == 2
        with consumer_of(broker, topic, **static) as second:
            read(second, 1)
            assert second.assignment() == first.assignment()
            with pytest.raises(FencedInstanceIdError):
                first.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)})
