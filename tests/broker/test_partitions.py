"""Partitions that cannot be read, that must be recovered first, or whose topic is not on disk yet."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOSPC
from io import StringIO
from pathlib import Path

import pytest
from raw import RawConnection, batch_of, fetch, produce

from against.patience import eventually
from proving import proves
from tidelog.broker.server import Server
from tidelog.broker.settings.configuring import load_broker_config
from tidelog.broker.topics import TOPICS_TOPIC
from tidelog.log.files import Files, RealFiles
from tidelog.log.folder import DataFolder
from tidelog.logger import Logger
from tidelog.testing.broker import TestBroker
from tidelog.testing.disk import SimulatedDisk
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tidelog.wire.messages.fetch import FetchResponse
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.produce import ProduceResponse

PATIENCE_S = 180.0
TOPICS_FOLDER = TOPICS_TOPIC.topic_id.hex()


@contextmanager
def serving(folder: Path, files: Files) -> Iterator[Server]:
    config = load_broker_config({"log.dirs": str(folder), "listeners": "127.0.0.1:0"})
    server = Server(config, Logger(StringIO()), files)
    server.start()
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop_soon()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def connect(server: Server) -> RawConnection:
    host, port = server.addresses[0]
    return RawConnection(f"{host}:{port}")


def produced(response: ProduceResponse) -> int:
    return response.responses[0].partition_responses[0].error_code


def list_offsets(*topics: str) -> ListOffsetsRequest:
    latest = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=latest) for name in topics])


@proves("T6")
@pytest.mark.parametrize("clean", [False, True], ids=["after a crash", "after a clean stop"])
def test_a_partition_that_cannot_be_read_fails_alone(tidelog_broker: TestBroker, clean: bool):
    broker = tidelog_broker
    for topic in ("good", "bad"):
        broker.create_topic(topic)
        broker.produce(topic, [f"{topic} record"])
    broker.stop() if clean else broker.kill()
    (segment,) = [path for path in broker.data.glob("*-0/*.log") if b"bad record" in path.read_bytes()]
    kept = segment.rename(broker.data.parent / "kept")
    segment.mkdir()
    broker.start()
    storage_error = ErrorCode.KAFKA_STORAGE_ERROR
    with RawConnection(broker.bootstrap) as connection:
        if not clean:
            metadata = connection.call(MetadataRequest(topics=None), 9, MetadataResponse)
            codes = {topic.name: topic.partitions[0].error_code for topic in metadata.topics}
            assert codes == {"good": 0, "bad": ErrorCode.LEADER_NOT_AVAILABLE}
        assert produced(connection.call(produce("bad", batch_of(b"x")), 9, ProduceResponse)) == storage_error
        assert produced(connection.call(produce("good", batch_of(b"x")), 9, ProduceResponse)) == 0
        for topic, code in (("bad", storage_error), ("good", 0)):
            response = connection.call(fetch(topic, 0), 12, FetchResponse)
            assert response.responses[0].partitions[0].error_code == code
        if not clean:
            response = connection.call(list_offsets("bad", "good"), 6, ListOffsetsResponse)
            assert [topic.partitions[0].error_code for topic in response.topics] == [storage_error, 0]
        assert (
            connection.call(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse).results[0].error_code == 0
        )
    broker.stop()
    segment.rmdir()
    kept.rename(segment)
    broker.start()
    broker.produce("bad", ["second"])
    assert [row.value for row in broker.records("bad")] == [b"bad record", b"second"]


@proves("T6")
def test_a_partition_that_a_clean_stop_could_not_mark_is_recovered_all_the_same(tmp_path: Path):
    """Its epoch is not that of a new partition."""
    folder = DataFolder(str(tmp_path), RealFiles())
    folder.open()
    folder.leave({"a-0": None})
    assert folder.take_marks() == {"a-0": None}
    folder.close()


class GatedDisk(RealFiles):
    """Its syncs of one folder's files can be held up."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self._folder = folder
        self._held: set[int] = set()

    def open(self, path: str, *, create: bool = False) -> int:
        descriptor = super().open(path, create=create)
        (self._held.add if self._folder in path else self._held.discard)(descriptor)
        return descriptor

    def sync(self, fd: int) -> None:
        assert fd not in self._held or self.gate.wait(PATIENCE_S)
        super().sync(fd)


@proves("T1")
def test_no_batch_is_acked_before_its_topic_is_on_disk(tmp_path: Path):
    disk = GatedDisk(TOPICS_FOLDER)
    with serving(tmp_path / "data", disk) as server, connect(server) as admin, connect(server) as producer:
        create = CreateTopicsRequest(topics=[CreatableTopic(name="first", num_partitions=1, replication_factor=1)])
        admin.call(create, 5, CreateTopicsResponse)
        disk.gate.clear()
        create.topics[0].name = "new"
        admin.send(create, 5)
        eventually(lambda: "new" in server.broker.topics.by_name)  # as soon as it is decided
        producer.send(produce("new", batch_of(b"x")), 9)
        assert not producer.has_answer(0.5), "the batch was answered before its topic was there"
        disk.gate.set()
        assert produced(producer.receive(ProduceResponse, 9)[1]) == 0
        assert admin.receive(CreateTopicsResponse, 5)[1].topics[0].error_code == 0


@proves("T1")
def test_settings_that_could_not_be_written_are_not_in_force(tmp_path: Path):
    disk = SimulatedDisk(tmp_path / "disk")
    with serving(tmp_path / "disk" / "data", disk) as server, connect(server) as client:
        create = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
        client.call(create, 5, CreateTopicsResponse)
        assert produced(client.call(produce("t", batch_of(b"x")), 9, ProduceResponse)) == 0
        partition = server.broker.open_partition("t", 0)
        assert partition is not None and partition.log.settings.durable
        disk.fail("write", OSError(ENOSPC, "no room"), name=TOPICS_FOLDER)
        memory = AlterableConfig(name="tidelog.durability", config_operation=0, value="memory")
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[memory])
        with connect(server) as admin:
            admin.send(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            assert admin.is_closed()
        assert partition.log.settings.durable
        assert produced(client.call(produce("t", batch_of(b"x")), 9, ProduceResponse)) == 0
    shutil.rmtree(tmp_path / "disk")
