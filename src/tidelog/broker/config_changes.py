"""Altering settings of topics, the broker and groups: what is asked for, what is wrong with it, which records do it.

Pure, as `topic_changes`. An alteration gives single operations (IncrementalAlterConfigs) or, with `replace`, all
settings that a resource is to have (AlterConfigs): what is not among them goes back to its default. A resource is
altered as a whole or, where anything is wrong, not at all.

    operation    SET       the value
                 DELETE    back to the default; of a key that nobody knows: nothing
                 APPEND    adds to a list what is not yet in it
                 SUBTRACT  takes it out of a list
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.broker.decision import NewRecord
from tidelog.broker.names import fault_of
from tidelog.broker.settings.broker import BROKER
from tidelog.broker.settings.configuring import broker_config, check_broker, check_topic
from tidelog.broker.settings.describing import BrokerValues, describe_broker, topic_text
from tidelog.broker.settings.group import GROUP, bounds
from tidelog.broker.settings.setting import LIST, Setting, known, normal, parse
from tidelog.broker.settings.topic import TOPIC
from tidelog.broker.topic_changes import RequestFault
from tidelog.broker.topics import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    Topics,
    configs_record,
    topic_record,
)
from tidelog.config import BrokerConfig
from tidelog.errors import ConfigError
from tidelog.wire.error_code import ErrorCode

SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3

CLUSTER = ""
DEAD_LETTERS = "errors.deadletterqueue.topic.name"
DEAD_LETTERS_PREFIX = "errors.deadletterqueue.topic.name.prefix"
DEAD_LETTERS_MADE = "errors.deadletterqueue.auto.create.topics.enable"
DEAD_LETTERS_TAKEN = "errors.deadletterqueue.group.enable"

# The value that a key has now, which APPEND and SUBTRACT change: as altered so far, or else from the layers below.
Present = Callable[[Setting, Mapping[str, str]], str | None]


class Operation(NamedTuple):
    key: str
    kind: int
    value: str | None


class Alteration(NamedTuple):
    resource: int
    name: str
    operations: Sequence[Operation]
    replace: bool = False


class Altered(NamedTuple):
    resource: int
    name: str
    fault: RequestFault | None


class DecidedAlterations(NamedTuple):
    records: list[NewRecord]
    outcomes: list[Altered]


class _Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.fault = RequestFault(code, message)


def broker_values(state: Topics, config: BrokerConfig) -> BrokerValues:
    """The broker's layers of settings as they are now."""
    own = state.altered(BROKER_RESOURCE, str(config.int("node.id")))
    return BrokerValues(own, state.altered(BROKER_RESOURCE, CLUSTER), config.given)


def _nothing(_: str) -> Container[str]:
    return ()


def decide_alter(
    state: Topics,
    alterations: Iterable[Alteration],
    config: BrokerConfig,
    read_by: Callable[[str], Container[str]] = _nothing,
) -> DecidedAlterations:
    """`read_by` names the topics that a share group reads."""
    asked = list(alterations)
    times = Counter((alteration.resource, alteration.name) for alteration in asked)
    records: list[NewRecord] = []
    outcomes = []
    for alteration in asked:
        fault = None
        try:
            if times[alteration.resource, alteration.name] > 1:
                raise _Refused(ErrorCode.INVALID_REQUEST, "a resource is in the request more than once; name it once")
            records += _alter(state, alteration, config, read_by)
        except _Refused as refused:
            fault = refused.fault
        except ConfigError as error:
            fault = RequestFault(ErrorCode.INVALID_CONFIG, str(error))
        outcomes.append(Altered(alteration.resource, alteration.name, fault))
    return DecidedAlterations(records, outcomes)


def _alter(
    state: Topics, alteration: Alteration, config: BrokerConfig, read_by: Callable[[str], Container[str]]
) -> list[NewRecord]:
    if alteration.resource == TOPIC_RESOURCE:
        return _alter_topic(state, alteration, config)
    if alteration.resource == BROKER_RESOURCE:
        return _alter_broker(state, alteration, config)
    if alteration.resource == GROUP_RESOURCE:
        return _alter_group(state, alteration, config, read_by)
    if alteration.resource == BROKER_LOGGER_RESOURCE:
        raise _Refused(ErrorCode.INVALID_REQUEST, "loggers cannot be altered; set tidelog.log.level at the start")
    raise _Refused(ErrorCode.INVALID_REQUEST, f"resource type {alteration.resource} has no settings here")


def _alter_topic(state: Topics, alteration: Alteration, config: BrokerConfig) -> list[NewRecord]:
    topic = state.by_name.get(alteration.name)
    if topic is None:
        raise _Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {alteration.name} does not exist")
    if topic.own:
        message = f"topic {topic.name} cannot be altered; it is the broker's own"
        raise _Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    values = broker_values(state, config)

    def present(setting: Setting, configs: Mapping[str, str]) -> str | None:
        return topic_text(setting, configs, values)

    configs = _altered(topic.configs, alteration, TOPIC, "topic", present)
    check_topic(configs)
    return [] if configs == topic.configs else [topic_record(topic._replace(configs=configs))]


def _alter_broker(state: Topics, alteration: Alteration, config: BrokerConfig) -> list[NewRecord]:
    own_name = str(config.int("node.id"))
    if alteration.name not in (own_name, CLUSTER):
        message = (
            f"broker {alteration.name} does not exist; name {own_name}, or leave the name out for the cluster's default"
        )
        raise _Refused(ErrorCode.INVALID_REQUEST, message)
    fixed = [one.key for one in alteration.operations if one.key in BROKER and not BROKER[one.key].dynamic]
    if fixed:
        message = f"{', '.join(fixed)} cannot be altered while the broker runs; set it at the start"
        raise _Refused(ErrorCode.INVALID_REQUEST, message)
    values = broker_values(state, config)

    def present(setting: Setting, configs: Mapping[str, str]) -> str | None:
        return configs.get(setting.key) or describe_broker(setting, values).value

    before = values.cluster if alteration.name == CLUSTER else values.own
    configs = _altered(before, alteration, BROKER, "broker", present)
    check_broker(configs)
    after = values._replace(cluster=configs) if alteration.name == CLUSTER else values._replace(own=configs)
    broker_config(config.given, after)
    return [] if configs == before else [configs_record(BROKER_RESOURCE, alteration.name, configs)]


def _alter_group(
    state: Topics, alteration: Alteration, config: BrokerConfig, read_by: Callable[[str], Container[str]]
) -> list[NewRecord]:
    if not alteration.name:
        raise _Refused(ErrorCode.INVALID_REQUEST, "a group's settings need the group's name")
    before = state.altered(GROUP_RESOURCE, alteration.name)
    configs = _altered(before, alteration, GROUP, "group", lambda setting, configs: configs.get(setting.key))
    for key, text in configs.items():
        keys = bounds(key)
        if keys is not None and not config.int(keys[0]) <= int(text) <= config.int(keys[1]):
            low, high = (f"{bound}={config.int(bound)}" for bound in keys)
            raise ConfigError(f"{key}={text} is refused; it must lie between {low} and {high}")
    _check_dead_letters(state, configs.get(DEAD_LETTERS), config)
    if configs.get(DEAD_LETTERS) in read_by(alteration.name):
        named = f"{DEAD_LETTERS}={configs[DEAD_LETTERS]}"
        raise ConfigError(f"{named} is a topic that group {alteration.name} reads itself; name another")
    return [] if configs == before else [configs_record(GROUP_RESOURCE, alteration.name, configs)]


def _check_dead_letters(state: Topics, name: str | None, config: BrokerConfig) -> None:
    if not name:
        return
    prefix = config.text(DEAD_LETTERS_PREFIX)
    if name.startswith("__"):
        raise ConfigError(f"{DEAD_LETTERS}={name} is an internal topic's name; name one that does not begin with __")
    if not name.startswith(prefix):
        raise ConfigError(f"{DEAD_LETTERS}={name} does not begin with {prefix}, which {DEAD_LETTERS_PREFIX} asks for")
    topic = state.by_name.get(name)
    if topic is None and fault_of(name) is None and config.flag(DEAD_LETTERS_MADE):
        return
    if topic is None:
        raise ConfigError(f"{DEAD_LETTERS}={name} is not a topic; create it first, or set {DEAD_LETTERS_MADE}=true")
    if topic.configs.get(DEAD_LETTERS_TAKEN) != "true":
        raise ConfigError(f"topic {name} does not take dead letters; set {DEAD_LETTERS_TAKEN}=true on it")


def _altered(
    before: Mapping[str, str],
    alteration: Alteration,
    settings: Mapping[str, Setting],
    what: str,
    present: Present,
) -> dict[str, str]:
    twice = [key for key, times in Counter(one.key for one in alteration.operations).items() if times > 1]
    if twice:
        raise _Refused(ErrorCode.INVALID_REQUEST, f"{', '.join(twice)} is in the request more than once; name it once")
    configs = {} if alteration.replace else dict(before)
    for operation in alteration.operations:
        _operate(configs, operation, settings, what, present)
    return configs


def _operate(
    configs: dict[str, str], operation: Operation, settings: Mapping[str, Setting], what: str, present: Present
) -> None:
    key, kind, value = operation
    if kind == DELETE:
        configs.pop(key, None)
        return
    setting = known(settings, key, what)
    if value is None:
        raise _Refused(ErrorCode.INVALID_REQUEST, f"{key} has no value; DELETE brings back the default")
    if kind == SET:
        configs[key] = normal(setting, value)
        return
    if kind not in (APPEND, SUBTRACT):
        raise _Refused(
            ErrorCode.INVALID_REQUEST, f"operation {kind} of {key} is not one of SET, DELETE, APPEND, SUBTRACT"
        )
    if setting.kind != LIST:
        raise ConfigError(f"{key} is not a list, and only lists can be added to and taken from; use SET")
    parts = _parts(setting, present(setting, configs))
    named = _parts(setting, value)
    kept = [part for part in parts if kind == APPEND or part not in named]
    added = [part for part in named if kind == APPEND and part not in parts]
    configs[key] = normal(setting, ",".join([*kept, *added]))


def _parts(setting: Setting, text: str | None) -> tuple[str, ...]:
    value = parse(setting._replace(check=None), text or "")
    assert isinstance(value, tuple)
    return value
