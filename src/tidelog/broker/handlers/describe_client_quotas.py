"""DescribeClientQuotas: the quotas of users and client ids that a filter takes.

v0    the first        v1    flexible

A component of the filter takes an entity that has a part of its kind: by this name (0), the default (1), or any (2).
With `strict` the entity has no other parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.broker.access.entities import CLIENT, USER, Entity
from tidelog.broker.decision import Decision
from tidelog.broker.topics import ACCESS_TOPIC
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

BY_NAME, BY_DEFAULT, ANY_NAME = 0, 1, 2
IP = "ip"


def handle(broker: Broker, request: DescribeClientQuotasRequest, call: Call) -> DescribeClientQuotasResponse | None:
    wrong = _fault(request)
    if wrong is not None:
        return DescribeClientQuotasResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=wrong, entries=None)
    entries = [
        _entry(entity, values) for entity, values in broker.access.state.quotas.items() if _takes(request, entity)
    ]
    response = DescribeClientQuotasResponse(error_message=None, entries=entries)
    broker.commit(ACCESS_TOPIC.name, Decision([], [(call.ticket, response)]))
    return None


def _fault(request: DescribeClientQuotasRequest) -> str | None:
    kinds = [one.entity_type for one in request.components]
    unknown = [kind for kind in kinds if kind not in (USER, CLIENT, IP)]
    if unknown:
        return f"quotas by {', '.join(unknown)} are not supported; use {USER} or {CLIENT}"
    if len(set(kinds)) < len(kinds):
        return "a kind of entity is in the filter more than once; name it once"
    if any(one.match_type not in (BY_NAME, BY_DEFAULT, ANY_NAME) for one in request.components):
        return "a component matches by a name, by the default, or by any"
    return None


def _takes(request: DescribeClientQuotasRequest, entity: Entity) -> bool:
    parts = dict(entity.parts)
    if request.strict and len(parts) != len(request.components):
        return False
    return all(one.entity_type in parts and _fits(one, parts[one.entity_type]) for one in request.components)


def _fits(component: ComponentData, name: str | None) -> bool:
    if component.match_type == BY_NAME:
        return name == component.match
    return component.match_type == ANY_NAME or name is None


def _entry(entity: Entity, values: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
        values=[ValueData(key=key, value=float(value)) for key, value in values.items()],
    )
