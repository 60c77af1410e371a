"""DeleteRecords, DescribeLogDirs, DescribeProducers, InitProducerId and OffsetForLeaderEpoch in every version, and
ListOffsets where it is asked for too much.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.topics.serving import Served, after_a_crash, serving, versions
from broker.topics.test_config_requests import SET, TOPIC, alter
from broker.topics.test_topic_requests import create
from proving import proves
from tidelog.broker.topics import INTERNAL_TOPICS, SECRET_TOPICS
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tidelog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tidelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def delete(served: Served, topic: str, partition: int, offset: int, version: int = 2) -> tuple[int, int]:
    asked = DeleteRecordsTopic(
        name=topic, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
    )
    (result,) = served.ask(DeleteRecordsRequest(topics=[asked]), version).topics
    (one,) = result.partitions
    assert (result.name, one.partition_index) == (topic, partition)
    return one.error_code, one.low_watermark


@proves("T1")
@pytest.mark.parametrize("version", versions(21))
def test_records_are_deleted_up_to_an_offset_in_every_version(served: Served, version: int) -> None:
    served.ask(create("orders"), 7)
    for number in range(5):
        served.produce("orders", 0, b"%d" % number)
    assert delete(served, "orders", 0, 2, version) == (0, 2)
    assert delete(served, "orders", 0, 1, version) == (0, 2)
    assert delete(served, "orders", 0, 6, version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(served, "orders", 0, -2, version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(served, "orders", 0, -1, version) == (0, 5)
    assert delete(served, "orders", 1, 0, version) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(served, "gone", 0, 0, version) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


@proves("T1", "T6")
def test_deleted_records_stay_deleted_when_the_broker_is_killed_after_the_reply(served: Served, tmp_path: Path) -> None:
    served.ask(create("orders"), 7)
    for number in range(5):
        served.produce("orders", 0, b"%d" % number)
    assert delete(served, "orders", 0, 3) == (0, 3)
    with after_a_crash(served, tmp_path / "copy") as again:
        partition = again.broker.partition("orders", 0)
        assert partition is not None
        assert (partition.log.start_offset, partition.log.high_watermark) == (3, 5)


@proves("T1")
def test_records_of_a_compacted_topic_and_of_the_broker_are_not_deleted(served: Served) -> None:
    served.ask(create("orders"), 7)
    served.produce("orders", 0, b"x")
    alter(served, TOPIC, "orders", ("cleanup.policy", SET, "compact"))
    assert delete(served, "orders", 0, 1) == (ErrorCode.POLICY_VIOLATION, -1)
    assert delete(served, "__tidelog.topics", 0, 1) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    alter(served, TOPIC, "orders", ("cleanup.policy", SET, "compact,delete"))
    assert delete(served, "orders", 0, 1) == (0, 1)


@proves("T1", "T8")
@pytest.mark.parametrize("version", versions(35))
def test_the_data_folder_is_described_in_every_version(served: Served, tmp_path: Path, version: int) -> None:
    served.ask(create("orders", partitions=2), 7)
    served.produce("orders", 1, b"x" * 1000)
    asked = [
        DescribableLogDirTopic(topic="orders", partitions=[0, 1, 2]),
        DescribableLogDirTopic(topic="gone", partitions=[0]),
    ]
    reply = served.ask(DescribeLogDirsRequest(topics=asked), version)
    assert reply.error_code == 0
    (folder,) = reply.results
    assert (folder.error_code, folder.log_dir) == (0, str(tmp_path / "data"))
    (topic,) = folder.topics
    sizes = {one.partition_index: one.partition_size for one in topic.partitions}
    assert set(sizes) == {0, 1} and sizes[1] >= 1000 > sizes[0]
    assert {(one.offset_lag, one.is_future_key) for one in topic.partitions} == {(0, False)}
    if version >= 4:
        assert 0 < folder.usable_bytes <= folder.total_bytes
    else:
        assert (folder.total_bytes, folder.usable_bytes) == (-1, -1)
    assert folder.is_cordoned is False


@proves("T1")
def test_all_of_the_data_folder_has_the_brokers_topics_too(served: Served) -> None:
    served.ask(create("orders"), 7)
    (folder,) = served.ask(DescribeLogDirsRequest(topics=None), 5).results
    readable = [topic.name for topic in INTERNAL_TOPICS if topic.name not in SECRET_TOPICS]
    assert [topic.name for topic in folder.topics] == sorted(["orders", *readable])


@proves("T1", "F3")
def test_the_producers_of_a_partition_are_described(served: Served) -> None:
    served.ask(create("orders"), 7)
    served.produce("orders", 0, b"a", b"b", producer_id=7, sequence=0)
    served.produce("orders", 0, b"c", producer_id=7, sequence=2)
    request = DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=[0, 1])])
    (topic,) = served.ask(request, 0).topics
    known, unknown = topic.partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 0, 2)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert producer.last_timestamp > 0
    assert (unknown.error_code, unknown.active_producers) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


@proves("T1", "F3")
@pytest.mark.parametrize("version", versions(22))
def test_every_producer_gets_an_id_of_its_own_in_every_version(served: Served, version: int) -> None:
    replies = [served.ask(InitProducerIdRequest(transactional_id=None), version) for _ in range(3)]
    assert {(one.error_code, one.producer_epoch) for one in replies} == {(0, 0)}
    assert len({one.producer_id for one in replies}) == 3
    if version >= 3:
        again = served.ask(InitProducerIdRequest(transactional_id=None, producer_id=1, producer_epoch=2), version)
        assert (again.producer_id, again.producer_epoch) == (3, 0)


@proves("T1", "F3")
def test_no_producer_id_is_given_again_after_a_restart_or_a_crash(served: Served, tmp_path: Path) -> None:
    given = ids(served, 2)
    with after_a_crash(served, tmp_path / "copy") as again:
        given += ids(again, 2)
    with serving(tmp_path / "copy") as again:
        given += ids(again, 2)
    assert len(set(given)) == 6


def ids(served: Served, count: int) -> list[int]:
    return [served.ask(InitProducerIdRequest(transactional_id=None), 5).producer_id for _ in range(count)]


@proves("T1", "F3")
def test_producers_are_described_after_a_restart_too(tmp_path: Path) -> None:
    request = DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=[0])])
    with serving(tmp_path) as served:
        served.ask(create("orders"), 7)
        served.produce("orders", 0, b"a", producer_id=7, sequence=0)
    with serving(tmp_path) as served:
        (producer,) = served.ask(request, 0).topics[0].partitions[0].active_producers
        assert (producer.producer_id, producer.last_sequence) == (7, 0)


@proves("F3")
@pytest.mark.parametrize("version", versions(22))
def test_a_transactional_producer_has_its_id_to_itself_in_every_version(served: Served, version: int) -> None:
    asked = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
    first, second = served.ask(asked, version), served.ask(asked, version)
    assert (first.error_code, first.producer_epoch, second.error_code) == (0, 0, 0)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)


@proves("T1", "T6")
@pytest.mark.parametrize("version", versions(23))
def test_a_leader_epoch_ends_where_the_log_does_in_every_version(served: Served, version: int) -> None:
    served.ask(create("orders"), 7)
    served.produce("orders", 0, b"a", b"b")
    asked = [
        OffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=0),
        OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0),
        OffsetForLeaderPartition(partition=0, current_leader_epoch=5, leader_epoch=0),
        OffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=9),
        OffsetForLeaderPartition(partition=3, current_leader_epoch=0, leader_epoch=0),
    ]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="orders", partitions=asked)])
    (topic,) = served.ask(request, version).topics
    found = [(one.error_code, one.leader_epoch, one.end_offset) for one in topic.partitions]
    assert found == [
        (0, 0, 2),
        (0, 0, 2),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1),
        (0, -1, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
    ]


@proves("T5")
@pytest.mark.parametrize("timestamp", [-1, -2, -3, 0])
def test_a_partition_that_is_asked_about_twice_in_one_request_is_not_searched(served: Served, timestamp: int) -> None:
    served.ask(create("orders", partitions=2), 7)
    for partition in (0, 1):
        served.produce("orders", partition, b"x")
    parts = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in (0, 1, 0)]
    (topic,) = served.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name="orders", partitions=parts)]), 7).topics
    twice = ErrorCode.INVALID_REQUEST
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [(0, twice), (1, 0), (0, twice)]
    assert [one.offset >= 0 for one in topic.partitions] == [False, True, False]
