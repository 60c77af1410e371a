"""IncrementalAlterConfigs: single settings of a topic, the broker or a group; the others stay as they are.

    v0    the first              v1    flexible

Operations are SET, DELETE, and for lists APPEND and SUBTRACT (`config_changes`). One name is an order, not a setting,
and is carried out and not kept: `tidelog.excise` (`excision/requests.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.config_changes import Alteration, Altered, Operation, decide_alter
from tidelog.broker.decision import Decision
from tidelog.broker.excision import requests
from tidelog.broker.excision.requests import has_order
from tidelog.broker.topic_changes import Fault
from tidelog.broker.topics import TOPICS_TOPIC
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
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
    asked = map(_alteration, request.resources)
    decided = decide_alter(broker.topics, asked, broker.config, broker.topics_shared_by)
    records = [] if request.validate_only else decided.records
    try:
        response = IncrementalAlterConfigsResponse(responses=list(map(_response, decided.outcomes)))
        broker.commit(TOPICS_TOPIC.name, Decision(records, [(call.ticket, response)]))
    except StorageError as error:
        fault = Fault(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        failed = [one if one.fault else one._replace(fault=fault) for one in decided.outcomes]
        return IncrementalAlterConfigsResponse(responses=list(map(_response, failed)))
    return None


def _alteration(resource: AlterConfigsResource) -> Alteration:
    operations = [Operation(one.name, one.config_operation, one.value) for one in resource.configs]
    return Alteration(resource.resource_type, resource.resource_name, operations)


def _response(outcome: Altered) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=outcome.fault.code if outcome.fault else 0,
        error_message=outcome.fault.message if outcome.fault else None,
        resource_type=outcome.resource,
        resource_name=outcome.name,
    )
