"""No small request holds the loop or takes much memory: whatever list of it repeats, in every version of every API.

The walk goes over the tables of messages, so that what is served next is walked over too. The first tests are picks of
it, which were found to be expensive once: a reply of a gigabyte to two kilobytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from costs import COMPACTED, COMPACTED_PARTITIONS, Cost, CostedBroker, costed_broker
from raw import RawConnection
from repeated import TOPIC, Shape, Writer, shapes

from proving import proves
from tidelog.broker.dispatch import APIS
from tidelog.broker.limits import REPLY_BYTES_MAX
from tidelog.record.codec import seal
from tidelog.record.columns import encode
from tidelog.record.compression import ZSTD, compress
from tidelog.record.header import HEADER_SIZE
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

CPU_S_MAX = 2.0
STEP_S_MAX = 0.25
MEMORY_BYTES_MAX = 100 << 20
WITH_RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
PART = 60  # shapes
WITHOUT_A_LIST = {
    *("heartbeat", "sasl_handshake", "api_versions", "init_producer_id", "add_offsets_to_txn", "end_txn"),
    *("describe_acls", "sasl_authenticate", "describe_cluster"),
}
OFFSET_FETCH, CREATE_TOPICS, DELETE_RECORDS, DESCRIBE_CONFIGS = 9, 19, 21, 32


def in_parts(walk: Iterator[Shape]) -> Iterator[tuple[Shape, ...]]:
    """As many tests as it takes for each to end in time on a busy machine."""
    while part := tuple(islice(walk, PART)):
        yield part


PARTS = [part for api_key in APIS for part in in_parts(shapes(api_key))]


@pytest.fixture(scope="module")
def costed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CostedBroker]:
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        costed_broker(tmp_path_factory.mktemp("data"), monkeypatch, WITH_RULES) as broker,
    ):
        yield broker


def excess(cost: Cost) -> str:
    """What is too much of it; empty when nothing is."""
    too_much = (
        cost.cpu_s > CPU_S_MAX
        or cost.step_s > STEP_S_MAX
        or cost.memory_bytes > MEMORY_BYTES_MAX
        or cost.reply_bytes > REPLY_BYTES_MAX + 1024
    )
    return f"{cost}" if too_much else ""


@proves("T5")
@pytest.mark.parametrize(
    "shape",
    [
        Shape(OFFSET_FETCH, 8, ("groups",), bare=True),
        Shape(OFFSET_FETCH, 8, ("groups", "topics", "partition_indexes")),
        Shape(CREATE_TOPICS, 7, ("topics",), different=True, bare=True),
        Shape(DELETE_RECORDS, 2, ("topics", "partitions")),
        Shape(DESCRIBE_CONFIGS, 4, ("resources",), bare=True),
        Shape(DESCRIBE_CONFIGS, 4, ("resources",), otherwise=0),
    ],
    ids=str,
)
def test_a_request_that_repeats_itself_costs_little(costed: CostedBroker, shape: Shape):
    request = Writer(costed.stage()).request(shape)
    assert not excess(costed.ask(request, shape.version))


@pytest.mark.full
@proves("T5")
@pytest.mark.parametrize("part", PARTS, ids=[f"from {part[0]}" for part in PARTS])
def test_no_list_of_any_request_makes_it_expensive(costed: CostedBroker, part: tuple[Shape, ...]):
    found = {}
    for shape in part:
        request = Writer(costed.stage()).request(shape)
        found[str(shape)] = excess(costed.ask(request, shape.version))
    assert not {shape: cost for shape, cost in found.items() if cost}


@proves("T5")
def test_every_api_that_takes_a_list_is_walked_over():
    """A table that is not found would leave a walk over nothing."""
    without = {APIS[key].name for key in APIS} - {APIS[part[0].api_key].name for part in PARTS}
    assert without == WITHOUT_A_LIST
    assert sum(len(part) for part in PARTS) == sum(len(list(shapes(api_key))) for api_key in APIS)


def bomb(plain: bytes) -> bytes:
    """A good batch of one record, whose bytes after the header become these when they are decompressed."""
    batch = encode([(b"key", b"value", (), 1_000)], compression="zstd")
    batch[HEADER_SIZE:] = compress(ZSTD, memoryview(plain))
    seal(batch)
    return bytes(batch)


def record_with_headers(size: int) -> bytes:
    """A record with a key, and so many headers of nothing that it has this size."""
    count = size // 2
    head = b"\0\0\0" + b"\x06key" + b"\x01" + varint(count)  # attributes, deltas, key, no value
    body = head + b"\0\1" * count
    return varint(len(body)) + body


def varint(number: int) -> bytes:
    number <<= 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


@proves("T5")
def test_a_produce_request_of_kilobytes_that_become_gigabytes_costs_little(costed: CostedBroker):
    costed.stage()
    batch = bomb(record_with_headers(60 << 20))
    assert len(batch) < 10_000
    parts = [PartitionProduceData(index=index, records=batch) for index in range(COMPACTED_PARTITIONS)]
    topic = TopicProduceData(name=COMPACTED, partition_data=parts)
    cost = costed.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9)
    assert not cost.closed
    assert not excess(cost)


def smallest_records(count: int) -> bytes:
    """A batch of records of nothing: what takes the most memory when it is decoded. The last one is later."""
    rows = [(None, None, (), 1_000)] * (count - 1) + [(None, None, (), 2_000)]
    batch = encode(rows, compression="zstd")
    assert len(batch) < 1 << 20
    return bytes(batch)


@proves("T5")
def test_an_offset_by_time_in_a_batch_that_becomes_large_costs_little(costed: CostedBroker):
    costed.stage(empty=True)
    largest = 850_000  # records of nine bytes or less
    many = [smallest_records(largest), bomb(record_with_headers(20 << 20)), bomb(record_with_headers(7 << 20))]
    asked = []
    for index, batch in enumerate(many):
        sent = PartitionProduceData(index=index, records=batch)
        topic = TopicProduceData(name=TOPIC, partition_data=[sent])
        assert not costed.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9).closed
        asked.append(ListOffsetsPartition(partition_index=index, timestamp=1_000 if index else 2_000))
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)])
    assert not excess(costed.ask(request, 7))
    with RawConnection(costed.bootstrap) as connection:
        found = connection.call(request, 7, ListOffsetsResponse).topics[0].partitions
    assert [(one.error_code, one.offset) for one in found] == [(0, largest - 1), (0, 0), (0, 0)]
