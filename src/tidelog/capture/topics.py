"""The topics of a capture: their names, as Debezium gives them, and how they are made.

    PREFIX.SCHEMA.TABLE            the changes of a table
    PREFIX                         schema changes, when asked for
    PREFIX.transaction             BEGIN and END of transactions, when asked for
    PREFIX.message                 logical messages (PostgreSQL)
    PREFIX.signals                 what the capture is told, in Debezium's form
    __debezium-heartbeat.PREFIX    heartbeats, when asked for

Rules:
- A character that a topic's name cannot have becomes `_`. Two tables whose names then are the same are refused.
- They are kept for ever (`retention.ms=-1`) and not compacted, unless that is asked for: one that compaction may cut
  does not give the same answer twice. One that is there keeps its settings.
- A row goes where its key goes (murmur2, as Java's producer); rows without a key all go to partition 0, so that they
  stay in order; a truncate goes to every partition. A topic that is compacted takes no record without a key: there a
  truncate has the key `null`, so that the newest of them stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.client.admin import configs, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.errors import UsageError
from tidelog.record.partitioner import partition_of

LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
LENGTH_MAX = 249
MAX_MESSAGE_BYTES = 1_048_588  # Kafka's default
BATCH_OVERHEAD, HEADER_OVERHEAD = 100, 7  # of a batch with one record, beside its key, value and headers; of a header


def size_of(headers: Iterable[tuple[str, bytes | None]]) -> int:
    return sum(len(name.encode()) + len(value or b"") + HEADER_OVERHEAD for name, value in headers)


def legal(name: str) -> str:
    return "".join(c if c in LEGAL else "_" for c in name)


def of_table(prefix: str, full_name: str) -> str:
    topic = legal(f"{prefix}.{full_name}")
    if len(topic) > LENGTH_MAX:
        raise UsageError(f"the topic of {full_name} would be {topic!r}, longer than {LENGTH_MAX}; use a shorter prefix")
    return topic


def of_transactions(prefix: str) -> str:
    return legal(f"{prefix}.transaction")


def of_messages(prefix: str) -> str:
    return legal(f"{prefix}.message")


def of_signals(prefix: str) -> str:
    return legal(f"{prefix}.signals")


def of_heartbeats(prefix: str) -> str:
    return legal(f"__debezium-heartbeat.{prefix}")


def of_schema_changes(prefix: str) -> str:
    return legal(prefix)


class CapturedTopics:
    """Those that this capture has written to: made on first use, with the sizes that count."""

    def __init__(self, cluster: Cluster, *, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._settings = {"retention.ms": "-1", **(settings or {})}
        self._places: dict[str, list[TopicPartition]] = {}
        self._largest: dict[str, int] = {}
        self._compacted: set[str] = set()
        self._tables: dict[str, str] = {}

    def claim(self, topic: str, full_name: str) -> None:
        """That no two tables share a topic."""
        other = self._tables.setdefault(topic, full_name)
        if other != full_name:
            raise UsageError(
                f"{other} and {full_name} would both be captured to topic {topic}; capture one of them by another"
                " capture with a prefix of its own"
            )

    def places(
        self, topic: str, *, single: bool = False, settings: Mapping[str, str] | None = None
    ) -> list[TopicPartition]:
        """Its partitions. One that is not there is made; `single` with one partition."""
        known = self._places.get(topic)
        if known is None:
            wanted = self._settings if settings is None else settings
            topics.ensure(self._cluster, topic, partitions=1 if single else self._partitions, configs=wanted)
            (found,) = topics.describe(self._cluster, [topic])
            known = [TopicPartition(topic, number) for number in range(len(found.partitions))]
            self._places[topic] = known
        return known

    def place(self, topic: str, key: bytes | None) -> TopicPartition:
        places = self._places.get(topic) or self.places(topic)
        return places[0] if key is None or len(places) == 1 else places[partition_of(key, len(places))]

    def largest(self, topic: str) -> int:
        """How many bytes a batch may have there."""
        known = self._largest.get(topic)
        if known is None:
            self.places(topic)
            told = configs.describe(self._cluster, configs.TOPIC, topic, keys=["max.message.bytes", "cleanup.policy"])
            said = {one.name: one.value for one in told if one.value}
            known = self._largest[topic] = int(said.get("max.message.bytes", MAX_MESSAGE_BYTES))
            if "compact" in said.get("cleanup.policy", ""):
                self._compacted.add(topic)
        return known

    def is_compacted(self, topic: str) -> bool:
        """Whether every record must have a key."""
        self.largest(topic)
        return topic in self._compacted

    def has_records(self, topic: str) -> bool:
        places = self.places(topic)
        starts, ends = (list_offsets(self._cluster, dict.fromkeys(places, one)) for one in (EARLIEST, LATEST))
        return any(ends[at].offset > starts[at].offset for at in places)
