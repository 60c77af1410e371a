"""Produce in a transaction: what is let in, what is refused and how, and that order stays while a request waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.raw import RawConnection, batch_of
from proving import proves
from tidelog.record.codec import scan
from tidelog.record.columns import decode
from tidelog.testing.broker import TestBroker
from tidelog.wire.error_code import ErrorCode as E
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

NAME = "payments-1"
NAMES_ITSELF = 12


class Client:
    """A transactional producer that can be made to do what no client does."""

    def __init__(self, raw: RawConnection, topic: str) -> None:
        self.raw = raw
        self.topic = topic
        self.name = f"{NAME}-{topic}"
        self.take()

    def take(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        reply = self.raw.call(request, 4, InitProducerIdResponse)
        self.producer_id, self.epoch, self.sequence = reply.producer_id, reply.producer_epoch, 0

    def add(self, index: int = 0) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=[index])],
        )
        [topic] = self.raw.call(request, 3, AddPartitionsToTxnResponse).results_by_topic_v3_and_below
        assert topic.results_by_partition[0].partition_error_code == E.NONE

    def request(self, value: bytes, index: int = 0, *, alone: bool = False) -> ProduceRequest:
        who = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "base_sequence": self.sequence}
        part = PartitionProduceData(index=index, records=batch_of(value, transactional=not alone, **who))
        topics = [TopicProduceData(name=self.topic, partition_data=[part])]
        self.sequence += 1
        return ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=10_000, topic_data=topics)

    def produce(self, version: int, value: bytes = b"x", index: int = 0, *, alone: bool = False) -> int:
        return code_of(self.raw.call(self.request(value, index, alone=alone), version, ProduceResponse))

    def end(self, version: int, commit: bool = True) -> None:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        reply = self.raw.call(request, version, EndTxnResponse)
        assert reply.error_code == E.NONE
        if version >= 5:
            self.producer_id, self.epoch, self.sequence = reply.producer_id, reply.producer_epoch, 0


def code_of(reply: ProduceResponse) -> int:
    return reply.responses[0].partition_responses[0].error_code


@pytest.fixture
def raw(tidelog_broker: TestBroker) -> Iterator[RawConnection]:
    tidelog_broker.create_topic("orders", partitions=2)
    with RawConnection(tidelog_broker.bootstrap) as connection:
        yield connection


@proves("F2", "F3")
@pytest.mark.parametrize(
    ("version", "code"), [(3, E.INVALID_TXN_STATE), (10, E.INVALID_TXN_STATE), (11, E.TRANSACTION_ABORTABLE)]
)
def test_a_batch_for_a_partition_that_was_not_added_is_refused(raw: RawConnection, version: int, code: int) -> None:
    client = Client(raw, "orders")
    assert client.produce(version) == code
    client.add(1)
    assert client.produce(version) == code
    assert client.produce(version, index=1) == E.NONE


@proves("F2", "T10")
def test_from_version_12_on_a_batch_names_its_partition_by_itself(raw: RawConnection) -> None:
    client = Client(raw, "orders")
    assert client.produce(NAMES_ITSELF) == E.NONE
    client.end(5)
    assert values(raw) == [b"x"]


@proves("F2", "F3")
@pytest.mark.parametrize("version", [11, 12])
def test_behind_the_end_nothing_is_let_in_any_more(raw: RawConnection, version: int) -> None:
    client = Client(raw, "orders")
    client.add(0)
    assert client.produce(11) == E.NONE
    old = client.epoch
    client.end(5 if version >= NAMES_ITSELF else 3)
    client.epoch = old
    assert client.produce(version) in (E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_ABORTABLE)


@proves("F3")
@pytest.mark.parametrize("version", [9, 11, 12])
def test_a_fenced_producer_is_refused_everywhere_at_once(raw: RawConnection, version: int) -> None:
    zombie = Client(raw, "orders")
    zombie.add(0)
    assert zombie.produce(version) == E.NONE
    Client(raw, "orders")
    for index in (0, 1):
        assert zombie.produce(version, index=index) == E.INVALID_PRODUCER_EPOCH
    zombie.producer_id += 1000
    assert zombie.produce(version) == E.INVALID_PRODUCER_ID_MAPPING


@proves("F2")
def test_requests_that_wait_for_the_record_that_names_their_partition_stay_in_order(raw: RawConnection) -> None:
    """Many under way on one connection, as a producer has them; the first of a transaction waits for a sync more."""
    client = Client(raw, "orders")
    expected = []
    for transaction in range(5):
        sent = [b"%d-%d" % (transaction, number) for number in range(8)]
        for value in sent:
            raw.send(client.request(value), NAMES_ITSELF)
        assert [code_of(raw.receive(ProduceResponse, NAMES_ITSELF)[1]) for _ in sent] == [E.NONE] * len(sent)
        client.end(5, commit=transaction % 2 == 0)
        expected += sent
    client.produce(NAMES_ITSELF, b"last")
    client.end(5)
    assert values(raw) == [*expected, b"last"]


@proves("F3", "E4")
@pytest.mark.parametrize("version", [9, 11, 12])
def test_a_batch_in_no_transaction_under_a_name_is_taken_of_its_present_holder_alone(
    raw: RawConnection, version: int
) -> None:
    """Also in a partition that has never heard of the newer epoch."""
    zombie = Client(raw, "orders")
    assert zombie.produce(version, b"0", alone=True) == E.NONE
    holder = Client(raw, "orders")
    for index in (0, 1):
        assert zombie.produce(version, index=index, alone=True) == E.INVALID_PRODUCER_EPOCH
    assert holder.produce(version, b"1", alone=True) == E.NONE
    holder.add(0)
    assert holder.produce(version, alone=True) == E.INVALID_TXN_STATE
    holder.sequence -= 1
    assert holder.produce(version, b"2") == E.NONE
    holder.end(5)
    assert holder.produce(version, b"3", alone=True) == E.NONE
    holder.producer_id += 1000
    assert holder.produce(version, alone=True) == E.INVALID_PRODUCER_ID_MAPPING
    holder.producer_id = holder.epoch = -1
    assert holder.produce(version, alone=True) == E.INVALID_PRODUCER_ID_MAPPING
    assert values(raw) == [b"0", b"1", b"2", b"3"]


@proves("F2", "F3")
def test_a_batch_in_no_transaction_waits_for_the_markers_of_the_last_one(raw: RawConnection) -> None:
    """Its holder hears of the next epoch when the outcome is on disk, and may be quicker than the markers."""
    client, expected = Client(raw, "orders"), []
    for number in range(20):
        first, second = b"%d in" % number, b"%d alone" % number
        assert client.produce(NAMES_ITSELF, first) == E.NONE
        client.end(5)
        assert client.produce(NAMES_ITSELF, second, alone=True) == E.NONE
        expected += [first, second]
    assert values(raw) == expected


@proves("F3")
def test_a_topic_for_certain_writers_takes_batches_alone_under_their_names_only(
    raw: RawConnection, tidelog_broker: TestBroker
) -> None:
    tidelog_broker.create_topic("ledger", configs={"tidelog.writers": f"{NAME}-"})
    tidelog_broker.create_topic("others", configs={"tidelog.writers": "others-"})
    assert Client(raw, "ledger").produce(NAMES_ITSELF, alone=True) == E.NONE
    assert Client(raw, "others").produce(NAMES_ITSELF, alone=True) == E.TOPIC_AUTHORIZATION_FAILED


def values(raw: RawConnection) -> list[bytes]:
    """Everything in partition 0, committed or not."""
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(topic="orders", partitions=[part])])
    [found] = raw.call(request, 11, FetchResponse).responses[0].partitions
    records = bytes(found.records or b"")
    walked = scan(records)
    return [
        row.value or b""
        for header, position in zip(walked.headers, walked.positions, strict=True)
        if not header.is_control
        for row in decode(records[position : position + header.size]).rows()
    ]
