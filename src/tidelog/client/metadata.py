"""What a cluster said of itself: its nodes, its topics and who leads their partitions. Plain data, no IO.

Nothing here is true for ever: a leader moves, a topic is deleted and made anew under another id. `cluster.py` asks
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.address import Address
from tidelog.wire.field import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.wire.messages.metadata import MetadataResponse

NO_LEADER = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class Node(NamedTuple):
    node_id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    name: str
    topic_id: bytes
    internal: bool
    partitions: dict[int, PartitionMetadata]
    error_code: int = 0

    @property
    def has_id(self) -> bool:
        """Brokers before topic ids (Metadata below version 10) give zeros."""
        return self.topic_id != ZERO_UUID

    @property
    def led(self) -> bool:
        """Whether every partition has a leader, so that the topic can be written and read."""
        return (
            not self.error_code
            and bool(self.partitions)
            and all(p.leader != NO_LEADER for p in self.partitions.values())
        )


@dataclass(frozen=True, slots=True)
class Metadata:
    cluster_id: str | None
    controller: int
    nodes: dict[int, Node]
    topics: dict[str, TopicMetadata]


def read_metadata(response: MetadataResponse) -> Metadata:
    nodes = {b.node_id: Node(b.node_id, Address(b.host, b.port), b.rack) for b in response.brokers}
    topics = {}
    for given in response.topics:
        partitions = {
            p.partition_index: PartitionMetadata(
                p.partition_index, p.leader_id, p.leader_epoch, tuple(p.replica_nodes), tuple(p.isr_nodes), p.error_code
            )
            for p in given.partitions
        }
        name = given.name or ""
        ordered = dict(sorted(partitions.items()))
        topics[name] = TopicMetadata(name, bytes(given.topic_id), given.is_internal, ordered, given.error_code)
    return Metadata(response.cluster_id, response.controller_id, nodes, topics)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """As requests want them: a list of partitions under each topic."""
    grouped: dict[str, list[int]] = {}
    for at in partitions:
        grouped.setdefault(at.topic, []).append(at.partition)
    return grouped
