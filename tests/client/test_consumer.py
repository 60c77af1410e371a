"""Reading: batches as they lie in the log, from any offset, of many partitions, woken when something comes."""

from __future__ import annotations

import time
from threading import Thread

import pytest

from client.faults import BreakingNetwork
from contract import TIMEOUT_S, Broker
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer, Fetched
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.errors import BrokerError
from tidelog.record.codec import scan
from tidelog.record.columns import encode
from tidelog.wire.error_code import ErrorCode


def filled(cluster: Cluster, topic: str, batches: int, rows: int) -> TopicPartition:
    """One partition, as many batches as wanted, each of so many rows."""
    topics.create(cluster, topic, partitions=1)
    at = TopicPartition(topic, 0)
    producer = Producer(cluster)
    for number in range(batches):
        values = [b"%d" % (number * rows + row) for row in range(rows)]
        producer.send_batch(at, encode([(None, value, (), 0) for value in values]))
    producer.flush()
    return at


def fetch_all(consumer: Consumer, upto: dict[TopicPartition, int]) -> list[Fetched]:
    """A broker may answer with less than there is; so until the ends are reached."""
    fetched: list[Fetched] = []
    while any(consumer.positions[at] < end for at, end in upto.items()):
        fetched += consumer.fetch()
    return fetched


def read_all(consumer: Consumer, upto: dict[TopicPartition, int]) -> dict[TopicPartition, list[int]]:
    seen: dict[TopicPartition, list[int]] = {at: [] for at in upto}
    for fetched in fetch_all(consumer, upto):
        seen[fetched.at] += [row.offset for row in fetched.rows()]
    return seen


@proves("T1", "T10")
@pytest.mark.story
def test_batches_come_as_they_lie_in_the_log(cluster: Cluster, topic: str) -> None:
    at = filled(cluster, topic, batches=3, rows=4)
    consumer = Consumer(cluster)
    consumer.assign({at: 0})
    fetched = fetch_all(consumer, {at: 12})
    found = scan(b"".join(one.batches for one in fetched))
    assert found.error is None
    assert [(header.base_offset, header.count) for header in found.headers] == [(0, 4), (4, 4), (8, 4)]
    assert (fetched[0].offset, fetched[-1].next_offset, fetched[-1].high_watermark) == (0, 12, 12)
    assert consumer.positions == {at: 12}
    assert [row.value for one in fetched for row in one.rows()] == [b"%d" % number for number in range(12)]
    assert sum(columns.count for one in fetched for columns in one.columns()) == 12


@proves("T1", "T10")
def test_from_the_middle_of_a_batch_the_rows_before_are_skipped(cluster: Cluster, topic: str) -> None:
    at = filled(cluster, topic, batches=2, rows=10)
    consumer = Consumer(cluster)
    consumer.assign({at: 7})
    fetched = fetch_all(consumer, {at: 20})
    assert scan(fetched[0].batches).headers[0].base_offset == 0
    assert [row.offset for one in fetched for row in one.rows()] == list(range(7, 20))


@proves("T1", "T10")
@pytest.mark.parametrize("prefetch", [False, True])
def test_many_partitions_are_read_to_their_ends_each_in_order(cluster: Cluster, topic: str, prefetch: bool) -> None:
    topics.create(cluster, topic, partitions=5)
    with Producer(cluster, batch_bytes=2000) as producer:
        for number in range(5000):
            producer.send(topic, b"value %d" % number, partition=number % 5)
    consumer = Consumer(cluster, prefetch=prefetch, max_bytes=20_000, max_partition_bytes=3_000)
    upto = {TopicPartition(topic, index): 1000 for index in range(5)}
    consumer.assign(dict.fromkeys(upto, 0))
    assert read_all(consumer, upto) == {at: list(range(1000)) for at in upto}


@proves("T1")
def test_a_batch_larger_than_the_bounds_still_comes(cluster: Cluster, topic: str) -> None:
    at = filled(cluster, topic, batches=2, rows=2000)
    consumer = Consumer(cluster, max_bytes=1000, max_partition_bytes=1000)
    consumer.assign({at: 0})
    assert read_all(consumer, {at: 4000}) == {at: list(range(4000))}


@proves("T2", "T10")
def test_at_the_end_a_fetch_waits_and_is_woken_by_a_record(broker: Broker, cluster: Cluster, topic: str) -> None:
    at = filled(cluster, topic, batches=1, rows=1)
    consumer = Consumer(cluster, max_wait_ms=100_000)
    consumer.assign({at: 1})

    def write_soon() -> None:
        time.sleep(0.3)
        with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S) as other, Producer(other) as producer:
            producer.send(topic, b"woken")

    writer = Thread(target=write_soon)
    writer.start()
    fetched = consumer.fetch()
    writer.join()
    assert [row.value for one in fetched for row in one.rows()] == [b"woken"]


@proves("T2", "T10")
def test_nothing_to_read_is_an_empty_answer_after_the_wait(cluster: Cluster, topic: str) -> None:
    at = filled(cluster, topic, batches=1, rows=1)
    consumer = Consumer(cluster, max_wait_ms=50)
    consumer.assign({at: 1})
    assert consumer.fetch() == []
    assert consumer.positions == {at: 1}
    consumer.assign({})
    assert consumer.fetch() == []


@proves("T7", "T10")
def test_an_offset_out_of_range_is_said_with_the_place_and_does_not_move(cluster: Cluster, topic: str) -> None:
    at = filled(cluster, topic, batches=1, rows=3)
    consumer = Consumer(cluster)
    consumer.assign({at: 99})
    with pytest.raises(BrokerError, match=rf"offset 99 of {topic}\[0\] was refused with OFFSET_OUT_OF_RANGE") as caught:
        consumer.fetch()
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert consumer.positions == {at: 99}
    consumer.seek(at, 0)
    assert [row.offset for one in consumer.fetch() for row in one.rows()] == [0, 1, 2]


@proves("T7", "T10")
def test_a_partition_that_fails_does_not_hold_up_the_others(cluster: Cluster, topic: str) -> None:
    bad = filled(cluster, topic, batches=1, rows=3)
    good = filled(cluster, f"{topic}.good", batches=1, rows=3)
    consumer = Consumer(cluster, max_wait_ms=100)
    consumer.assign({bad: 99, good: 0})
    assert [one.at for one in consumer.fetch()] == [good]
    for _ in range(2):
        with pytest.raises(BrokerError, match=rf"offset 99 of {topic}\[0\]"):
            consumer.fetch()
    consumer.assign({good: 0})
    assert read_all(consumer, {good: 3}) == {good: [0, 1, 2]}


@proves("T7")
def test_after_a_seek_an_answer_to_the_old_position_is_dropped(cluster: Cluster, topic: str) -> None:
    at = filled(cluster, topic, batches=4, rows=5)
    consumer = Consumer(cluster, prefetch=True, max_partition_bytes=10)
    consumer.assign({at: 0})
    assert [row.offset for one in consumer.fetch() for row in one.rows()] == list(range(5))
    consumer.seek(at, 15)
    assert read_all(consumer, {at: 20}) == {at: list(range(15, 20))}


@proves("T10")
def test_a_topic_deleted_under_a_consumer_is_said(cluster: Cluster, topic: str) -> None:
    at = filled(cluster, topic, batches=1, rows=1)
    consumer = Consumer(cluster)
    consumer.assign({at: 0})
    consumer.fetch()
    topics.delete(cluster, topic)
    with pytest.raises(BrokerError) as caught:
        for _ in range(20):
            consumer.fetch()
    assert caught.value.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


@proves("T1", "T10")
def test_nothing_is_missed_or_seen_twice_over_a_network_that_breaks(
    broker: Broker, cluster: Cluster, topic: str, seed: int
) -> None:
    at = filled(cluster, topic, batches=40, rows=5)
    network = BreakingNetwork(seed, rate=0.2)
    with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S, dial=network) as shaky:
        consumer = Consumer(shaky, prefetch=True, max_partition_bytes=10, max_bytes=10)
        consumer.assign({at: 0})
        network.armed = True
        assert read_all(consumer, {at: 200}) == {at: list(range(200))}
    assert {"send", "answer"} <= set(network.broken)
