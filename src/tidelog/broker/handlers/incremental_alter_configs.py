"""IncrementalAlterConfigs: single settings of a topic, the broker or a group; the others stay as they are.

    v0    the first              v1    flexible

Operations are SET, DELETE, and for lists APPEND and SUBTRACT (`config_changes`). One name is an order, not a setting,
and is carried out and not kept: `tidelog.excise` (`excision/requests.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.broker.altering import alter, outcome_fields
from tidelog.broker.config_changes import Alteration, Altered, Operation
from tidelog.broker.excision import requests
from tidelog.broker.excision.requests import has_order
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(
    broker: Broker, request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse | None:
    if has_order(request):
        requests.handle(broker, request, call)
        return None
    return alter(broker, call, map(_alteration, request.resources), request.validate_only, _response)


def _alteration(resource: AlterConfigsResource) -> Alteration:
    operations = [Operation(one.name, one.config_operation, one.value) for one in resource.configs]
    return Alteration(resource.resource_type, resource.resource_name, operations)


def _response(outcomes: Iterable[Altered]) -> IncrementalAlterConfigsResponse:
    told = [AlterConfigsResourceResponse(**outcome_fields(one)) for one in outcomes]
    return IncrementalAlterConfigsResponse(responses=told)
