"""A real Apache Kafka cluster of three: many leaders, many coordinators, and one broker that dies under load."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from against.apache_kafka import ApacheKafka, Missing, is_serving
from against.patience import eventually
from contract import TIMEOUT_S
from crash.port import free_port
from proving import proves
from tidelog.client.admin import brokers, groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicMetadata, TopicPartition
from tidelog.client.producer import Producer

pytestmark = pytest.mark.external

# Later than a stall of the machine lasts: a broker that is taken for dead leads nothing any more.
SOON_DEAD = {"broker.session.timeout.ms": "15000", "broker.heartbeat.interval.ms": "300"}


def node(folder: Path, number: int, controller: int) -> ApacheKafka:
    """The first is the controller too. Ports are chosen here, for the nodes must know each other's."""
    port = free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port}"
    settings = {
        **SOON_DEAD,
        "node.id": str(number),
        "process.roles": "broker,controller" if number == 1 else "broker",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}" if number == 1 else listeners,
        "default.replication.factor": "3",
        "min.insync.replicas": "1",
    }
    kafka = ApacheKafka(folder / str(number), settings)
    kafka.port, kafka.bootstrap = port, f"127.0.0.1:{port}"
    return kafka.start(wait=False)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ApacheKafka]]:
    controller = free_port()
    folder = tmp_path_factory.mktemp("cluster")
    try:
        started = [node(folder, number, controller) for number in (1, 2, 3)]
    except Missing as missing:
        pytest.skip(str(missing))
    for kafka in started:
        eventually(partial(is_serving, kafka.port))
    yield started
    for kafka in reversed(started):
        kafka.kill()


@pytest.fixture
def cluster(nodes: list[ApacheKafka]) -> Iterator[Cluster]:
    with Cluster(",".join(kafka.bootstrap for kafka in nodes), timeout_s=TIMEOUT_S) as connected:
        eventually(lambda: len(brokers.describe(connected).nodes), lambda count: count == 3)
        yield connected


def create(nodes: list[ApacheKafka], cluster: Cluster, name: str, *, partitions: int) -> TopicMetadata:
    """Until every broker knows of it: one that does not yet refuses what is written to it."""
    made = topics.create(cluster, name, partitions=partitions, replication=3)
    for kafka in nodes:
        with Cluster(kafka.bootstrap, timeout_s=TIMEOUT_S) as alone:
            eventually(lambda alone=alone: alone.ask_metadata([name]).topics[name].led)
    return made


def read(consumer: Consumer, upto: dict[TopicPartition, int]) -> dict[TopicPartition, list[bytes | None]]:
    seen: dict[TopicPartition, list[bytes | None]] = {at: [] for at in upto}
    while any(consumer.positions[at] < end for at, end in upto.items()):
        for fetched in consumer.fetch():
            seen[fetched.at] += [row.value for row in fetched.rows()]
    return seen


@proves("T10")
def test_partitions_of_several_leaders_are_written_and_read_at_once(
    nodes: list[ApacheKafka], cluster: Cluster, topic: str
) -> None:
    made = create(nodes, cluster, topic, partitions=6)
    assert {partition.leader for partition in made.partitions.values()} == {1, 2, 3}
    with Producer(cluster, batch_bytes=500) as producer:
        for number in range(600):
            producer.send(topic, b"%d" % number, partition=number % 6)
    for prefetch in (False, True):
        consumer = Consumer(cluster, prefetch=prefetch, max_bytes=2000, max_partition_bytes=500)
        upto = {TopicPartition(topic, index): 100 for index in range(6)}
        consumer.assign(dict.fromkeys(upto, 0))
        assert read(consumer, upto) == {at: [b"%d" % n for n in range(at.partition, 600, 6)] for at in upto}


@proves("T7", "T10")
def test_groups_of_every_coordinator_are_found(nodes: list[ApacheKafka], cluster: Cluster, topic: str) -> None:
    create(nodes, cluster, topic, partitions=1)
    at = TopicPartition(topic, 0)
    names = [f"{topic}-{number}" for number in range(12)]
    for number, name in enumerate(names):
        groups.commit(cluster, name, {at: number})
    assert len({groups.describe(cluster, name).coordinator for name in names}) > 1
    assert {listed.group for listed in groups.list_all(cluster)} >= set(names)
    assert [groups.committed(cluster, name)[at].offset for name in names] == list(range(12))


@proves("T10", "F3")
def test_nothing_is_lost_or_doubled_when_a_leader_dies(nodes: list[ApacheKafka], cluster: Cluster, topic: str) -> None:
    create(nodes, cluster, topic, partitions=6)
    producer = Producer(cluster, batch_bytes=300)
    deliveries = []
    for number in range(1200):
        deliveries.append(producer.send(topic, b"%d" % number, partition=number % 6))
        if number == 600:
            nodes[2].kill()
    producer.flush()
    assert all(delivery.acked for delivery in deliveries)
    consumer = Consumer(cluster)
    upto = {TopicPartition(topic, index): 200 for index in range(6)}
    consumer.assign(dict.fromkeys(upto, 0))
    assert read(consumer, upto) == {at: [b"%d" % n for n in range(at.partition, 1200, 6)] for at in upto}
    leaders = {partition.leader for partition in topics.describe(cluster, [topic])[0].partitions.values()}
    assert 3 not in leaders
