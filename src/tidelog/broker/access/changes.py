"""Changing users, access rules and quotas: what is asked for, what is wrong with it, which records do it. Pure.

A request is decided thing by thing, as in Kafka: what is refused does not stop the others, and what is asked for twice
in one request is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.broker.access import acls as rules
from tidelog.broker.access.acls import AclFilter
from tidelog.broker.access.entities import CLIENT, USER, Entity
from tidelog.broker.access.state import AccessState, acl_record, quota_record, user_record
from tidelog.broker.decision import NewRecord
from tidelog.broker.topic_changes import RequestFault
from tidelog.wire.acl import Acl
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.scram import HASHES, MAX_ITERATIONS, MECHANISM_TYPES, MIN_ITERATIONS, credential

USER_NAME_LENGTH_MAX = 255
SALT_BYTES_MAX = 1024
TWICE = "a user's credential is in the request more than once; name it once"

PRODUCER_BYTES, CONSUMER_BYTES, REQUEST_PERCENTAGE = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
QUOTA_KEYS = (PRODUCER_BYTES, CONSUMER_BYTES, REQUEST_PERCENTAGE)
INSTEAD_OF = {
    "ip": "max.connections.per.ip of the broker bounds how many connections an address has",
    "connection_creation_rate": "max.connections.per.ip of the broker bounds how many connections an address has",
    "controller_mutation_rate": "request_percentage bounds what a client's requests cost, and tidelog.max.partitions of"
    " the broker how many partitions there are",
}
"""What does something like the quotas of Kafka's that are not kept here."""
BYTE_RATES = (PRODUCER_BYTES, CONSUMER_BYTES)
LARGEST_RATE = 2.0**63


class Upsertion(NamedTuple):
    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"Upsertion({self.user!r}, {self.mechanism})"


class Deletion(NamedTuple):
    user: str
    mechanism: int


class UserOutcome(NamedTuple):
    user: str
    fault: RequestFault | None


class DecidedUsers(NamedTuple):
    records: list[NewRecord]
    outcomes: list[UserOutcome]


def decide_users(state: AccessState, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]) -> DecidedUsers:
    asked: list[Deletion | Upsertion] = [*deletions, *upsertions]
    times = Counter(one.user for one in asked)
    faults: dict[str, RequestFault | None] = {}
    records = []
    for one in asked:
        if times[one.user] > 1:
            faults[one.user] = RequestFault(ErrorCode.DUPLICATE_RESOURCE, TWICE)
            continue
        fault = _fault_of_user(one.user, one.mechanism)
        if fault is None:
            fault = _fault_of_upsertion(one) if isinstance(one, Upsertion) else _fault_of_deletion(state, one)
        faults[one.user] = fault
        if fault is None:
            records.append(_user_record(one))
    return DecidedUsers(records, [UserOutcome(user, fault) for user, fault in faults.items()])


def _user_record(one: Upsertion | Deletion) -> NewRecord:
    mechanism = MECHANISM_TYPES[one.mechanism]
    if isinstance(one, Deletion):
        return user_record(one.user, mechanism, None)
    return user_record(
        one.user, mechanism, credential(mechanism, bytes(one.salted_password), bytes(one.salt), one.iterations)
    )


def _fault_of_user(user: str, mechanism: int) -> RequestFault | None:
    if not user or len(user) > USER_NAME_LENGTH_MAX:
        message = f"a user's name has 1 to {USER_NAME_LENGTH_MAX} characters"
        return RequestFault(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if mechanism not in MECHANISM_TYPES:
        message = f"SCRAM mechanism {mechanism} is not one of {', '.join(HASHES)}"
        return RequestFault(ErrorCode.UNSUPPORTED_SASL_MECHANISM, message)
    return None


def _fault_of_upsertion(one: Upsertion) -> RequestFault | None:
    if not MIN_ITERATIONS <= one.iterations <= MAX_ITERATIONS:
        message = f"{one.iterations} iterations; a credential has {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        return RequestFault(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if not one.salt or not one.salted_password or len(one.salt) > SALT_BYTES_MAX:
        return RequestFault(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a credential needs a salt and a salted password")
    return None


def _fault_of_deletion(state: AccessState, one: Deletion) -> RequestFault | None:
    if (one.user, MECHANISM_TYPES[one.mechanism]) in state.users:
        return None
    return RequestFault(
        ErrorCode.RESOURCE_NOT_FOUND, f"user {one.user} does not have a {MECHANISM_TYPES[one.mechanism]} credential"
    )


# Access rules ---------------------------------------------------------------------------------------------------------


class DecidedAcls(NamedTuple):
    records: list[NewRecord]
    faults: list[RequestFault | None]


def decide_create_acls(state: AccessState, creations: Iterable[Acl]) -> DecidedAcls:
    records, faults = {}, []
    for acl in creations:
        fault = fault_of_acl(acl)
        faults.append(fault)
        if fault is None and acl not in state.acls:
            records[acl] = acl_record(acl)
    return DecidedAcls(list(records.values()), faults)


def fault_of_acl(acl: Acl) -> RequestFault | None:
    wrong = None
    if acl.resource not in rules.RESOURCES.values():
        wrong = f"{acl.resource} is not a type of resources"
    elif acl.pattern not in (rules.LITERAL, rules.PREFIXED):
        wrong = f"pattern type {acl.pattern} is neither literal nor prefixed"
    elif acl.operation not in rules.OPERATIONS.values():
        wrong = f"{acl.operation} is not an operation"
    elif acl.permission not in (rules.DENY, rules.ALLOW):
        wrong = f"permission {acl.permission} is neither deny nor allow"
    elif not acl.name:
        wrong = "the resource has no name"
    elif acl.resource == rules.CLUSTER and acl.name != rules.CLUSTER_NAME:
        wrong = f"the only cluster is {rules.CLUSTER_NAME}"
    elif acl.principal.partition(":")[0] != "User" or not acl.principal.partition(":")[2]:
        wrong = f"{acl.principal!r} is not a principal; write User:NAME"
    elif not acl.host:
        wrong = "the host is empty; write an address, or * for all"
    return None if wrong is None else RequestFault(ErrorCode.INVALID_REQUEST, wrong)


def decide_delete_acls(state: AccessState, filters: Iterable[AclFilter]) -> tuple[list[NewRecord], list[list[Acl]]]:
    """The records, and which rules each filter takes."""
    taken = [_taken(state, one) for one in filters]
    gone = {acl: None for found in taken for acl in found}
    return [acl_record(acl, gone=True) for acl in gone], taken


def _taken(state: AccessState, one: AclFilter) -> list[Acl]:
    """A filter that names all of a rule is looked up: a request may have thousands, and so may a broker have rules."""
    whole = one.exactly()
    if whole is not None:
        return [whole] if whole in state.acls else []
    return [acl for acl in state.acls if one.takes(acl)]


def fault_of_filter(one: AclFilter) -> RequestFault | None:
    if one.resource <= 0 or one.pattern <= 0 or one.operation <= 0 or one.permission <= 0:
        return RequestFault(
            ErrorCode.INVALID_REQUEST, "the filter has a type, pattern, operation or permission that is unknown"
        )
    return None


# Quotas ---------------------------------------------------------------------------------------------------------------


class QuotaAlteration(NamedTuple):
    """`values` of None are taken back."""

    entity: Sequence[tuple[str, str | None]]
    values: Sequence[tuple[str, float | None]]


def decide_quotas(
    state: AccessState, alterations: Iterable[QuotaAlteration]
) -> tuple[list[NewRecord], list[RequestFault | None]]:
    records, faults = [], []
    for one in alterations:
        fault = _fault_of_entity(one.entity) or _fault_of_values(one.values)
        faults.append(fault)
        if fault is None:
            records += _quota_records(state, one)
    return records, faults


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    return Entity(tuple(sorted(parts, key=lambda part: part[0] != USER)))


def _quota_records(state: AccessState, one: QuotaAlteration) -> list[NewRecord]:
    entity = entity_of(one.entity)
    before = state.quotas.get(entity, {})
    after: Mapping[str, float] = {
        key: value for key, value in {**before, **dict(one.values)}.items() if value is not None
    }
    return [] if after == before else [quota_record(entity, after)]


def _fault_of_entity(parts: Sequence[tuple[str, str | None]]) -> RequestFault | None:
    kinds = [kind for kind, _ in parts]
    if not kinds or len(set(kinds)) < len(kinds):
        return RequestFault(ErrorCode.INVALID_REQUEST, "a quota is for a user, a client id or both, each named once")
    for kind, name in parts:
        if kind not in (USER, CLIENT):
            instead = f"; {INSTEAD_OF[kind]}" if kind in INSTEAD_OF else ""
            return RequestFault(
                ErrorCode.INVALID_REQUEST,
                f"quotas for {kind} are not kept here, only for {USER} and {CLIENT}{instead}",
            )
        if name == "":
            return RequestFault(ErrorCode.INVALID_REQUEST, f"the name of a {kind} is empty; null is the default")
    return None


def _fault_of_values(values: Sequence[tuple[str, float | None]]) -> RequestFault | None:
    for key, value in values:
        if key not in QUOTA_KEYS:
            message = f"{key} is not a quota that is kept here, only {', '.join(QUOTA_KEYS)} are"
            message += f"; {INSTEAD_OF[key]}" if key in INSTEAD_OF else ""
            return RequestFault(ErrorCode.INVALID_REQUEST, message)
        if value is not None and not 0 < value < LARGEST_RATE:
            return RequestFault(ErrorCode.INVALID_REQUEST, f"{key}={value:g} is refused; it must be above 0")
        if value is not None and key in BYTE_RATES and value != int(value):
            return RequestFault(
                ErrorCode.INVALID_REQUEST, f"{key}={value:g} is refused; it is a whole number of bytes a second"
            )
    return None
