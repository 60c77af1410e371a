"""Topics, altered settings and producer ids: a fold over `__tidelog.topics`.

    key                                                  value (a tombstone: there is no such thing any more)
    {"v":1,"kind":"topic","name":T}                      {"id":HEX,"partitions":N,"configs":{...},"created_ms":MS}
    {"v":1,"kind":"configs","resource":4,"name":B}       {"configs":{...}}    broker B; "" is the cluster's default
    {"v":1,"kind":"configs","resource":32,"name":G}      {"configs":{...}}    group G
    {"v":1,"kind":"producer_ids"}                        {"reserved":N}       see `producer_ids`

Rules:
- Keys are written in this order of fields, so that equal keys are equal bytes. A key of a newer version, or of a kind
  that is not listed, is refused: a fold never skips.
- A value is whole: the latest record of a key says all about it, so the topic may be compacted.
- A topic that is deleted and created again has the same name and another id. Folders of partitions go by the id.
- The broker's own topics (`INTERNAL_TOPICS`) are here from the start and in no record.
- What to write is decided in `topic_changes`, `config_changes` and `producer_ids`; this module only folds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidelog.broker import producer_ids
from tidelog.broker.decision import NewRecord
from tidelog.broker.names import collision_key, is_internal, is_own
from tidelog.broker.producer_ids import ProducerIds
from tidelog.broker.record_text import decode, decode_key, encode

VERSION = 1
KINDS = ("topic", "configs", "producer_ids")

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32

NO_ID = bytes(16)
BASE64_OF_DASH = 62


class Topic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: int
    configs: Mapping[str, str]
    created_ms: int

    @property
    def internal(self) -> bool:
        return is_internal(self.name)

    @property
    def own(self) -> bool:
        return is_own(self.name)


# An id has sixteen bytes: so the first sixteen characters of their names are their ids.
TOPICS_TOPIC = Topic("__tidelog.topics", b"__tidelog.topics", 1, {"cleanup.policy": "compact"}, 0)
GROUPS_TOPIC = Topic("__tidelog.groups", b"__tidelog.groups", 1, {"cleanup.policy": "compact"}, 0)
STATUS_TOPIC = Topic("__tidelog.status", b"__tidelog.status", 1, {"cleanup.policy": "compact"}, 0)
ACCESS_TOPIC = Topic("__tidelog.access", b"__tidelog.access", 1, {"cleanup.policy": "compact"}, 0)
TRANSACTIONS_TOPIC = Topic("__tidelog.transactions", b"__tidelog.transa", 1, {"cleanup.policy": "compact"}, 0)
QUEUES_TOPIC = Topic("__tidelog.queues", b"__tidelog.queues", 1, {"cleanup.policy": "compact"}, 0)
WARNINGS_TOPIC = Topic("__tidelog.warnings", b"__tidelog.warnin", 1, {"cleanup.policy": "compact"}, 0)
EXCISIONS_TOPIC = Topic("__tidelog.excisions", b"__tidelog.excisi", 1, {"retention.ms": "-1"}, 0)
INTERNAL_TOPICS = (
    *(TOPICS_TOPIC, GROUPS_TOPIC, ACCESS_TOPIC, STATUS_TOPIC),
    *(TRANSACTIONS_TOPIC, WARNINGS_TOPIC, EXCISIONS_TOPIC, QUEUES_TOPIC),
)

SECRET_TOPICS = (ACCESS_TOPIC.name,)  # no client reads them, whatever it may read else


@dataclass(slots=True)
class Topics:
    """Made by `fresh`, changed by `apply` alone. The fields below the line follow from the others."""

    by_name: dict[str, Topic] = field(default_factory=dict)
    configs: dict[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    producer_ids: ProducerIds = field(default_factory=ProducerIds)
    # ---------------------------------------------------------------------
    by_id: dict[bytes, Topic] = field(default_factory=dict)
    partitions: int = 0
    colliding: dict[str, str] = field(default_factory=dict)

    def name_of(self, name: str | None, topic_id: bytes) -> str | None:
        """The name of a topic that a request names by its name or by its id; None if no topic has the id."""
        if topic_id == NO_ID:
            return name
        topic = self.by_id.get(topic_id)
        return topic.name if topic is not None else None

    def visible(self) -> list[Topic]:
        """All topics but the internal ones, by name: what a client sees that asks for all."""
        return [self.by_name[name] for name in sorted(self.by_name) if not is_internal(name)]

    def altered(self, resource: int, name: str) -> Mapping[str, str]:
        """What was altered of a broker's or a group's settings."""
        return self.configs.get((resource, name), {})


class TopicChange(NamedTuple):
    """A topic came (`before` is None), went (`after` is None), got partitions, or got other settings."""

    before: Topic | None
    after: Topic | None


class ConfigsChange(NamedTuple):
    resource: int
    name: str


Change = TopicChange | ConfigsChange | None


def random_id() -> bytes:
    """A new topic's id. Decisions take it as an argument, so that they stay pure.

    As in Kafka, none whose text (URL-safe base64) would begin with "-" and be taken for an option on a command line.
    """
    import os

    while True:
        topic_id = os.urandom(len(NO_ID))
        if topic_id[0] >> 2 != BASE64_OF_DASH and topic_id != NO_ID:
            return topic_id


def fresh() -> Topics:
    state = Topics()
    for topic in INTERNAL_TOPICS:
        _put_topic(state, topic.name, topic)
    return state


def apply(state: Topics, key: bytes, value: bytes | None) -> Change:
    """Folds one record, and returns what changed, so that the shell can open and drop partitions."""
    parsed = decode_key(key, TOPICS_TOPIC.name, VERSION, KINDS)
    content: dict[str, Any] | None = None if value is None else decode(value)
    if parsed["kind"] == "topic":
        name = parsed["name"]
        topic = None if content is None else _topic(name, content)
        return TopicChange(_put_topic(state, name, topic), topic)
    if parsed["kind"] == "configs":
        resource = parsed["resource"], parsed["name"]
        if content is None:
            state.configs.pop(resource, None)
        else:
            state.configs[resource] = content["configs"]
        return ConfigsChange(*resource)
    assert content is not None, "reserved producer ids are never given back"
    producer_ids.apply(state.producer_ids, content)
    return None


def to_records(state: Topics) -> Iterator[NewRecord]:
    """The records whose fold is this state again."""
    for topic in state.by_name.values():
        if not topic.own:
            yield topic_record(topic)
    for (resource, name), configs in state.configs.items():
        yield configs_record(resource, name, configs)
    yield from producer_ids.to_records(state.producer_ids)


def topic_record(topic: Topic) -> NewRecord:
    content = {
        "id": topic.topic_id.hex(),
        "partitions": topic.partitions,
        "configs": topic.configs,
        "created_ms": topic.created_ms,
    }
    return NewRecord(_topic_key(topic.name), encode(content))


def deleted_topic_record(name: str) -> NewRecord:
    return NewRecord(_topic_key(name), None)


def configs_record(resource: int, name: str, configs: Mapping[str, str]) -> NewRecord:
    """A broker's or a group's altered settings; without any, a tombstone."""
    key = encode({"v": VERSION, "kind": "configs", "resource": resource, "name": name})
    return NewRecord(key, encode({"configs": configs}) if configs else None)


def _put_topic(state: Topics, name: str, topic: Topic | None) -> Topic | None:
    before = state.by_name.pop(name, None)
    if before is not None:
        del state.by_id[before.topic_id]
        state.partitions -= before.partitions
        state.colliding.pop(collision_key(name), None)
    if topic is not None:
        state.by_name[name] = state.by_id[topic.topic_id] = topic
        state.partitions += topic.partitions
        state.colliding[collision_key(name)] = name
    return before


def _topic(name: str, content: dict[str, Any]) -> Topic:
    topic_id = bytes.fromhex(content["id"])
    return Topic(name, topic_id, content["partitions"], content["configs"], content["created_ms"])


def _topic_key(name: str) -> bytes:
    return encode({"v": VERSION, "kind": "topic", "name": name})
