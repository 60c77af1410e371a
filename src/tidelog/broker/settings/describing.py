"""Which value a setting has, where it comes from, and what else would give it one: what DescribeConfigs tells.

A topic's key is looked for in these layers, and a broker's key in all but the first; the first that has it wins:

    DYNAMIC_TOPIC_CONFIG             the topic's own
    DYNAMIC_BROKER_CONFIG            altered while the broker runs, for this broker
    DYNAMIC_DEFAULT_BROKER_CONFIG    altered while the broker runs, for the cluster
    STATIC_BROKER_CONFIG             given at the start: code, command line, environment, file
    DEFAULT_CONFIG                   the table's

Within a layer the synonyms decide in their order (log.retention.ms before log.retention.minutes before
log.retention.hours). A group's key has GROUP_CONFIG in place of the first. One rule of our own: where a layer has no
tidelog.durability but asks for a flush after every message, it asks for disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tidelog.broker.settings.broker import BROKER
from tidelog.broker.settings.setting import Setting
from tidelog.config import Given

DYNAMIC_TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5
GROUP_CONFIG = 8

DURABILITY = "tidelog.durability"
FLUSHES = ("flush.messages", "log.flush.interval.messages")
FLUSH_EVERY_MESSAGE = "1"

MINUTE_MS = 60_000
_UNITS = {"minutes": MINUTE_MS, "hours": 60 * MINUTE_MS}


class BrokerValues(NamedTuple):
    """The broker's layers: what was altered for this broker and for the cluster, what was given at the start."""

    own: Mapping[str, str]
    cluster: Mapping[str, str]
    static: Mapping[str, Given]


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: int


class Described(NamedTuple):
    setting: Setting
    value: str | None
    source: int
    synonyms: list[Synonym]


NO_VALUES = BrokerValues({}, {}, {})


def describe_topic(setting: Setting, own: Mapping[str, str], broker: BrokerValues) -> Described:
    return _described(setting, own, DYNAMIC_TOPIC_CONFIG, broker)


def describe_group(setting: Setting, own: Mapping[str, str], broker: BrokerValues) -> Described:
    return _described(setting, own, GROUP_CONFIG, broker)


def describe_broker(setting: Setting, broker: BrokerValues) -> Described:
    synonyms = _broker_synonyms(setting.synonyms or (setting.key,), broker)
    # As in Kafka: a stronger synonym of another name does not speak for this key.
    while synonyms and synonyms[0].name != setting.key:
        synonyms.pop(0)
    if not synonyms:
        return Described(setting, setting.default, DEFAULT_CONFIG, [])
    return _hide(Described(setting, synonyms[0].value, synonyms[0].source, synonyms))


def describe_cluster(setting: Setting, broker: BrokerValues) -> Described | None:
    """A key of the cluster's default: only what was altered for it."""
    value = broker.cluster.get(setting.key)
    if value is None:
        return None
    synonym = Synonym(setting.key, value, DYNAMIC_DEFAULT_BROKER_CONFIG)
    return _hide(Described(setting, value, synonym.source, [synonym]))


def topic_text(setting: Setting, own: Mapping[str, str], broker: BrokerValues) -> str | None:
    """The value alone, as text."""
    return _described(setting, own, DYNAMIC_TOPIC_CONFIG, broker).value


def _described(setting: Setting, own: Mapping[str, str], own_source: int, broker: BrokerValues) -> Described:
    synonyms = [Synonym(setting.key, own[setting.key], own_source)] if setting.key in own else []
    synonyms += _broker_synonyms(setting.synonyms, broker)
    if setting.key == DURABILITY:
        value, source = _durability(own, own_source, broker)
        return Described(setting, value, source, synonyms)
    if not synonyms:
        return Described(setting, setting.default, DEFAULT_CONFIG, [])
    return _hide(Described(setting, _in_unit_of(setting, synonyms[0]), synonyms[0].source, synonyms))


def _broker_synonyms(keys: Iterable[str], broker: BrokerValues) -> list[Synonym]:
    found = [Synonym(key, values[key], source) for source, values in _layers(broker) for key in keys if key in values]
    for key in keys:
        default = BROKER[key].default if key in BROKER else None
        if default is not None:
            found.append(Synonym(key, default, DEFAULT_CONFIG))
    return found


def _layers(broker: BrokerValues) -> Iterator[tuple[int, Mapping[str, str]]]:
    yield DYNAMIC_BROKER_CONFIG, broker.own
    yield DYNAMIC_DEFAULT_BROKER_CONFIG, broker.cluster
    yield STATIC_BROKER_CONFIG, {key: given.text for key, given in broker.static.items()}


def _in_unit_of(setting: Setting, synonym: Synonym) -> str | None:
    """retention.ms from log.retention.hours: the synonym's value in the key's own unit; -1 is without limit in any."""
    unit = synonym.name.rpartition(".")[2]
    if unit not in _UNITS or synonym.name == setting.key or synonym.value is None:
        return synonym.value
    number = int(synonym.value)
    return str(number if number < 0 else number * _UNITS[unit])


def _durability(own: Mapping[str, str], own_source: int, broker: BrokerValues) -> tuple[str, int]:
    for source, values in ((own_source, own), *_layers(broker)):
        if DURABILITY in values:
            return values[DURABILITY], source
        if any(values.get(key) == FLUSH_EVERY_MESSAGE for key in FLUSHES):
            return "disk", source
    default = BROKER[DURABILITY].default
    assert default is not None
    return default, DEFAULT_CONFIG


def _hide(described: Described) -> Described:
    if not described.setting.sensitive:
        return described
    return described._replace(value=None, synonyms=[synonym._replace(value=None) for synonym in described.synonyms])
