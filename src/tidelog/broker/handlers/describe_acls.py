"""DescribeAcls: the access rules that a filter takes.

v1    the kind of pattern: literal, prefixed        v2    flexible        v3    users as resources
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.access.acls import AclFilter
from tidelog.broker.access.changes import fault_of_filter
from tidelog.broker.decision import Decision
from tidelog.broker.topics import ACCESS_TOPIC
from tidelog.wire.acl import Acl
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

NO_RULES = "access rules are off; authorizer.class.name turns them on"


def handle(broker: Broker, request: DescribeAclsRequest, call: Call) -> DescribeAclsResponse | None:
    if not broker.access.authorises:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_RULES)
    wanted = AclFilter(
        request.resource_type_filter,
        request.pattern_type_filter,
        request.resource_name_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    fault = fault_of_filter(wanted)
    if fault is not None:
        return DescribeAclsResponse(error_code=fault.code, error_message=fault.message)
    resources: dict[tuple[int, str, int], list[Acl]] = {}
    for acl in broker.access.state.acls:
        if wanted.takes(acl):
            resources.setdefault((acl.resource, acl.name, acl.pattern), []).append(acl)
    response = DescribeAclsResponse(error_message=None, resources=[_resource(*one) for one in resources.items()])
    broker.commit(ACCESS_TOPIC.name, Decision([], [(call.ticket, response)]))
    return None


def _resource(key: tuple[int, str, int], acls: list[Acl]) -> DescribeAclsResource:
    resource, name, pattern = key
    return DescribeAclsResource(
        resource_type=resource,
        resource_name=name,
        pattern_type=pattern,
        acls=[
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
            for acl in acls
        ],
    )
