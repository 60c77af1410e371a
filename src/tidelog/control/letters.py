"""Dead letters as they are read: of which record each is, who gave it up and why, and what the record itself was.

    form                    headers                 written by
    queues (KIP-1191)       __dlq.errors.*          a broker, for a share group
    Kafka Connect           __connect.errors.*      captures and apps of ours, and Kafka Connect itself

Rules:
- A letter is its record, key, value and headers, with the headers of the letter behind: from the last one called
  `.topic` on. So a letter of a letter is one of the letter, and the first ones belong to the record.
- A header that is not what it should be is not there: nothing in a topic of letters can stop who reads it.
- Topics of letters are those that a share group names, those called `dlq.*`, and those of outputs of apps, `*.dead`.
  Any other topic is one if its name is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tidelog.client.admin import configs, groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, READ_COMMITTED, list_offsets
from tidelog.control.dead_letters import MESSAGE, OWNER, SUFFIX
from tidelog.control.dead_letters import PREFIX as CONNECT
from tidelog.control.reading import read
from tidelog.errors import BrokerError
from tidelog.record.columns import Row
from tidelog.record.header import HeaderPairs

QUEUE = "__dlq.errors."
QUEUES_PREFIX = "dlq."
NAMED_BY_GROUP = "errors.deadletterqueue.topic.name"
OURS = "tidelog-dead-letter-id"  # behind the headers of KIP-1191, from a broker of ours
BY_CAPTURE = "tidelog.capture"
OF_QUEUE, OF_CAPTURE, OF_APP, OF_CONNECTOR = "queue", "capture", "app", "connector"
OFFSET_MAX = (1 << 63) - 1
COUNTED_MAX = 10_000


class Letter(NamedTuple):
    """`partition` and `offset` are None where the letter does not say them; a capture's record has no offset yet."""

    at: TopicPartition
    place: int  # its own offset
    timestamp_ms: int
    kind: str
    topic: str
    partition: int | None
    offset: int | None
    by: str
    deliveries: int | None
    why: str
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs

    @property
    def is_bare(self) -> bool:
        """The record itself is not in it, or was empty; which of them only its topic can say."""
        return self.key is None and self.value is None and not self.headers


def letter_of(at: TopicPartition, row: Row) -> Letter | None:
    """None for a record that is not a letter."""
    headers = tuple(row.headers or ())
    for start in range(len(headers) - 1, -1, -1):
        name, topic = headers[start]
        if name in (QUEUE + "topic", CONNECT + "topic") and topic:
            told = {name: (value or b"").decode("utf-8", "replace") for name, value in headers[start:]}
            read_by = _of_queue if name.startswith(QUEUE) else _of_connect
            kind, prefix, by, why = read_by(told)
            return Letter(
                at,
                row.offset,
                row.timestamp,
                kind,
                told[prefix + "topic"],
                _number(told.get(prefix + "partition")),
                _number(told.get(prefix + "offset")),
                by,
                _number(told.get(QUEUE + "delivery.count")) if kind == OF_QUEUE else None,
                why,
                row.key,
                row.value,
                headers[:start],
            )
    return None


def _of_queue(told: Mapping[str, str]) -> tuple[str, str, str, str]:
    return OF_QUEUE, QUEUE, told.get(QUEUE + "group", ""), told.get(QUEUE + "message", "")


def _of_connect(told: Mapping[str, str]) -> tuple[str, str, str, str]:
    taker = told.get(CONNECT + "class.name", "")
    kind = OF_CAPTURE if taker == BY_CAPTURE else OF_APP if taker.startswith("tidelog.") else OF_CONNECTOR
    return kind, CONNECT, told.get(CONNECT + OWNER, taker), told.get(CONNECT + MESSAGE, "")


def _number(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or int(text) > OFFSET_MAX:
        return None
    return int(text)


# In topics ------------------------------------------------------------------------------------------------------------


def topics_of_letters(cluster: Cluster) -> list[str]:
    """Those that are there."""
    there = set(topics.names(cluster))
    named = {name for name in there if name.startswith(QUEUES_PREFIX) or name.endswith(SUFFIX)}
    shared = [one.group for one in groups.list_all(cluster) if one.kind == "share"]
    return sorted(named | (there & {_named_by(cluster, group) for group in shared}))


def _named_by(cluster: Cluster, group: str) -> str:
    """The topic for a share group's letters; empty where it has none, or nobody may tell us."""
    try:
        found = configs.describe(cluster, configs.GROUP, group, keys=[NAMED_BY_GROUP])
    except BrokerError:
        return ""
    return next((one.value or "" for one in found if one.name == NAMED_BY_GROUP), "")


def bounds(cluster: Cluster, topic: str) -> dict[TopicPartition, tuple[int, int]]:
    """Where each partition begins, and ends for who reads what is committed."""
    partitions = cluster.partitions(topic)
    starts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation=READ_COMMITTED)
    return {at: (starts[at].offset, ends[at].offset) for at in partitions}


def read_letters(
    cluster: Cluster, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> Iterator[tuple[TopicPartition, Row, Letter | None]]:
    for at, row in read(cluster, begins, ends):
        yield at, row, letter_of(at, row)


def count_letters(cluster: Cluster, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Offsets where there are many: then what transactions leave between letters is counted as well."""
    offsets = sum(max(0, end - begins[at]) for at, end in ends.items())
    if offsets > COUNTED_MAX:
        return offsets
    return sum(letter is not None for *_, letter in read_letters(cluster, begins, ends))


def originals(cluster: Cluster, letters: Iterable[Letter]) -> dict[tuple[str, int, int], Row]:
    """The records of bare letters, as far as they are still there."""
    found: dict[tuple[str, int, int], Row] = {}
    for letter in letters:
        if letter.partition is None or letter.offset is None:
            continue
        at = TopicPartition(letter.topic, letter.partition)
        try:
            rows = list(read(cluster, {at: letter.offset}, {at: letter.offset + 1}))
        except BrokerError:
            continue  # the topic, or what it had there, is gone
        for _, row in rows:
            found[letter.topic, letter.partition, letter.offset] = row
    return found
