"""The topics of a store: their names, how they are made, and which that exist are refused.

Rules:
- Histories are kept for ever. A topic of them that compaction or retention may cut is refused when a store starts: it
  would not give the same state twice.
- All but the topic of types have the same number of partitions: what belongs to an entity has one number everywhere.
- `tidelog.writers` keeps out who is not an owner. Apache Kafka does not know it: there it is left out, with a warning,
  and access rules (`rules`) are what keeps others out.
"""

from __future__ import annotations

import re
import warnings
from typing import NamedTuple

from tidelog.client.admin import configs, topics
from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Record
from tidelog.errors import BrokerError, UsageError
from tidelog.record.partitioner import partition_of

LEGAL_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,150}")
COMMANDS_KEPT_MS = 86_400_000
LARGEST_DEFAULT = 1_048_588  # Kafka's max.message.bytes
RECORD_OVERHEAD = 1_000  # of a batch with one event, beside its value, key and what its command carried
WRITERS = "tidelog.writers"


class StoreTopics(NamedTuple):
    name: str

    @property
    def events(self) -> str:
        return f"{self.name}.events"

    @property
    def snapshots(self) -> str:
        return f"{self.name}.snapshots"

    @property
    def commands(self) -> str:
        return f"{self.name}.commands"

    @property
    def replies(self) -> str:
        return f"{self.name}.replies"

    @property
    def types(self) -> str:
        return f"{self.name}.types"

    @property
    def group(self) -> str:
        return f"tidelog.store.{self.name}"

    @property
    def writers(self) -> str:
        """What the transactional ids of all owners begin with."""
        return f"tidelog.store.{self.name}."

    def transactional_id(self, partition: int) -> str:
        return f"{self.writers}{partition}"

    def settings(self) -> dict[str, dict[str, str]]:
        for_ever = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        a_day = {"cleanup.policy": "delete", "retention.ms": str(COMMANDS_KEPT_MS)}
        ours = {WRITERS: self.writers}
        return {
            self.events: {**for_ever, **ours},
            self.snapshots: {"cleanup.policy": "compact", **ours},
            self.replies: {**a_day, **ours},
            self.commands: a_day,
            self.types: {"cleanup.policy": "compact", **ours},
        }


def partitions_of(cluster: Cluster, named: StoreTopics) -> list[TopicPartition]:
    """Of its events; a store that is not there is told as one."""
    found = cluster.ask_metadata([named.events]).topics.get(named.events)
    if found is None or found.error_code in UNKNOWN_TOPIC:
        raise UsageError(f"store {named.name} has no topic {named.events}; `tidelog topics` lists what there is")
    return cluster.partitions(named.events)


def checked_name(name: str) -> str:
    if not LEGAL_NAME.fullmatch(name):
        raise UsageError(f"a store cannot be called {name!r}; letters, digits, `.`, `_` and `-` will do")
    return name


def ensure(cluster: Cluster, named: StoreTopics, partitions: int) -> int:
    """Makes those that are not there, looks at the others, and says how many partitions they have: as many as it is
    told where the store is new.
    """
    count = None
    for topic, settings in named.settings().items():
        with warnings.catch_warnings():
            if topic != named.events:
                warnings.simplefilter("ignore")  # what is lost elsewhere is said once
            single = topic == named.types
            topics.ensure(cluster, topic, partitions=1 if single else count or partitions, configs=settings)
        if single:
            continue
        (found,) = topics.describe(cluster, [topic])
        if count is not None and len(found.partitions) != count:
            raise UsageError(
                f"{topic} has {len(found.partitions)} partitions and {named.events} has {count}; the topics of a store"
                " have the same number: delete it if it is empty, and start the store again"
            )
        count = len(found.partitions)
    check_kept(cluster, named)
    assert count is not None, "there are such topics"
    return count


def count(cluster: Cluster, named: StoreTopics) -> int:
    """Partitions, for who only sends."""
    try:
        return len(cluster.partitions(named.commands))
    except BrokerError as error:
        if error.code not in UNKNOWN_TOPIC:
            raise
        raise UsageError(
            f"store {named.name} does not exist: topic {named.commands} is missing; run it first"
        ) from error


def check_kept(cluster: Cluster, named: StoreTopics) -> None:
    """That nothing cuts the histories."""
    keys = ["cleanup.policy", "retention.ms", "retention.bytes"]
    found = {one.name: one.value for one in configs.describe(cluster, configs.TOPIC, named.events, keys=keys)}
    wanted = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    wrong = [f"{key}={found[key]}" for key in keys if found.get(key, wanted[key]) != wanted[key]]
    if wrong:
        mends = " ".join(f"--set {key}={wanted[key]}" for key in keys if f"{key}={found.get(key)}" in wrong)
        raise UsageError(
            f"topic {named.events} has {', '.join(wrong)}: histories would be cut, and states would change; `tidelog"
            f" configs alter topic {named.events} {mends}`"
        )


class Largest(NamedTuple):
    """Bytes of a record's key, value and headers."""

    event: int
    command: int
    reply: int
    snapshot: int


def largest(cluster: Cluster, named: StoreTopics) -> Largest:
    return Largest(*(_largest(cluster, one) for one in (named.events, named.commands, named.replies, named.snapshots)))


def _largest(cluster: Cluster, topic: str) -> int:
    said = configs.describe(cluster, configs.TOPIC, topic, keys=["max.message.bytes"])
    return next((int(one.value) for one in said if one.value), LARGEST_DEFAULT) - RECORD_OVERHEAD


def size_of(record: Record) -> int:
    """At most, as one of a batch. Anybody names the headers of a command."""
    key, value, headers, _ = record
    return (
        len(key or b"")
        + len(value or b"")
        + sum(20 + len(name.encode()) + len(data or b"") for name, data in headers)
        + 40
    )


def place_of(topic: str, entity: bytes, partitions: int) -> TopicPartition:
    return TopicPartition(topic, partition_of(entity, partitions))
