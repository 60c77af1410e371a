"""AlterConfigs: all settings of a topic, the broker or a group, in place of those it has.

    v0    the first              v1    the same              v2    flexible

What is not in the request goes back to its default. IncrementalAlterConfigs, which changes what it names and nothing
else, has taken its place; older tools still send this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.config_changes import SET, Alteration, Altered, Operation, decide_alter
from tidelog.broker.decision import Decision
from tidelog.broker.topic_changes import Fault
from tidelog.broker.topics import TOPICS_TOPIC
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
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
    asked = map(_alteration, request.resources)
    decided = decide_alter(broker.topics, asked, broker.config, broker.topics_shared_by)
    records = [] if request.validate_only else decided.records
    try:
        response = AlterConfigsResponse(responses=list(map(_response, decided.outcomes)))
        broker.commit(TOPICS_TOPIC.name, Decision(records, [(call.ticket, response)]))
    except StorageError as error:
        fault = Fault(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        failed = [one if one.fault else one._replace(fault=fault) for one in decided.outcomes]
        return AlterConfigsResponse(responses=list(map(_response, failed)))
    return None


def _alteration(resource: AlterConfigsResource) -> Alteration:
    operations = [Operation(one.name, SET, one.value) for one in resource.configs]
    return Alteration(resource.resource_type, resource.resource_name, operations, replace=True)


def _response(outcome: Altered) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=outcome.fault.code if outcome.fault else 0,
        error_message=outcome.fault.message if outcome.fault else None,
        resource_type=outcome.resource,
        resource_name=outcome.name,
    )
