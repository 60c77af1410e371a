"""Users, access rules and quotas of a cluster, by the standard APIs: they work on any broker that has them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.refusal import check
from tidelog.wire.acl import Acl as Acl
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tidelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from tidelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tidelog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from tidelog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from tidelog.wire.scram import MAX_ITERATIONS, MECHANISM_TYPES, SALT_BYTES, TYPES, salted_password

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
RESOURCES = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5, "delegation-token": 6, "user": 7}
OPERATIONS = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster-action": 9,
    "describe-configs": 10,
    "alter-configs": 11,
    "idempotent-write": 12,
    "create-tokens": 13,
    "describe-tokens": 14,
    "two-phase-commit": 15,
}
PERMISSIONS = {"deny": 2, "allow": 3}
PATTERNS = {"literal": LITERAL, "prefixed": PREFIXED}
CLUSTER_NAME = "kafka-cluster"
EVERYWHERE = "*"


class User(NamedTuple):
    name: str
    mechanisms: tuple[str, ...]


def allowing(resource: str, pattern: int, name: str, user: str, operation: str) -> Acl:
    """A rule that lets somebody do something, from wherever. Pure."""
    allow = PERMISSIONS["allow"]
    return Acl(RESOURCES[resource], pattern, name, f"User:{user}", EVERYWHERE, OPERATIONS[operation], allow)


class AclFilter(NamedTuple):
    """What is None or ANY fits everything."""

    resource: int = ANY
    pattern: int = ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY


class Quota(NamedTuple):
    """`entity` has names by kind (user, client-id); a name of None is the default."""

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


# Users ----------------------------------------------------------------------------------------------------------------


def users(cluster: Cluster, names: Iterable[str] | None = None) -> list[User]:
    asked = None if names is None else [UserName(name=name) for name in names]
    request = DescribeUserScramCredentialsRequest(users=asked)
    answer = cluster.controller().call(request, DescribeUserScramCredentialsResponse)
    check(answer.error_code, "the list of users", answer.error_message)
    found = []
    for one in answer.results:
        if one.error_code != ErrorCode.RESOURCE_NOT_FOUND:
            check(one.error_code, f"user {one.user!r}", one.error_message)
            kinds = (MECHANISM_TYPES.get(info.mechanism, str(info.mechanism)) for info in one.credential_infos)
            found.append(User(one.user, tuple(kinds)))
    return found


def set_password(cluster: Cluster, name: str, password: str, mechanisms: Iterable[str]) -> None:
    """Makes the user if there is none. The password does not leave this process; what it is salted to does."""
    for mechanism in mechanisms:
        salt = os.urandom(SALT_BYTES)
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=TYPES[mechanism],
            iterations=MAX_ITERATIONS,
            salt=salt,
            salted_password=salted_password(mechanism, password, salt, MAX_ITERATIONS),
        )
        _alter_users(cluster, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


def delete_user(cluster: Cluster, user: User) -> None:
    for mechanism in user.mechanisms:
        deletion = ScramCredentialDeletion(name=user.name, mechanism=TYPES[mechanism])
        _alter_users(cluster, AlterUserScramCredentialsRequest(deletions=[deletion]))


def _alter_users(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    for result in cluster.controller().call(request, AlterUserScramCredentialsResponse).results:
        check(result.error_code, f"a change of user {result.user!r}", result.error_message)


# Rules ----------------------------------------------------------------------------------------------------------------


def acls(cluster: Cluster, wanted: AclFilter) -> list[Acl]:
    request = DescribeAclsRequest(**_filter_fields(wanted))
    answer = cluster.controller().call(request, DescribeAclsResponse)
    check(answer.error_code, "the list of access rules", answer.error_message)
    return [
        Acl(
            resource.resource_type,
            resource.pattern_type,
            resource.resource_name,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for resource in answer.resources
        for one in resource.acls
    ]


def create_acls(cluster: Cluster, wanted: Iterable[Acl]) -> None:
    creations = [
        AclCreation(
            resource_type=acl.resource,
            resource_name=acl.name,
            resource_pattern_type=acl.pattern,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in wanted
    ]
    answer = cluster.controller().call(CreateAclsRequest(creations=creations), CreateAclsResponse)
    for result in answer.results:
        check(result.error_code, "an access rule", result.error_message)


def delete_acls(cluster: Cluster, wanted: AclFilter) -> int:
    """How many there were."""
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter_fields(wanted))])
    (result,) = cluster.controller().call(request, DeleteAclsResponse).filter_results
    check(result.error_code, "the end of access rules", result.error_message)
    return len(result.matching_acls)


def _filter_fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource,
        "pattern_type_filter": wanted.pattern,
        "resource_name_filter": wanted.name,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


# Quotas ---------------------------------------------------------------------------------------------------------------


def quotas(cluster: Cluster) -> list[Quota]:
    answer = cluster.controller().call(DescribeClientQuotasRequest(), DescribeClientQuotasResponse)
    check(answer.error_code, "the list of quotas", answer.error_message)
    return [
        Quota(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


def alter_quotas(cluster: Cluster, entity: Mapping[str, str | None], values: Mapping[str, float | None]) -> None:
    """A value of None takes a quota back."""
    entry = RequestEntryData(
        entity=[RequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    answer = cluster.controller().call(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse)
    for result in answer.entries:
        check(result.error_code, "a change of quotas", result.error_message)
