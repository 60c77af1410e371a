"""DescribeConfigs: every setting of topics, the broker and groups, with its value and where that comes from.

    v1    sources and synonyms, if asked for            v3    kinds, and documentation if asked for
    v4    flexible

A password has no value in the reply. The broker's logger has no settings; neither have client metrics. An empty broker
name is the cluster's default: what was altered for all brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.config_changes import CLUSTER, broker_values
from tidelog.broker.decision import Decision
from tidelog.broker.names import fault_of
from tidelog.broker.settings.broker import BROKER
from tidelog.broker.settings.describing import (
    Described,
    describe_broker,
    describe_cluster,
    describe_group,
    describe_topic,
)
from tidelog.broker.settings.group import GROUP
from tidelog.broker.settings.setting import BOOLEAN, DOUBLE, INT, LIST, LONG, PASSWORD, SHORT, STRING, Setting
from tidelog.broker.settings.topic import TOPIC
from tidelog.broker.topic_changes import RequestFault
from tidelog.broker.topics import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    TOPICS_TOPIC,
)
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

CONFIG_TYPES = {BOOLEAN: 1, STRING: 2, INT: 3, SHORT: 4, LONG: 5, DOUBLE: 6, LIST: 7, PASSWORD: 9}


class Shown(NamedTuple):
    described: Described
    read_only: bool = False


def handle(broker: Broker, request: DescribeConfigsRequest, call: Call) -> None:
    results = [_describe(broker, resource, request) for resource in request.resources]
    response = DescribeConfigsResponse(results=results)
    broker.commit(TOPICS_TOPIC.name, Decision([], [(call.ticket, response)]))


def _describe(
    broker: Broker, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    keys = frozenset(resource.configuration_keys or ())
    shown = _settings(broker, resource.resource_type, resource.resource_name, keys)
    if isinstance(shown, RequestFault):
        result.error_code, result.error_message = shown
        return result
    result.configs = [_entry(one, request) for one in shown]
    return result


def _settings(broker: Broker, resource: int, name: str, keys: Set[str]) -> Iterable[Shown] | RequestFault:
    """Those asked for by `keys`; none of them asks for all."""
    if resource == TOPIC_RESOURCE:
        return _topic(broker, name, keys)
    if resource == GROUP_RESOURCE:
        return _group(broker, name, keys)
    if resource == BROKER_RESOURCE:
        return _broker(broker, name, keys)
    if resource == BROKER_LOGGER_RESOURCE:
        return _fault_of_broker(broker, name) or []
    if resource == CLIENT_METRICS_RESOURCE:
        return []
    return RequestFault(ErrorCode.INVALID_REQUEST, f"resource type {resource} has no settings here")


def _asked(settings: Mapping[str, Setting], keys: Set[str]) -> Iterable[Setting]:
    return [setting for key, setting in settings.items() if key in keys] if keys else settings.values()


def _topic(broker: Broker, name: str, keys: Set[str]) -> list[Shown] | RequestFault:
    topic = broker.topics.by_name.get(name)
    if topic is None:
        wrong = fault_of(name)
        if wrong is not None:
            return RequestFault(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
        return RequestFault(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
    values = broker_values(broker.topics, broker.config)
    shown = [setting for setting in _asked(TOPIC, keys) if not setting.hidden or setting.key in topic.configs]
    return [Shown(describe_topic(setting, topic.configs, values), topic.own) for setting in shown]


def _group(broker: Broker, name: str, keys: Set[str]) -> list[Shown] | RequestFault:
    if not name:
        return RequestFault(ErrorCode.INVALID_REQUEST, "a group's settings need the group's name")
    values = broker_values(broker.topics, broker.config)
    own = broker.topics.altered(GROUP_RESOURCE, name)
    return [Shown(describe_group(setting, own, values)) for setting in _asked(GROUP, keys)]


def _broker(broker: Broker, name: str, keys: Set[str]) -> list[Shown] | RequestFault:
    values = broker_values(broker.topics, broker.config)
    if name == CLUSTER:
        described = [describe_cluster(setting, values) for setting in _asked(BROKER, keys)]
        return [Shown(one) for one in described if one is not None]
    fault = _fault_of_broker(broker, name)
    if fault is not None:
        return fault
    return [Shown(describe_broker(setting, values), not setting.dynamic) for setting in _asked(BROKER, keys)]


def _fault_of_broker(broker: Broker, name: str) -> RequestFault | None:
    node_id = broker.config.int("node.id")
    if name == str(node_id):
        return None
    return RequestFault(
        ErrorCode.INVALID_REQUEST,
        f"broker {name} does not exist; name {node_id}, or leave the name out for the cluster's default",
    )


def _entry(shown: Shown, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    setting = shown.described.setting
    entry = DescribeConfigsResourceResult(
        name=setting.key,
        value=shown.described.value,
        read_only=shown.read_only,
        config_source=shown.described.source,
        is_sensitive=setting.sensitive,
        config_type=CONFIG_TYPES[setting.kind],
        documentation=setting.doc if request.include_documentation else None,
    )
    if request.include_synonyms:
        entry.synonyms = [
            DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source)
            for one in shown.described.synonyms
        ]
    return entry
