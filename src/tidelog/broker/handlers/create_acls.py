"""CreateAcls: new access rules. One that is there already is not a fault.

v1    the kind of pattern: literal, prefixed        v2    flexible        v3    users as resources
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.access.changes import decide_create_acls
from tidelog.broker.decision import Decision
from tidelog.broker.handlers.describe_acls import NO_RULES
from tidelog.broker.topic_changes import RequestFault
from tidelog.broker.topics import ACCESS_TOPIC
from tidelog.errors import StorageError
from tidelog.wire.acl import Acl
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: CreateAclsRequest, call: Call) -> CreateAclsResponse | None:
    if not broker.access.authorises:
        off = RequestFault(ErrorCode.SECURITY_DISABLED, NO_RULES)
        return CreateAclsResponse(results=[_result(off) for _ in request.creations])
    decided = decide_create_acls(broker.access.state, map(_acl, request.creations))
    response = CreateAclsResponse(results=[_result(fault) for fault in decided.faults])
    try:
        broker.commit(ACCESS_TOPIC.name, Decision(decided.records, [(call.ticket, response)]))
    except StorageError as error:
        failed = RequestFault(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        return CreateAclsResponse(results=[_result(fault or failed) for fault in decided.faults])
    return None


def _acl(one: AclCreation) -> Acl:
    return Acl(
        one.resource_type,
        one.resource_pattern_type,
        one.resource_name,
        one.principal,
        one.host,
        one.operation,
        one.permission_type,
    )


def _result(fault: RequestFault | None) -> AclCreationResult:
    if fault is None:
        return AclCreationResult(error_message=None)
    return AclCreationResult(error_code=fault.code, error_message=fault.message)
