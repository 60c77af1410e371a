"""Writes a small data folder that has some of everything, to be kept and opened by every later version.

    python scripts/data_folder.py tests/data/folders/0.1.0.tar.xz

The archive has two folders with the same history: `clean`, after a clean stop, and `killed`, after SIGKILL; and
`holds.json`, which says what is in them:

    version      of Tidelog that wrote them
    topics       by name: partitions, settings that were altered, and for each partition its first offset and records
                 as [offset, key, value, headers, timestamp]; bytes as Latin-1 text, null for none
    deleted      names of topics that are no more
    groups       by name: [topic, partition, offset, metadata] of every commit that counts
    producer     an idempotent producer: its id and epoch, where it writes, its next sequence; and the last batch that
                 it wrote (Latin-1) with its offset, so that it can be sent again
    next_id      a producer id that nobody may have been given

Run it when a version is tagged. A folder that is kept is never written anew.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from tidelog import __version__
from tidelog.broker.embedded import Broker
from tidelog.client.admin import configs, groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.client.producer import Producer
from tidelog.record.columns import encode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

START_MS = 1_700_000_000_000
ROLL_MS = 20
SETTINGS: dict[str, object] = {"tidelog.log.level": "ERROR"}
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS: dict[str, dict[str, str]] = {
    "plain": {"segment.ms": str(ROLL_MS)},
    "compressed": {"retention.ms": "-1"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "memory": {"tidelog.durability": "memory"},
    "keyed": {"cleanup.policy": "compact"},
    "cut": {},
}
PARTITIONS = 2
PRODUCED_BY_NAME = 9  # a version of Produce


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("archive", type=Path, help="the .tar.xz file to write")
    archive: Path = parser.parse_args().archive
    if archive.exists():
        print(f"{archive} is there already, and what is kept is never written anew", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, tarfile.open(archive, "w:xz") as tar:
        holds: dict[str, Any] = {"version": __version__}
        for state in ("clean", "killed"):
            data = Path(folder) / state
            holds[state] = write_folder(data, kill=state == "killed")
            tar.add(data, state, filter=without_lock)
        add_file(tar, "holds.json", json.dumps(holds, indent=1).encode())
    print(f"{archive}: {archive.stat().st_size} bytes")
    return 0


def write_folder(data: Path, *, kill: bool) -> dict[str, Any]:
    """A history over two lives, so that there are snapshots and rolled segments; what it comes to."""
    broker = Broker(data, settings=SETTINGS).start()
    with Cluster(broker.bootstrap) as cluster:
        _make_topics(cluster)
        _write_records(cluster)
    broker.stop()
    broker.start()
    with Cluster(broker.bootstrap) as cluster:
        _write_records(cluster)
        _change(cluster)
        producer = _write_idempotently(cluster, TopicPartition("plain", 0))
        holds = _holds(cluster, producer)
    broker.kill() if kill else broker.stop()
    return holds


def _make_topics(cluster: Cluster) -> None:
    for name, settings in TOPICS.items():
        topics.create(cluster, name, partitions=PARTITIONS, configs=settings)
    topics.create(cluster, "deleted", partitions=1)


def _write_records(cluster: Cluster) -> None:
    for compression in COMPRESSIONS:
        producer = Producer(cluster, compression=compression)
        for name in TOPICS:
            for number in range(4):
                value = None if name == "keyed" and number == 3 else f"{compression} {number} ".encode() * 3
                producer.send(
                    name,
                    value,
                    key=None if name == "plain" and number == 2 else b"key %d" % number,
                    headers=[("header", b"value"), ("empty", b""), ("null", None)] if number == 1 else (),
                    partition=number % PARTITIONS,
                    timestamp=START_MS + number,
                )
        producer.flush()
        time.sleep(2 * ROLL_MS / 1000)


def _change(cluster: Cluster) -> None:
    topics.delete(cluster, "deleted")
    topics.add_partitions(cluster, "memory", PARTITIONS + 1)
    topics.delete_records(cluster, {TopicPartition("cut", 0): 5})
    configs.alter(cluster, configs.TOPIC, "plain", set={"retention.ms": "-1", "retention.bytes": "123456789"})
    configs.alter(cluster, configs.TOPIC, "plain", delete=["retention.bytes"])
    configs.alter(cluster, configs.BROKER, "", set={"log.retention.ms": "-1"})
    groups.commit(cluster, "group", {TopicPartition("plain", 0): 3, TopicPartition("plain", 1): 4}, metadata="here")
    groups.commit(cluster, "group", {TopicPartition("plain", 0): 7})
    groups.commit(cluster, "deleted", {TopicPartition("plain", 0): 1})
    groups.delete(cluster, "deleted")


def _write_idempotently(cluster: Cluster, at: TopicPartition) -> dict[str, Any]:
    identity = cluster.any_node().call(InitProducerIdRequest(transactional_id=None), InitProducerIdResponse)
    sequence, offset, batch = 0, -1, bytearray()
    for count in (3, 1, 2):
        batch = encode(
            [(None, b"once %d" % (sequence + number), (), START_MS) for number in range(count)],
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
        )
        offset = produce(cluster, at, batch)
        sequence += count
    return {
        "id": identity.producer_id,
        "epoch": identity.producer_epoch,
        "at": at,
        "next_sequence": sequence,
        "last_offset": offset,
        "last_batch": batch.decode("latin-1"),
    }


def produce(cluster: Cluster, at: TopicPartition, batch: bytes | bytearray) -> int:
    """One batch as it is; returns the offset that it was given."""
    data = TopicProduceData(name=at.topic, partition_data=[PartitionProduceData(index=at.partition, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
    (topic,) = cluster.any_node().call(request, ProduceResponse, version=PRODUCED_BY_NAME).responses
    (answer,) = topic.partition_responses
    assert answer.error_code == 0, answer.error_message
    return answer.base_offset


def _holds(cluster: Cluster, producer: dict[str, Any]) -> dict[str, Any]:
    return {
        "topics": {topic.name: describe_topic(cluster, topic.name) for topic in topics.describe(cluster)},
        "deleted": ["deleted"],
        "groups": {"group": committed_by(cluster, "group")},
        "producer": producer,
        "next_id": producer["id"] + 1,
    }


def describe_topic(cluster: Cluster, name: str) -> dict[str, Any]:
    altered = [one for one in configs.describe(cluster, configs.TOPIC, name) if one.source == "topic"]
    return {
        "settings": {one.name: one.value for one in altered},
        "partitions": [read_partition(cluster, at) for at in cluster.partitions(name)],
    }


def read_partition(cluster: Cluster, at: TopicPartition) -> dict[str, Any]:
    start, end = (list_offsets(cluster, {at: where})[at].offset for where in (EARLIEST, LATEST))
    consumer = Consumer(cluster)
    consumer.assign({at: start})
    records: list[list[Any]] = []
    while consumer.positions[at] < end:
        for fetched in consumer.fetch():
            records += [
                [
                    row.offset,
                    _text(row.key),
                    _text(row.value),
                    [[name, _text(value)] for name, value in row.headers],
                    row.timestamp,
                ]
                for row in fetched.rows()
            ]
    return {"start": start, "records": records}


def committed_by(cluster: Cluster, group: str) -> list[list[Any]]:
    found = groups.committed(cluster, group)
    return sorted([at.topic, at.partition, one.offset, one.metadata] for at, one in found.items())


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def without_lock(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """No lock, and nothing of who wrote it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if member.name.endswith("/lock") else member


def add_file(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    sys.exit(main())
