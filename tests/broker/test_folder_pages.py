"""The small files of a data folder after a clean stop, as docs/formats/data_folder.md draws them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from proving import proves
from tidelog.broker.embedded import Broker
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.record import codec
from tidelog.record.columns import decode

RECORDS = 3
FOLD_HEAD = 22


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a topic of two partitions, records in the second, and a group."""
    folder = tmp_path_factory.mktemp("folder") / "data"
    with (
        Broker(folder, settings={"tidelog.log.level": "ERROR"}) as broker,
        Cluster(broker.bootstrap) as cluster,
    ):
        topics.create(cluster, "orders", partitions=2)
        with Producer(cluster) as producer:
            for number in range(RECORDS):
                producer.send("orders", b"%d" % number, partition=1)
        groups.commit(cluster, "readers", {TopicPartition("orders", 1): 2})
    return folder


@proves("T6")
def test_the_format_is_as_its_page_draws_it(data: Path) -> None:
    found = json.loads((data / "format").read_text())
    assert list(found) == ["v", "cluster_id"] and found["v"] == 1


@proves("T6")
def test_the_clean_mark_is_as_its_page_draws_it(data: Path) -> None:
    line, crc = (data / "clean").read_bytes().splitlines(keepends=True)
    assert crc.strip() == b"crc %08x" % codec.crc32c(line)
    told = json.loads(line)
    assert (list(told), told["v"]) == (["v", "partitions"], 1)
    (written,) = data.glob(f"{topic_id(data)}-1")
    (segment,) = written.glob("*.log")
    size = segment.stat().st_size
    assert told["partitions"][written.name] == [0, RECORDS, 0, size, size]


@proves("T6")
@pytest.mark.parametrize(("topic", "kind"), [("__tidelog.topics", "topic"), ("__tidelog.groups", "offset")])
def test_a_snapshot_of_an_internal_topic_is_as_its_page_draws_it(data: Path, topic: str, kind: str) -> None:
    newest = max(data.glob(f"{topic}.*.fold"))
    content = newest.read_bytes()
    magic, version, offset, crc = struct.unpack_from(">8sHqI", content)
    assert (magic, version, newest.name) == (b"TIDESNAP", 1, f"{topic}.{offset:020}.fold")
    assert crc == codec.crc32c(content[FOLD_HEAD:])
    keys = [json.loads(row.key or b"") for row in decode(content[FOLD_HEAD:]).rows()]
    assert all(key["v"] == 1 for key in keys) and kind in {key["kind"] for key in keys}


def topic_id(data: Path) -> str:
    newest = max(data.glob("__tidelog.topics.*.fold"))
    rows = {row.key: row.value for row in decode(newest.read_bytes()[FOLD_HEAD:]).rows()}
    found: str = json.loads(rows[b'{"v":1,"kind":"topic","name":"orders"}'] or b"")["id"]
    return found
