"""ListConfigResources: what has settings that DescribeConfigs can tell of.

v0    client metrics only: there are none
v1    of the types asked for, or of all: topics, this broker and its logger, groups that have settings of their own
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.topics import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

TYPES = (TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)
BY_TYPE_SINCE = 1


def handle(broker: Broker, request: ListConfigResourcesRequest, call: Call) -> ListConfigResourcesResponse:
    asked = request.resource_types or TYPES if call.version >= BY_TYPE_SINCE else [CLIENT_METRICS_RESOURCE]
    if any(one not in TYPES for one in asked):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=one)
            for one in dict.fromkeys(asked)
            for name in _names(broker, one)
        ]
    )


def _names(broker: Broker, resource_type: int) -> list[str]:
    if resource_type == TOPIC_RESOURCE:
        return [topic.name for topic in broker.topics.visible()]
    if resource_type in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        return [str(broker.config.int("node.id"))]
    if resource_type == GROUP_RESOURCE:
        return sorted(name for resource, name in broker.topics.configs if resource == GROUP_RESOURCE)
    return []
