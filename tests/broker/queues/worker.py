"""A member of a share group by hand: what it asks for, what it is given, what it says. One connection each."""

from __future__ import annotations

import time
import uuid
from typing import NamedTuple

from broker.raw import RawConnection
from tidelog.record.columns import decode, encode
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from tidelog.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse
from tidelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

ACCEPT, RELEASE, REJECT = 1, 2, 3
GROUP_RESOURCE, TOPIC_RESOURCE = 32, 2
PATIENCE_S = 60.0


class Given(NamedTuple):
    offset: int
    value: bytes | None
    deliveries: int


class Worker:
    def __init__(
        self, bootstrap: str, topic_id: bytes, group: str = "g", topic: str = "jobs", partition: int = 0
    ) -> None:
        self.connection = RawConnection(bootstrap)
        self.group, self.topic_id, self.partition = group, topic_id, partition
        self.member = uuid.uuid4().hex
        self.epoch = 0
        joined = self.heartbeat(0, [topic])
        assert joined.error_code == 0, joined.error_message

    def heartbeat(self, epoch: int, topics: list[str] | None = None) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member, member_epoch=epoch, subscribed_topic_names=topics
        )
        return self.connection.call(request, 1, ShareGroupHeartbeatResponse)

    def fetch(
        self, most: int = 1, wait_ms: int = 0, epoch: int | None = None, size: int = 1 << 20, mode: int = 1
    ) -> ShareFetchResponse:
        """In the mode that gives no more than is asked for, unless it says otherwise."""
        topics = [FetchTopic(topic_id=self.topic_id, partitions=[FetchPartition(partition_index=self.partition)])]
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=wait_ms,
            max_bytes=size,
            max_records=most,
            batch_size=most,
            share_acquire_mode=mode,
            topics=topics if self.epoch == 0 else [],
        )
        self.epoch += epoch is None
        return self.connection.call(request, 2, ShareFetchResponse)

    def get(self, most: int = 1, wait_ms: int = 0) -> list[Given]:
        """The acquired records of one fetch, as a client finds them in the batches."""
        response = self.fetch(most, wait_ms)
        assert response.error_code == 0, response.error_message
        given: list[Given] = []
        for topic in response.responses:
            for part in topic.partitions:
                assert part.error_code == 0, part.error_message
                rows = {row.offset: row for row in decode(bytes(part.records or b"")).rows()}  # type: ignore[arg-type]
                for one in part.acquired_records:
                    for offset in range(one.first_offset, one.last_offset + 1):
                        given.append(Given(offset, rows[offset].value, one.delivery_count))
        return given

    def until(self, count: int, most: int = 1) -> list[Given]:
        given: list[Given] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(given) < count:
            assert time.monotonic() < deadline, f"{len(given)} of {count} within {PATIENCE_S} s: {given}"
            given += self.get(most, wait_ms=500)
        return given

    def say(self, kind: int, *offsets: int) -> int:
        """The error code of an acknowledgement."""
        batches = [AcknowledgementBatch(first_offset=one, last_offset=one, acknowledge_types=[kind]) for one in offsets]
        part = AcknowledgePartition(partition_index=self.partition, acknowledgement_batches=batches)
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch,
            topics=[AcknowledgeTopic(topic_id=self.topic_id, partitions=[part])],
        )
        self.epoch += 1
        response = self.connection.call(request, 1, ShareAcknowledgeResponse)
        return response.error_code or response.responses[0].partitions[0].error_code

    def die(self) -> None:
        """Without a word: the connection ends."""
        self.connection.socket.close()


def create(bootstrap: str, topic: str = "jobs", partitions: int = 1, **configs: str) -> bytes:
    """The new topic's id."""
    entries = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=entries)
    with RawConnection(bootstrap) as connection:
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
        (made,) = connection.call(request, 7, CreateTopicsResponse).topics
    assert made.error_code == 0, made.error_message
    return made.topic_id


def configure(bootstrap: str, name: str = "g", kind: int = GROUP_RESOURCE, **configs: str) -> str | None:
    """Why it was refused, or None."""
    entries = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value) for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    with RawConnection(bootstrap) as connection:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (result,) = connection.call(request, 1, IncrementalAlterConfigsResponse).responses
    return result.error_message if result.error_code else None


def send(
    bootstrap: str,
    *values: bytes | str,
    key: bytes | None = None,
    headers: tuple[tuple[str, bytes], ...] = (),
    topic: str = "jobs",
) -> None:
    now_ms = int(time.time() * 1000)
    rows = [(key, value.encode() if isinstance(value, str) else value, headers, now_ms) for value in values]
    data = PartitionProduceData(index=0, records=bytes(encode(rows)))
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    with RawConnection(bootstrap) as connection:
        response = connection.call(request, 9, ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == 0
