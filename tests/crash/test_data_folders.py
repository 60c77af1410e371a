"""Data folders that tagged versions wrote are opened, have everything in them, and are written on."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kept_archives import archives_of, script, too_large, version_of, versions_without
from proving import proves
from tidelog.broker.embedded import Broker
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.record.columns import encode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

ARCHIVES = archives_of("folders")


@pytest.fixture
def data_folder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that writes such folders, for its ways to read them."""
    return script("data_folder", monkeypatch)


class Opened:
    """A broker on a folder, what the folder is said to hold, and the script's ways to look."""

    def __init__(self, broker: Broker, holds: dict[str, Any], script: Any) -> None:
        self.broker = broker
        self.holds = holds
        self.script = script

    def check(self, cluster: Cluster) -> None:
        assert topics.names(cluster) == sorted(self.holds["topics"])
        for name, held in self.holds["topics"].items():
            assert self.script.describe_topic(cluster, name) == held, name
        for group, committed in self.holds["groups"].items():
            assert self.script.committed_by(cluster, group) == committed
        assert [listed.group for listed in groups.list_all(cluster)] == sorted(self.holds["groups"])

    def write_on(self, cluster: Cluster) -> None:
        """The next offset of every partition follows the last; what is written counts from now on."""
        for name, held in self.holds["topics"].items():
            for index, partition in enumerate(held["partitions"]):
                last = partition["records"][-1][0] if partition["records"] else partition["start"] - 1
                timestamp = self.script.START_MS
                batch = encode([(b"new", b"after %d" % last, (), timestamp)])
                assert self.script.produce(cluster, TopicPartition(name, index), batch) == last + 1
                read = self.script.read_partition(cluster, TopicPartition(name, index))
                assert read["records"][:-1] == partition["records"] and read["start"] == partition["start"]
                held["partitions"][index] = read
        at = TopicPartition("plain", 1)
        groups.commit(cluster, "group", {at: 9}, metadata="later")
        self.holds["groups"]["group"] = self.script.committed_by(cluster, "group")
        assert ["plain", 1, 9, "later"] in self.holds["groups"]["group"]

    def produce_again(self, cluster: Cluster) -> None:
        """The idempotent producer is remembered: a batch sent again is not written, the next one is."""
        producer = self.holds["producer"]
        at = TopicPartition(*producer["at"])
        batch = producer["last_batch"].encode("latin-1")
        assert self.script.produce(cluster, at, batch) == producer["last_offset"]
        following = encode(
            [(None, b"next", (), self.script.START_MS)],
            producer_id=producer["id"],
            producer_epoch=producer["epoch"],
            base_sequence=producer["next_sequence"],
        )
        offset = self.script.produce(cluster, at, following)
        self.holds["topics"][at.topic]["partitions"][at.partition] = self.script.read_partition(cluster, at)
        assert offset == self.holds["topics"][at.topic]["partitions"][at.partition]["records"][-1][0]
        answer = cluster.any_node().call(InitProducerIdRequest(transactional_id=None), InitProducerIdResponse)
        assert answer.producer_id >= self.holds["next_id"], "a producer id was given twice"


@pytest.fixture(params=["clean", "killed"])
def state(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=ARCHIVES, ids=[version_of(path) for path in ARCHIVES])
def opened(request: pytest.FixtureRequest, tmp_path: Path, state: str, data_folder: ModuleType) -> Iterator[Opened]:
    with tarfile.open(request.param) as tar:
        tar.extractall(tmp_path, filter="data")
    holds = json.loads((tmp_path / "holds.json").read_text())
    assert holds["version"] == version_of(request.param)
    with Broker(tmp_path / state, settings={"tidelog.log.level": "ERROR"}) as broker:
        yield Opened(broker, holds[state], data_folder)


@proves("T6")
def test_a_folder_of_every_tagged_version_is_read_and_written_on(opened: Opened) -> None:
    with Cluster(opened.broker.bootstrap) as cluster:
        opened.check(cluster)
        opened.produce_again(cluster)
        opened.write_on(cluster)
        opened.check(cluster)
    opened.broker.stop()
    opened.broker.start()
    with Cluster(opened.broker.bootstrap) as cluster:
        opened.check(cluster)
        opened.write_on(cluster)


@proves("T6")
def test_the_folders_that_are_kept_are_small() -> None:
    assert ARCHIVES and too_large(ARCHIVES) == []


@proves("T6")
def test_every_version_of_the_changelog_has_a_folder_that_is_kept() -> None:
    assert versions_without(ARCHIVES) == []
    assert versions_without(ARCHIVES, "## Unreleased\n\n## 9.9.9 (2030-01-01)\n\n## 0.1.0\n") == ["9.9.9"]
