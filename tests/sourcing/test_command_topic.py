"""What others put into the command topic: wrong places, values that cannot be told, commands that are cut. Each gets an
answer, and the next command is decided.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from contract import Broker
from proving import proves
from sourcing.seats import Reserve, Seat, seats
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.sourcing import EventStore
from tidelog.sourcing.checking import check
from tidelog.sourcing.store_topics import place_of

pytestmark = pytest.mark.timeout(300)

PARTITIONS = 4


def put(cluster: Cluster, name: str, partition: int, entity: str, id: str, type: str, value: Any) -> None:
    headers: list[tuple[str, bytes | None]] = [("type", type.encode()), ("command", id.encode()), ("to", id.encode())]
    data = json.dumps(value).encode()
    with Producer(cluster) as producer:
        producer.send(f"{name}.commands", data, key=entity.encode(), headers=headers, partition=partition)


def answers(cluster: Cluster, name: str, *to: str, partitions: int = PARTITIONS) -> Mapping[str, Any]:
    """Returns when all that are named have been answered."""
    consumer = Consumer(cluster, read_committed=True)
    consumer.assign({TopicPartition(f"{name}.replies", number): 0 for number in range(partitions)})
    found: dict[str, Any] = {}
    while not found.keys() >= set(to):
        for fetched in consumer.fetch():
            for row in fetched.rows():
                found[(dict(row.headers)["to"] or b"").decode()] = json.loads(row.value or b"")
    return found


@proves("E4", "es.2", "hostile")
def test_a_command_in_a_wrong_partition_is_decided_by_the_owner_of_its_entity(
    broker: Broker, topic: str, cluster: Cluster
) -> None:
    with EventStore(topic, seats(), bootstrap=broker.bootstrap, partitions=PARTITIONS) as store:
        for number in range(PARTITIONS):
            put(cluster, topic, number, "A1", f"c{number}", "Reserve", {"who": f"p{number}"})
        told = answers(cluster, topic, *(f"c{number}" for number in range(PARTITIONS)))
        assert sorted(next(iter(one)) for one in told.values()) == ["receipt", "refused", "refused", "refused"]
        assert store.state("A1").version == 1
        assert store.figures()["handed_on"] == PARTITIONS - 1
        right = place_of(topic, b"A1", PARTITIONS).partition
        assert {one["receipt"]["partition"] for one in told.values() if "receipt" in one} == {right}
    assert check(cluster, topic, seats().types) == (1, [])


@proves("E4", "hostile")
def test_a_command_that_cannot_be_handed_on_is_refused_with_the_remedy(
    broker: Broker, topic: str, cluster: Cluster
) -> None:
    with EventStore(topic, seats(), bootstrap=broker.bootstrap, partitions=PARTITIONS) as store:
        wrong = (place_of(topic, b"A1", PARTITIONS).partition + 1) % PARTITIONS
        several = [
            {"entity": f"A{n}", "type": "Reserve", "command": f"t/{n}", "expected": None, "value": {"who": "anna"}}
            for n in range(9)
        ]
        put(cluster, topic, wrong, "A0", "t", "tidelog.together", several)
        headers: list[tuple[str, bytes | None]] = [
            ("type", b"Reserve"),
            ("command", b"c"),
            ("to", b"c"),
            ("handed-on", b"1"),
        ]
        with Producer(cluster) as producer:
            producer.send(f"{topic}.commands", b'{"who":"anna"}', key=b"A1", headers=headers, partition=wrong)
        told = answers(cluster, topic, "t", "c")
        assert told["t"]["error"]["type"] == told["c"]["error"]["type"] == "UsageError"
        assert "partitions=1" in told["t"]["error"]["message"]
        assert "partitioner=murmur2_random" in told["c"]["error"]["message"]
        assert store.state("A1").state == Seat()
        assert store.send("A1", Reserve("bob")).version == 1
