"""Writing: in order, where Java would put it, acked or failed, and exactly once even when answers are lost."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.faults import BreakingNetwork
from contract import TIMEOUT_S, Broker
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.outbound import MAX_REQUEST_BYTES, Batch, portions, waves
from tidelog.client.producer import ACKS_LEADER, ACKS_NONE, Producer
from tidelog.errors import BrokerError, Disconnected, MalformedBatch, UsageError
from tidelog.record.codec import scan
from tidelog.record.columns import Row, encode
from tidelog.record.header import BatchHeader
from tidelog.record.partitioner import partition_of
from tidelog.testing.broker import TestBroker
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData


def rows_of(cluster: Cluster, at: TopicPartition, count: int) -> list[Row]:
    """All rows, once so many are there; more than that show too."""
    consumer = Consumer(cluster, max_wait_ms=100)
    consumer.assign({at: 0})
    rows: list[Row] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(rows) < count and time.monotonic() < deadline:
        rows += [row for fetched in consumer.fetch() for row in fetched.rows()]
    return rows + [row for fetched in consumer.fetch() for row in fetched.rows()]


@proves("T1", "T10")
@pytest.mark.story
def test_a_record_comes_back_as_it_was_sent(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("none", None)]
    producer = Producer(cluster)
    sent = [
        producer.send(topic, b"value", key=b"key", headers=headers, timestamp=1_700_000_000_000),
        producer.send(topic, None, key=b"", timestamp=1_700_000_000_001),
        producer.send(topic, b"", timestamp=1_700_000_000_002),
    ]
    assert not any(delivery.acked for delivery in sent)
    producer.flush()
    assert [(delivery.at, delivery.offset, delivery.acked) for delivery in sent] == [
        (TopicPartition(topic, 0), offset, True) for offset in range(3)
    ]
    assert rows_of(cluster, TopicPartition(topic, 0), 3) == [
        Row(0, 1_700_000_000_000, b"key", b"value", tuple(headers)),
        Row(1, 1_700_000_000_001, b"", None, ()),
        Row(2, 1_700_000_000_002, None, b"", ()),
    ]


@proves("T1", "T10")
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_taken(cluster: Cluster, topic: str, compression: str) -> None:
    topics.create(cluster, topic, partitions=1)
    with Producer(cluster, compression=compression) as producer:
        for number in range(500):
            producer.send(topic, b"value %d " % number * 5)
    rows = rows_of(cluster, TopicPartition(topic, 0), 500)
    assert [row.value for row in rows] == [b"value %d " % number * 5 for number in range(500)]


@proves("T1", "T10")
def test_keys_lie_where_javas_producer_puts_them_and_in_order(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=4)
    with Producer(cluster, batch_bytes=300) as producer:
        sent = [(b"key %d" % (number % 20), b"%d" % number) for number in range(400)]
        for key, value in sent:
            producer.send(topic, value, key=key)
    for index in range(4):
        expected = [pair for pair in sent if partition_of(pair[0], 4) == index]
        rows = rows_of(cluster, TopicPartition(topic, index), len(expected))
        assert [(row.key, row.value) for row in rows] == expected


@proves("T1")
def test_records_without_a_key_stay_together_and_batches_take_turns(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=3)
    producer = Producer(cluster)
    places = []
    for _ in range(6):
        together = [producer.send(topic, b"x") for _ in range(10)]
        producer.flush()
        assert len({delivery.at for delivery in together}) == 1
        places.append(together[0].at.partition)
    assert sorted(places) == [0, 0, 1, 1, 2, 2]


@proves("T1", "T10")
def test_batches_encoded_elsewhere_are_taken_in_order(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    at = TopicPartition(topic, 0)
    producer = Producer(cluster)
    deliveries = [
        producer.send_batch(at, bytes(encode([(None, b"%d.%d" % (batch, row), (), 0) for row in range(3)])))
        for batch in range(30)
    ]
    producer.flush()
    assert [delivery.offset for delivery in deliveries] == list(range(0, 90, 3))
    rows = rows_of(cluster, at, 90)
    assert [row.value for row in rows] == [b"%d.%d" % (batch, row) for batch in range(30) for row in range(3)]


@proves("T1")
def test_what_is_not_one_good_batch_is_refused_before_it_is_sent(cluster: Cluster, topic: str) -> None:
    at = TopicPartition(topic, 0)
    batch = encode([(None, b"x", (), 0)])
    with pytest.raises(UsageError, match="are not one batch"):
        Producer(cluster).send_batch(at, batch + batch)
    with pytest.raises(MalformedBatch):
        Producer(cluster).send_batch(at, b"nonsense")


@proves("T1", "T10")
def test_a_missing_topic_is_made_where_the_broker_allows_it(cluster: Cluster, topic: str) -> None:
    with Producer(cluster) as producer:
        producer.send(topic, b"first")
    assert [row.value for row in rows_of(cluster, TopicPartition(topic, 0), 1)] == [b"first"]


@proves("T6", "T10")
def test_acks_of_the_leader_alone_give_offsets_too(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    producer = Producer(cluster, acks=ACKS_LEADER)
    delivery = producer.send(topic, b"x")
    producer.flush()
    assert (delivery.acked, delivery.offset) == (True, 0)


@proves("T6", "T10")
def test_without_acks_nothing_is_promised_and_no_answer_awaited(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    with Producer(cluster) as first:  # Apache Kafka ends the connection where a new partition is not ready for acks=0
        first.send(topic, b"ready")
    producer = Producer(cluster, acks=ACKS_NONE)
    delivery = producer.send(topic, b"x")
    producer.flush()
    assert delivery.offset == -1
    assert cluster.ask_metadata(()).nodes, "the connection is still in step"
    assert [row.value for row in rows_of(cluster, TopicPartition(topic, 0), 2)] == [b"ready", b"x"]


@proves("F3")
def test_idempotence_without_all_acks_is_refused(cluster: Cluster) -> None:
    with pytest.raises(UsageError, match="acks=1 cannot be idempotent"):
        Producer(cluster, acks=1, idempotent=True)


@proves("T1", "F3", "T10")
def test_a_batch_that_is_refused_does_not_take_the_next_ones_with_it(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=2, configs={"max.message.bytes": "1000"})
    producer = Producer(cluster, batch_bytes=900)
    deliveries = [
        producer.send(topic, b"%d" % number + b"x" * (2000 if number % 10 == 3 else 100), partition=0)
        for number in range(60)
    ]
    other = producer.send(topic, b"other", partition=1)
    missing = producer.send(topic, b"missing", partition=9)
    producer.flush(strict=False)
    failed = [number for number, delivery in enumerate(deliveries) if not delivery.acked]
    large = [number for number in range(60) if number % 10 == 3]
    assert set(large) <= set(failed)
    assert other.acked
    assert isinstance(missing.error, BrokerError)
    assert missing.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for number in failed:
        error = deliveries[number].error
        assert isinstance(error, BrokerError) and error.code == ErrorCode.MESSAGE_TOO_LARGE
    rows = rows_of(cluster, TopicPartition(topic, 0), 60 - len(failed))
    written = [int((row.value or b"").rstrip(b"x")) for row in rows]
    assert written == [number for number in range(60) if number not in failed]
    assert [deliveries[number].offset for number in written] == [row.offset for row in rows]


@proves("T1")
def test_a_strict_flush_raises_the_first_failure_and_then_forgets_it(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1, configs={"max.message.bytes": "1000"})
    producer = Producer(cluster)
    producer.send(topic, b"x" * 2000)
    with pytest.raises(BrokerError) as caught:
        producer.flush()
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert str(caught.value) == (
        f"a batch of 2070 bytes for {topic}[0] is too large, MESSAGE_TOO_LARGE (10): topic {topic} takes"
        " max.message.bytes=1000; make the record smaller, or raise the limit:"
        f" tidelog topics alter {topic} --set max.message.bytes=2070"
    )
    producer.send(topic, b"small")
    producer.flush()


@proves("T1", "T10")
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_records_without_a_key_are_named_one_by_one_by_a_compacted_topic(
    cluster: Cluster, topic: str, compression: str
) -> None:
    topics.create(cluster, topic, partitions=1, configs={"cleanup.policy": "compact"})
    with Producer(cluster) as first:  # Apache Kafka may need a moment to lead a new partition
        first.send(topic, b"ready", key=b"k")
    keys = [b"a", None, b"", None, *[b"b"] * 8, None]
    rows = [(key, b"value", (), int(time.time() * 1000)) for key in keys]
    leader = cluster.leader(TopicPartition(topic, 0))
    data = PartitionProduceData(index=0, records=encode(rows, compression=compression))
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    for version in (7, 8, 9, 12):
        (answered,) = leader.call(request, ProduceResponse, version=version).responses
        (result,) = answered.partition_responses
        assert (result.error_code, result.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert [one.batch_index for one in result.record_errors] == ([1, 3, 12] if version > 7 else [])
        assert all(one.batch_index_error_message for one in result.record_errors)
        assert bool(result.error_message) == (version > 7)
    with pytest.raises(BrokerError, match="INVALID_RECORD"):
        producer = Producer(cluster)
        producer.send(topic, b"no key")
        producer.flush()


@proves("T1", "T5")
@pytest.mark.tidelog(settings={"socket.request.max.bytes": 2_000_000, "message.max.bytes": 3_000_000})
def test_a_batch_that_no_request_can_carry_is_said_to_be_so_at_once(tidelog_broker: TestBroker, topic: str) -> None:
    """The broker would end the connection without a word, again and again."""
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        topics.create(cluster, topic, partitions=1)
        producer = Producer(cluster)
        before, large = producer.send(topic, b"before"), producer.send(topic, b"x" * 2_500_000)
        producer.flush(strict=False)
        assert before.acked, "a large record goes alone"
        assert isinstance(large.error, BrokerError) and large.error.code == ErrorCode.MESSAGE_TOO_LARGE
        assert "broker 1 takes socket.request.max.bytes=2000000" in str(large.error)
        assert "; make the record smaller, or raise the limit: tidelog up --set socket.request.max.bytes=25" in str(
            large.error
        )
        fits, larger = producer.send(topic, b"x" * 1_500_000), producer.send(topic, b"x" * 4_000_000)
        after = producer.send(topic, b"after")
        producer.flush(strict=False)
        assert (fits.offset, after.offset) == (1, 2)
        assert "max.message.bytes=3000000 and broker 1 takes socket.request.max.bytes=2000000" in str(larger.error)


@proves("F3", "T1", "T10")
@pytest.mark.parametrize("offset_of_seed", range(2))
def test_every_record_is_written_once_and_in_order_over_a_network_that_breaks(
    broker: Broker, cluster: Cluster, topic: str, seed: int, offset_of_seed: int
) -> None:
    topics.create(cluster, topic, partitions=2)
    network = BreakingNetwork(seed * 100 + offset_of_seed, rate=0.2)
    with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S, dial=network) as shaky:
        producer = Producer(shaky, batch_bytes=150)
        producer.send(topic, b"-1", partition=0)
        producer.flush()
        network.armed = True
        deliveries = [producer.send(topic, b"%d" % number, partition=number % 2) for number in range(300)]
        producer.flush()
        network.armed = False
    assert {"send", "answer"} <= set(network.broken)
    assert all(delivery.acked for delivery in deliveries)
    values = [
        [int(row.value or b"") for row in rows_of(cluster, TopicPartition(topic, index), 150)] for index in (0, 1)
    ]
    assert values == [[-1, *range(0, 300, 2)], list(range(1, 300, 2))]


@proves("F3")
def test_without_idempotence_a_lost_answer_is_not_sent_again_but_said(
    broker: Broker, cluster: Cluster, topic: str, seed: int
) -> None:
    topics.create(cluster, topic, partitions=1)
    network = BreakingNetwork(seed, rate=2.0)
    with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S, dial=network) as shaky:
        producer = Producer(shaky, idempotent=False)
        producer.send(topic, b"first")
        producer.flush()
        network.armed = True
        doubtful = producer.send(topic, b"second")
        producer.flush(strict=False)
        network.armed = False
    assert isinstance(doubtful.error, Disconnected) and "may have been written or not" in str(doubtful.error)
    assert [row.value for row in rows_of(cluster, TopicPartition(topic, 0), 1)].count(b"second") <= 1


@proves("F3")
def test_batches_carry_the_producer_and_dense_sequences(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    at = TopicPartition(topic, 0)
    producer = Producer(cluster)
    for _ in range(4):
        producer.send_batch(at, encode([(None, b"x", (), 0)] * 3))
    producer.flush()
    consumer = Consumer(cluster)
    consumer.assign({at: 0})
    headers: list[BatchHeader] = []
    while len(headers) < 4:
        headers += [header for fetched in consumer.fetch() for header in scan(fetched.batches).headers]
    assert [header.base_sequence for header in headers] == [0, 3, 6, 9]
    assert {header.producer_id for header in headers} != {-1} and len({header.producer_id for header in headers}) == 1


def batches_for(places: list[int], size: int = 1) -> list[Batch]:
    return [Batch(TopicPartition("t", place), bytearray(size), 1, 0.0) for place in places]


@proves("T1")
@given(st.lists(st.integers(0, 4), max_size=30))
def test_no_request_has_two_batches_of_a_partition_and_none_overtakes(places: list[int]) -> None:
    batches = batches_for(places)
    made = waves(batches)
    assert all(len({batch.at for batch in wave}) == len(wave) for wave in made)
    for at in {batch.at for batch in batches}:
        assert [b for wave in made for b in wave if b.at == at] == [b for b in batches if b.at == at]


@proves("T1")
@given(st.lists(st.integers(1, MAX_REQUEST_BYTES // 3), max_size=12))
def test_requests_stay_below_the_largest(sizes: list[int]) -> None:
    batches = [Batch(TopicPartition("t", number), bytearray(size), 1, 0.0) for number, size in enumerate(sizes)]
    made = portions(batches)
    assert [batch for portion in made for batch in portion] == batches
    assert all(sum(len(batch.data) for batch in portion) <= MAX_REQUEST_BYTES for portion in made)
