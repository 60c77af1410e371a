"""Fetch, ListOffsets and DescribeProducers of a partition with transactions, by isolation level."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.topics.serving import Request, Served, serving
from broker.topics.test_topic_requests import create
from proving import proves
from tidelog.log.log import Log
from tidelog.log.slice import Slice
from tidelog.record.codec import check
from tidelog.record.columns import decode, encode
from tidelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

EARLY, LATE = 1_000_000_000_000, 4_000_000_000_000
UNCOMMITTED, COMMITTED = 0, 1
LATEST, MAX_TIMESTAMP = -1, -3


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data") as served:
        served.ask(create("orders"), 7)
        log_of(served).load()
        served.turn()  # what is open in a partition that was just loaded, and in no transaction, would be ended
        yield served


def log_of(served: Served) -> Log:
    partition = served.broker.partition("orders", 0)
    assert partition is not None
    return partition.log


def settle(served: Served) -> None:
    while log_of(served).high_watermark < log_of(served).end_offset:
        served.turn()


def write(served: Served, producer_id: int, sequence: int, *values: bytes, timestamp: int = EARLY) -> None:
    rows = [(None, value, (), timestamp) for value in values]
    stamps = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    batch = encode(rows, **stamps, transactional=True)
    log_of(served).append(memoryview(batch), check(batch), served.broker.now().wall_ms)
    settle(served)


def mark(served: Served, producer_id: int, *, commit: bool) -> None:
    log_of(served).append_marker(producer_id, 0, commit, 0, served.broker.now().wall_ms)
    settle(served)


def fetch(isolation: int, offset: int = 0, *, wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20) -> Any:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [FetchTopic(topic="orders", partitions=[part])]
    return FetchRequest(isolation_level=isolation, max_wait_ms=wait_ms, min_bytes=min_bytes, topics=topics)


def data_of(call: Request) -> PartitionData:
    assert call.done
    data: PartitionData = call.answer.responses[0].partitions[0]
    assert data.error_code == 0
    return data


def offsets_of(data: PartitionData) -> list[int]:
    records = data.records.read() if isinstance(data.records, Slice) else data.records
    return list(decode(records).offsets) if records else []


def aborted_of(data: PartitionData) -> list[tuple[int, int]] | None:
    listed = data.aborted_transactions
    return None if listed is None else [(one.producer_id, one.first_offset) for one in listed]


@proves("T6")
def test_a_fetch_of_committed_records_ends_at_the_oldest_open_transaction(served: Served) -> None:
    served.produce("orders", 0, b"plain")
    write(served, 1, 0, b"a")
    write(served, 2, 0, b"b")
    mark(served, 2, commit=False)
    data = data_of(served.begin(fetch(COMMITTED), 12))
    assert (offsets_of(data), aborted_of(data)) == ([0], [])
    assert (data.last_stable_offset, data.high_watermark) == (1, 4)
    mark(served, 1, commit=True)
    data = data_of(served.begin(fetch(COMMITTED), 12))
    assert (offsets_of(data), aborted_of(data)) == ([0, 1, 2, 3, 4], [(2, 2)])
    assert (data.last_stable_offset, data.high_watermark) == (5, 5)


@proves("T6")
def test_a_fetch_that_does_not_ask_for_committed_records_gets_all_and_no_list(served: Served) -> None:
    write(served, 1, 0, b"a")
    data = data_of(served.begin(fetch(UNCOMMITTED), 12))
    assert (offsets_of(data), aborted_of(data), data.last_stable_offset) == ([0], None, 0)


@proves("T6")
def test_a_waiting_fetch_of_committed_records_is_woken_by_the_marker_and_by_nothing_before(served: Served) -> None:
    waiting = served.begin(fetch(COMMITTED, wait_ms=60_000), 12)
    write(served, 1, 0, b"a")
    write(served, 1, 1, b"b")
    assert not waiting.done
    mark(served, 1, commit=True)
    assert offsets_of(data_of(waiting)) == [0, 1, 2]


@proves("T6")
def test_many_bytes_that_are_waited_for_are_committed_ones(served: Served) -> None:
    waiting = served.begin(fetch(COMMITTED, wait_ms=60_000, min_bytes=500), 12)
    write(served, 1, 0, b"x" * 1000)
    served.produce("orders", 0, b"y" * 1000)
    assert not waiting.done
    mark(served, 1, commit=True)
    assert offsets_of(data_of(waiting)) == [0, 1, 2]


@proves("T6")
def test_only_aborted_transactions_among_what_a_reply_carries_are_listed(served: Served) -> None:
    for number in range(200):
        write(served, number, 0, b"x" * 100)
        mark(served, number, commit=False)
    data = data_of(served.begin(fetch(COMMITTED, 40, max_bytes=1500), 12))
    offsets = offsets_of(data)
    assert offsets[0] == 40
    assert len(offsets) > 2
    assert aborted_of(data) == [(number, 2 * number) for number in range(20, offsets[-1] // 2 + 1)]


@proves("T6")
def test_a_partition_that_is_not_loaded_is_before_committed_records_are_read(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as served:
        served.ask(create("orders"), 7)
        served.produce("orders", 0, b"plain")
        write(served, 1, 0, b"a")
    with serving(tmp_path / "data") as served:
        assert not log_of(served).loaded
        assert data_of(served.begin(fetch(UNCOMMITTED, 2), 12)).last_stable_offset == -1
        data = data_of(served.begin(fetch(COMMITTED, wait_ms=60_000), 12))
        assert (offsets_of(data), data.last_stable_offset, data.high_watermark) == ([0], 1, 2)


def list_offset(served: Served, timestamp: int, isolation: int) -> int:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name="orders", partitions=[part])]
    reply = served.ask(ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics), 7)
    (answer,) = reply.topics[0].partitions
    assert answer.error_code == 0
    offset: int = answer.offset
    return offset


@proves("T6")
def test_the_latest_committed_offset_is_the_last_stable_one(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as served:
        served.ask(create("orders"), 7)
        write(served, 1, 0, b"a")
        mark(served, 1, commit=True)
        write(served, 1, 1, b"b")
        assert (list_offset(served, LATEST, COMMITTED), list_offset(served, LATEST, UNCOMMITTED)) == (2, 3)
    with serving(tmp_path / "data") as served:
        assert list_offset(served, LATEST, COMMITTED) == 2


@proves("T6")
def test_what_is_not_committed_is_not_found_by_its_time(served: Served) -> None:
    write(served, 1, 0, b"a")
    mark(served, 1, commit=True)
    write(served, 1, 1, b"b", timestamp=LATE)
    for timestamp in (LATE, MAX_TIMESTAMP):
        assert (list_offset(served, timestamp, COMMITTED), list_offset(served, timestamp, UNCOMMITTED)) == (-1, 2)
    assert list_offset(served, EARLY, COMMITTED) == 0


@proves("T6")
def test_producers_are_described_with_the_offset_where_their_transaction_began(served: Served) -> None:
    write(served, 1, 0, b"a")
    mark(served, 1, commit=True)
    write(served, 2, 0, b"b")
    asked = DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=[0])])
    (part,) = served.ask(asked, 0).topics[0].partitions
    begun = {one.producer_id: one.current_txn_start_offset for one in part.active_producers}
    assert begun == {1: -1, 2: 2}
