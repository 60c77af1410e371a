"""Produce to compacted topics: every record has a key, however large the batch is, and however it is compressed."""

from __future__ import annotations

import pytest
from raw import RawConnection

from proving import proves
from tidelog.broker.limits import KEYS_BYTES_AT_ONCE, KEYS_BYTES_MAX
from tidelog.record.columns import encode
from tidelog.testing.broker import TestBroker
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

LARGE = b"x" * (KEYS_BYTES_AT_ONCE // 2)  # three of them are looked at in a thread
SMALL = b"x"


def batch(*keys: bytes | None, value: bytes = SMALL, compression: str = "zstd") -> bytes:
    return bytes(encode([(key, value, (), 1_000) for key in keys], compression=compression))


def produce(topic: str, *batches: bytes, acks: int = -1, index: int | None = None) -> ProduceRequest:
    parts = [
        PartitionProduceData(index=number if index is None else index, records=one)
        for number, one in enumerate(batches)
    ]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=parts)])


@pytest.fixture
def topic(tidelog_broker: TestBroker) -> str:
    tidelog_broker.create_topic("t", partitions=3, configs={"cleanup.policy": "compact"})
    return "t"


@proves("T5")
@pytest.mark.parametrize("value", [SMALL, LARGE], ids=["on the loop", "in a thread"])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_record_without_a_key_is_named(tidelog_broker: TestBroker, topic: str, value: bytes, compression: str):
    if compression == "none" and value is LARGE:
        tidelog_broker.create_topic(
            "u", partitions=3, configs={"cleanup.policy": "compact", "max.message.bytes": "9000000"}
        )
        topic = "u"
    good = batch(b"a", b"b", b"c", value=value, compression=compression)
    bad = batch(b"a", None, b"c", value=value, compression=compression)
    with RawConnection(tidelog_broker.bootstrap) as connection:
        reply = connection.call(produce(topic, good, bad), 9, ProduceResponse)
    first, second = reply.responses[0].partition_responses
    assert (first.error_code, first.base_offset) == (0, 0)
    assert second.error_code == ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in second.record_errors] == [1]


@proves("T5")
@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd"])
def test_a_batch_that_becomes_too_large_is_refused_so_that_clients_split_it(
    tidelog_broker: TestBroker, topic: str, compression: str
):
    value = bytes(KEYS_BYTES_MAX // 8)
    with RawConnection(tidelog_broker.bootstrap) as connection:
        sent = batch(*[b"k"] * 9, value=value, compression=compression)
        reply = connection.call(produce(topic, sent), 9, ProduceResponse)
        assert reply.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert str(KEYS_BYTES_MAX) in (reply.responses[0].partition_responses[0].error_message or "")


@proves("T1")
def test_a_batch_whose_keys_are_looked_at_in_a_thread_is_not_overtaken(tidelog_broker: TestBroker, topic: str):
    with RawConnection(tidelog_broker.bootstrap) as connection:
        for number, value in enumerate((LARGE, SMALL, LARGE, SMALL)):
            connection.send(produce(topic, batch(b"a", b"b", b"c", value=value)), 9, number)
        replies = [connection.receive(ProduceResponse, 9) for _ in range(4)]
    assert [number for number, _ in replies] == [0, 1, 2, 3]
    assert [reply.responses[0].partition_responses[0].base_offset for _, reply in replies] == [0, 3, 6, 9]


@proves("T1")
def test_a_large_batch_without_acks_is_taken_too(tidelog_broker: TestBroker, topic: str):
    with RawConnection(tidelog_broker.bootstrap) as connection:
        connection.send(produce(topic, batch(b"a", b"b", b"c", value=LARGE), acks=0), 9)
        reply = connection.call(produce(topic, batch(b"d")), 9, ProduceResponse)
        assert reply.responses[0].partition_responses[0].base_offset == 3


@proves("T5")
@pytest.mark.parametrize("version", [9, 12])
def test_a_partition_that_is_in_the_request_twice_is_refused_and_the_others_are_not(
    tidelog_broker: TestBroker, version: int
):
    tidelog_broker.create_topic("plain", partitions=3)
    request = produce("plain", batch(b"a"), batch(b"b"), batch(b"c"))
    request.topic_data.append(produce("plain", batch(b"d"), index=1).topic_data[0])
    with RawConnection(tidelog_broker.bootstrap) as connection:
        reply = connection.call(request, version, ProduceResponse)
    told = [(one.index, one.error_code) for topic in reply.responses for one in topic.partition_responses]
    assert told == [(0, 0), (1, ErrorCode.INVALID_REQUEST), (2, 0), (1, ErrorCode.INVALID_REQUEST)]
    assert len(tidelog_broker.records("plain")) == 2
