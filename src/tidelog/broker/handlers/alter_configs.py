"""AlterConfigs: all settings of a topic, the broker or a group, in place of those it has.

    v0    the first              v1    the same              v2    flexible

What is not in the request goes back to its default. IncrementalAlterConfigs, which changes what it names and nothing
else, has taken its place; older tools still send this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.broker.altering import alter, outcome_fields
from tidelog.broker.config_changes import SET, Alteration, Altered, Operation
from tidelog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse | None:
    return alter(broker, call, map(_alteration, request.resources), request.validate_only, _response)


def _alteration(resource: AlterConfigsResource) -> Alteration:
    operations = [Operation(one.name, SET, one.value) for one in resource.configs]
    return Alteration(resource.resource_type, resource.resource_name, operations, replace=True)


def _response(outcomes: Iterable[Altered]) -> AlterConfigsResponse:
    told = [AlterConfigsResourceResponse(**outcome_fields(one)) for one in outcomes]
    return AlterConfigsResponse(responses=told)
