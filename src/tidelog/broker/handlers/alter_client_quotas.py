"""AlterClientQuotas: how much users and client ids may use.

v0    the first        v1    flexible

A quota counts from the next request on, also for clients that are connected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.access.changes import QuotaAlteration, decide_quotas
from tidelog.broker.decision import Decision
from tidelog.broker.topic_changes import RequestFault
from tidelog.broker.topics import ACCESS_TOPIC
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: AlterClientQuotasRequest, call: Call) -> AlterClientQuotasResponse | None:
    records, faults = decide_quotas(broker.access.state, map(_alteration, request.entries))
    entries = [_result(one, fault) for one, fault in zip(request.entries, faults, strict=True)]
    try:
        response = AlterClientQuotasResponse(entries=entries)
        decision = Decision([] if request.validate_only else records, [(call.ticket, response)])
        broker.commit(ACCESS_TOPIC.name, decision)
    except StorageError as error:
        failed = RequestFault(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        entries = [_result(one, fault or failed) for one, fault in zip(request.entries, faults, strict=True)]
        return AlterClientQuotasResponse(entries=entries)
    return None


def _alteration(one: RequestEntryData) -> QuotaAlteration:
    return QuotaAlteration(
        [(part.entity_type, part.entity_name) for part in one.entity],
        [(operation.key, None if operation.remove else operation.value) for operation in one.ops],
    )


def _result(one: RequestEntryData, fault: RequestFault | None) -> ResponseEntryData:
    return ResponseEntryData(
        error_code=fault.code if fault is not None else 0,
        error_message=fault.message if fault is not None else None,
        entity=[ResponseEntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in one.entity],
    )
