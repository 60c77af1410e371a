"""Creating and deleting topics, and adding partitions: what is asked for, what is wrong with it, which records do it.

Pure: each `decide_*` looks at the state and returns records for `__tidelog.topics` and an outcome for each thing asked
for. A request is decided thing by thing, as in Kafka: one that is refused does not stop the others. What is asked for
twice in one request is refused, because nobody can tell which was meant. Who only wants to validate drops the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.broker.decision import Instant, NewRecord
from tidelog.broker.names import collision_key, fault_of, is_own
from tidelog.broker.settings.configuring import check_topic
from tidelog.broker.settings.setting import known, normal
from tidelog.broker.settings.topic import TOPIC
from tidelog.broker.topics import NO_ID, Topic, Topics, deleted_topic_record, topic_record
from tidelog.config import BrokerConfig
from tidelog.errors import ConfigError
from tidelog.wire.error_code import ErrorCode

DEFAULT = -1
ONE_NODE = "Tidelog is one node and keeps one copy; ask for 1 or -1, or use Apache Kafka for replication"
OURS = "names that begin with __tidelog. are the broker's own; choose another name"
TWICE = "is in the request more than once; ask for it once"

NewId = Callable[[], bytes]


class RequestFault(NamedTuple):
    code: int
    message: str


class Creation(NamedTuple):
    """A topic as it is asked for. `assignments` are brokers by partition; configs may be null, which is refused."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Mapping[int, Sequence[int]] = {}
    configs: Sequence[tuple[str, str | None]] = ()


class Addition(NamedTuple):
    """A topic is to have so many partitions in all; `assignments` are the brokers of each new one, or None."""

    name: str
    partitions: int
    assignments: Sequence[Sequence[int]] | None = None


class Outcome(NamedTuple):
    """What became of one thing asked for: the topic as it will be (or was, when deleted), or what is wrong."""

    name: str | None
    topic: Topic | None = None
    fault: RequestFault | None = None


class Decided(NamedTuple):
    records: list[NewRecord]
    outcomes: list[Outcome]


# Creating -------------------------------------------------------------------------------------------------------------


def decide_create(
    state: Topics, creations: Iterable[Creation], config: BrokerConfig, new_id: NewId, now: Instant
) -> Decided:
    asked = list(creations)
    times = Counter(creation.name for creation in asked)
    made = _Made(state)
    outcomes = []
    for creation in {creation.name: creation for creation in asked}.values():
        name = creation.name
        if times[name] > 1:
            outcomes.append(Outcome(name, fault=RequestFault(ErrorCode.INVALID_REQUEST, f"topic {name} {TWICE}")))
            continue
        outcome = _create(made, creation, config, new_id, now)
        if outcome.topic is not None:
            made.add(outcome.topic)
        outcomes.append(outcome)
    return Decided([topic_record(topic) for topic in made.topics], outcomes)


class _Made:
    """The topics of a request that will be made, beside those that there are: the next one must not collide."""

    def __init__(self, state: Topics) -> None:
        self._state = state
        self.topics: list[Topic] = []
        self.partitions = state.partitions
        self._colliding: dict[str, str] = {}

    def add(self, topic: Topic) -> None:
        self.topics.append(topic)
        self.partitions += topic.partitions
        self._colliding[collision_key(topic.name)] = topic.name

    def has(self, name: str) -> bool:
        return name in self._state.by_name

    def colliding(self, name: str) -> str | None:
        key = collision_key(name)
        return self._state.colliding.get(key) or self._colliding.get(key)


def _create(made: _Made, creation: Creation, config: BrokerConfig, new_id: NewId, now: Instant) -> Outcome:
    fault = _fault_of_name(made, creation.name) or _fault_of_shape(creation, config.int("node.id"))
    if fault is not None:
        return Outcome(creation.name, fault=fault)
    partitions = _partitions(creation, config)
    fault = _fault_of_size(creation.name, 0, partitions, made.partitions, config)
    if fault is not None:
        return Outcome(creation.name, fault=fault)
    try:
        configs = topic_configs(creation.configs)
    except ConfigError as error:
        return Outcome(creation.name, fault=RequestFault(ErrorCode.INVALID_CONFIG, str(error)))
    return Outcome(creation.name, Topic(creation.name, new_id(), partitions, configs, now.wall_ms))


def topic_configs(pairs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """A topic's own settings, checked and written the one way."""
    configs: dict[str, str] = {}
    for key, text in pairs:
        setting = known(TOPIC, key, "topic")
        if text is None:
            raise ConfigError(f"{key} has no value; leave it out for the default")
        configs[key] = normal(setting, text)
    check_topic(configs)
    return configs


def _fault_of_name(made: _Made, name: str) -> RequestFault | None:
    wrong = fault_of(name)
    if wrong is not None:
        return RequestFault(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    if made.has(name):
        return RequestFault(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
    if is_own(name):
        return RequestFault(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} cannot be created; {OURS}")
    other = made.colliding(name)
    if other is not None:
        message = f"topic {name} collides with topic {other}, from which it differs in '.' and '_' only; rename it"
        return RequestFault(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    return None


def _fault_of_shape(creation: Creation, node_id: int) -> RequestFault | None:
    name, replicas = creation.name, creation.replication_factor
    if creation.assignments:
        return _fault_of_assignments(creation, node_id)
    if creation.partitions != DEFAULT and creation.partitions < 1:
        message = f"topic {name} cannot have {creation.partitions} partitions; ask for 1 or more, or -1 for the default"
        return RequestFault(ErrorCode.INVALID_PARTITIONS, message)
    if replicas not in (DEFAULT, 1):
        message = f"topic {name} cannot have replication factor {replicas}; {ONE_NODE}"
        return RequestFault(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    return None


def _fault_of_assignments(creation: Creation, node_id: int) -> RequestFault | None:
    name, assignments = creation.name, creation.assignments
    if creation.partitions != DEFAULT or creation.replication_factor != DEFAULT:
        message = f"topic {name} has assignments and a count of partitions or replicas; give -1 for both counts"
        return RequestFault(ErrorCode.INVALID_REQUEST, message)
    if sorted(assignments) != list(range(len(assignments))):
        message = f"the assignments of topic {name} are for partitions {sorted(assignments)}; number them 0, 1, 2, ..."
        return RequestFault(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return _fault_of_brokers(name, assignments.values(), node_id)


def _fault_of_brokers(name: str, assignments: Iterable[Sequence[int]], node_id: int) -> RequestFault | None:
    for brokers in assignments:
        if list(brokers) != [node_id]:
            message = f"topic {name} cannot be assigned to brokers {list(brokers)}; there is one, {node_id}"
            return RequestFault(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return None


def _fault_of_size(name: str, before: int, after: int, total: int, config: BrokerConfig) -> RequestFault | None:
    """Faults of a topic that is to grow from `before` to `after` partitions where there are `total`."""
    most = config.int("tidelog.max.partitions.per.topic")
    if after > most:
        message = f"topic {name} cannot have {after} partitions; tidelog.max.partitions.per.topic is {most}"
        return RequestFault(ErrorCode.INVALID_PARTITIONS, message)
    most = config.int("tidelog.max.partitions")
    if total + after - before > most:
        message = (
            f"{after - before} more partitions would make {total + after - before}; tidelog.max.partitions is {most}"
        )
        return RequestFault(ErrorCode.POLICY_VIOLATION, message)
    return None


def _partitions(creation: Creation, config: BrokerConfig) -> int:
    if creation.assignments:
        return len(creation.assignments)
    return config.int("num.partitions") if creation.partitions == DEFAULT else creation.partitions


# Adding partitions ----------------------------------------------------------------------------------------------------


def decide_add_partitions(state: Topics, additions: Iterable[Addition], config: BrokerConfig) -> Decided:
    asked = list(additions)
    times = Counter(addition.name for addition in asked)
    grown: list[Topic] = []
    outcomes = []
    total = state.partitions
    for addition in {addition.name: addition for addition in asked}.values():
        fault = _fault_of_addition(state, addition, times[addition.name], total, config)
        if fault is not None:
            outcomes.append(Outcome(addition.name, fault=fault))
            continue
        before = state.by_name[addition.name]
        after = before._replace(partitions=addition.partitions)
        total += after.partitions - before.partitions
        grown.append(after)
        outcomes.append(Outcome(addition.name, after))
    return Decided([topic_record(topic) for topic in grown], outcomes)


def _fault_of_addition(
    state: Topics, addition: Addition, times: int, total: int, config: BrokerConfig
) -> RequestFault | None:
    name, count = addition.name, addition.partitions
    if times > 1:
        return RequestFault(ErrorCode.INVALID_REQUEST, f"topic {name} {TWICE}")
    topic = state.by_name.get(name)
    if topic is None:
        return RequestFault(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
    if topic.own:
        return RequestFault(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} cannot be changed; it is the broker's own"
        )
    if count <= topic.partitions:
        message = (
            f"topic {name} has {topic.partitions} partitions, and {count} is not more; partitions are never removed"
        )
        return RequestFault(ErrorCode.INVALID_PARTITIONS, message)
    new = count - topic.partitions
    if addition.assignments is not None and len(addition.assignments) != new:
        message = (
            f"topic {name} gets {new} new partitions and {len(addition.assignments)} assignments; give one for each"
        )
        return RequestFault(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return _fault_of_brokers(name, addition.assignments or (), config.int("node.id")) or _fault_of_size(
        name, topic.partitions, count, total, config
    )


# Deleting -------------------------------------------------------------------------------------------------------------


class Deletion(NamedTuple):
    """A topic to delete, by its name or by its id."""

    name: str | None
    topic_id: bytes = NO_ID


def decide_delete(state: Topics, deletions: Iterable[Deletion], config: BrokerConfig) -> Decided:
    asked = list(deletions)
    topics = [_find(state, deletion) for deletion in asked]
    times = Counter(topic.name for topic in topics if topic is not None)
    outcomes = []
    records = []
    for deletion, topic in zip(asked, topics, strict=True):
        fault = _fault_of_deletion(deletion, topic, times, config)
        outcomes.append(Outcome(topic.name if topic is not None else deletion.name, topic, fault))
        if fault is None and topic is not None:
            records.append(deleted_topic_record(topic.name))
    return Decided(records, outcomes)


def _find(state: Topics, deletion: Deletion) -> Topic | None:
    if deletion.topic_id != NO_ID:
        return state.by_id.get(deletion.topic_id) if deletion.name is None else None
    return state.by_name.get(deletion.name or "")


def _fault_of_deletion(
    deletion: Deletion, topic: Topic | None, times: Mapping[str, int], config: BrokerConfig
) -> RequestFault | None:
    if deletion.name is not None and deletion.topic_id != NO_ID:
        return RequestFault(
            ErrorCode.INVALID_REQUEST, f"topic {deletion.name} is named by its name and an id; give one of them"
        )
    if deletion.name is None and deletion.topic_id == NO_ID:
        return RequestFault(
            ErrorCode.INVALID_REQUEST, "a topic to delete has neither a name nor an id; give one of them"
        )
    if not config.flag("delete.topic.enable"):
        return RequestFault(ErrorCode.TOPIC_DELETION_DISABLED, "topics cannot be deleted; delete.topic.enable is false")
    if topic is None:
        if deletion.name is None:
            return RequestFault(ErrorCode.UNKNOWN_TOPIC_ID, f"a topic with id {deletion.topic_id.hex()} does not exist")
        return RequestFault(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {deletion.name} does not exist")
    if times[topic.name] > 1:
        return RequestFault(ErrorCode.INVALID_REQUEST, f"topic {topic.name} {TWICE}")
    if topic.own:
        return RequestFault(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic.name} cannot be deleted; it is the broker's own"
        )
    return None
