"""Decisions about topics that are not on the disk yet, or never will be: nobody is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from errno import ENOSPC
from pathlib import Path

import pytest

from broker.topics.serving import Served, serving
from proving import proves
from tidelog.broker.topics import TOPICS_TOPIC
from tidelog.record.columns import encode
from tidelog.testing.disk import SimulatedDisk
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.message import Struct
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

TOPICS_FOLDER = TOPICS_TOPIC.topic_id.hex()


@pytest.fixture
def disk(tmp_path: Path) -> SimulatedDisk:
    return SimulatedDisk(tmp_path / "disk")


@pytest.fixture
def served(disk: SimulatedDisk) -> Iterator[Served]:
    with serving(disk.folder / "data", disk) as served:
        served.ask(creation("there"), 5)
        served.produce("there", 0, b"record")
        yield served


def creation(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])


def produce(name: str) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=bytes(encode([(None, b"x", (), 0)])))
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=name, partition_data=[data])])


def code_of(response: ProduceResponse) -> int:
    return response.responses[0].partition_responses[0].error_code


def refuse_next_decision(disk: SimulatedDisk) -> None:
    disk.fail("write", OSError(ENOSPC, "no room"), name=TOPICS_FOLDER)


@proves("T1")
def test_a_batch_is_not_acked_when_its_topic_could_not_be_written(served: Served, disk: SimulatedDisk) -> None:
    refuse_next_decision(disk)
    created = served.begin(creation("new"), 5)
    produced = served.begin(produce("new"), 9)  # the topic is there as soon as it is decided
    served.wait_for(produced)
    served.wait_for(created)
    assert code_of(produced.answer) == ErrorCode.KAFKA_STORAGE_ERROR
    (refused,) = created.answer.topics
    assert (refused.name, refused.error_code) == ("new", ErrorCode.KAFKA_STORAGE_ERROR)
    assert "free some space" in refused.error_message
    assert "new" not in served.broker.topics.by_name


@proves("T1")
def test_no_record_goes_with_a_topic_whose_end_could_not_be_written(served: Served, disk: SimulatedDisk) -> None:
    refuse_next_decision(disk)
    deleted = served.begin(DeleteTopicsRequest(topic_names=["there"]), 5)
    deleted.may_be_dropped = True
    served.wait_for(deleted)
    assert code_of(served.ask(produce("there"), 9)) == 0
    partition = served.broker.partition("there", 0)
    assert partition is not None
    piece = partition.log.read(0, 1)
    assert piece is not None
    assert b"record" in piece.read()


@proves("T1")
def test_no_folder_is_taken_for_a_left_over_before_the_end_of_its_topic_is_written(
    served: Served, disk: SimulatedDisk
) -> None:
    partition = served.broker.partition("there", 0)
    assert partition is not None
    refuse_next_decision(disk)
    deleted = served.begin(DeleteTopicsRequest(topic_names=["there"]), 5)
    deleted.may_be_dropped = True
    served.broker._begin_later()  # looks for what a crash has left behind, a moment after the start
    served.broker._committer.background.wait()
    served.wait_for(deleted)
    served.broker._committer.background.wait()
    assert Path(partition.log.folder).is_dir()
    assert code_of(served.ask(produce("there"), 9)) == 0


@proves("T1")
def test_a_topic_whose_end_could_not_be_synced_keeps_its_folder(served: Served, disk: SimulatedDisk) -> None:
    disk.fail("sync", OSError(ENOSPC, "no room"), name=TOPICS_FOLDER)
    topic_id = served.broker.topics.by_name["there"].topic_id
    with pytest.raises(AssertionError, match="the broker gave up"):
        served.wait_for(served.begin(DeleteTopicsRequest(topic_names=["there"]), 5))
    segment = disk.folder / "data" / f"{topic_id.hex()}-0" / f"{0:020d}.log"
    assert b"record" in segment.read_bytes()


@proves("T1")
@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (MetadataRequest(topics=[MetadataRequestTopic(name="new")]), 9),
        (MetadataRequest(topics=[MetadataRequestTopic(name="there")]), 9),
        (MetadataRequest(topics=None), 9),
        (DescribeTopicPartitionsRequest(topics=[TopicRequest(name="new")]), 0),
        (InitProducerIdRequest(transactional_id=None), 2),
    ],
)
def test_no_reply_tells_of_topics_before_what_is_decided_about_them_is_synced(
    served: Served, request_: Struct, version: int
) -> None:
    created = served.begin(creation("new"), 5)
    told = served.begin(request_, version)
    assert not told.done, "the committer has not been heard yet"
    served.wait_for(told)
    assert created.done
