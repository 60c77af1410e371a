"""DeleteAcls: the access rules that filters take, gone.

v1    the kind of pattern: literal, prefixed        v2    flexible        v3    users as resources
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.access.acls import AclFilter
from tidelog.broker.access.changes import decide_delete_acls, fault_of_filter
from tidelog.broker.decision import Decision
from tidelog.broker.handlers.describe_acls import NO_RULES
from tidelog.broker.topic_changes import RequestFault
from tidelog.broker.topics import ACCESS_TOPIC
from tidelog.errors import StorageError
from tidelog.wire.acl import Acl
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: DeleteAclsRequest, call: Call) -> DeleteAclsResponse | None:
    if not broker.access.authorises:
        return _refused(request, RequestFault(ErrorCode.SECURITY_DISABLED, NO_RULES))
    filters = [_filter(one) for one in request.filters]
    faults = [fault_of_filter(one) for one in filters]
    good = [one for one, fault in zip(filters, faults, strict=True) if fault is None]
    records, taken = decide_delete_acls(broker.access.state, good)
    found = iter(taken)
    results = [_result(fault, [] if fault is not None else next(found)) for fault in faults]
    try:
        response = DeleteAclsResponse(filter_results=results)
        broker.commit(ACCESS_TOPIC.name, Decision(records, [(call.ticket, response)]))
    except StorageError as error:
        return _refused(request, RequestFault(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
    return None


def _refused(request: DeleteAclsRequest, fault: RequestFault) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_result(fault, []) for _ in request.filters])


def _filter(one: DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        one.resource_type_filter,
        one.pattern_type_filter,
        one.resource_name_filter,
        one.principal_filter,
        one.host_filter,
        one.operation,
        one.permission_type,
    )


def _result(fault: RequestFault | None, taken: list[Acl]) -> DeleteAclsFilterResult:
    if fault is not None:
        return DeleteAclsFilterResult(error_code=fault.code, error_message=fault.message)
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=acl.resource,
                resource_name=acl.name,
                pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in taken
        ],
    )
