"""What a row of `rules` is made of: checks that look at a request before its handler does.

    Whole(operation, resource)      one resource; without it the whole request is refused
    Each(operation, resource, ..)   a list of the request; what may not be done is taken out of the request, and comes
                                    back into the reply as refused
    EachName                        the same for a list of bare names
    Shown(operation, resource, ..)  a list of the reply; what may not be seen is left out of it
    Configs(operation, ..)          settings: of topics and groups they are theirs, of brokers the cluster's

A check returns the reply that refuses the request, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog.broker.access.acls import CLUSTER, CLUSTER_NAME, GROUP, TOPIC, TRANSACTIONAL_ID
from tidelog.broker.access.refusing import mirrored, named, refused
from tidelog.broker.topics import GROUP_RESOURCE, NO_ID, TOPIC_RESOURCE
from tidelog.wire.api import response_class
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.message import struct_named

if TYPE_CHECKING:
    from tidelog.broker.access.session import GuardedCall

CODES = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

# May this client do this operation on the resource of this type and name?
Ask = Callable[[int, int, str], bool]
Check = Callable[[Ask, Any, "GuardedCall"], Any]


@dataclass(frozen=True, slots=True)
class Whole:
    """`attribute` of the request has the resource's name; without one it is the cluster. No name, no question."""

    operation: int
    resource: int
    attribute: str = ""

    def __call__(self, ask: Ask, request: Any, call: GuardedCall) -> Any:
        name = getattr(request, self.attribute) if self.attribute else CLUSTER_NAME
        if name is None or ask(self.operation, self.resource, name):
            return None
        return refused(call.api_key, call.version, request, CODES[self.resource])


@dataclass(frozen=True, slots=True)
class Each:
    """`items` of the request, each with a `name` (and perhaps a topic id), become `results` of the reply."""

    operation: int
    resource: int
    items: str
    name: str
    results: str

    def __call__(self, ask: Ask, request: Any, call: GuardedCall) -> Any:
        allowed, denied = split(getattr(request, self.items), lambda one: self._may(ask, one, call))
        if denied:
            setattr(request, self.items, allowed)
            refuse_some(call, self.results, denied, CODES[self.resource])
        return None

    def _may(self, ask: Ask, one: Any, call: GuardedCall) -> bool:
        name = getattr(one, self.name) if self.name else None  # of a topic that only its id names
        if getattr(one, "topic_id", NO_ID) != NO_ID:
            name = call.broker.topics.name_of(name, one.topic_id)
            if name is None:
                return True  # there is none, and the handler says so
        return ask(self.operation, self.resource, name or "")


@dataclass(frozen=True, slots=True)
class EachName:
    """The same for a list of bare names."""

    operation: int
    resource: int
    items: str
    results: str
    name: str

    def __call__(self, ask: Ask, request: Any, call: GuardedCall) -> Any:
        allowed, denied = split(getattr(request, self.items), lambda one: ask(self.operation, self.resource, one))
        if denied:
            setattr(request, self.items, allowed)
            made = element(call.api_key, self.results)
            results = [named(made, self.name, one, CODES[self.resource]) for one in denied]
            call.amend(lambda response: getattr(response, self.results).extend(results), once=True)
        return None


@dataclass(frozen=True, slots=True)
class Shown:
    """`items` of the reply, by `name`; who may `unless` on the cluster sees all of them."""

    operation: int
    resource: int
    items: str
    name: str
    unless: int | None = None

    def __call__(self, ask: Ask, request: Any, call: GuardedCall) -> Any:
        if self.unless is not None and ask(self.unless, CLUSTER, CLUSTER_NAME):
            return None

        def hide(response: Any) -> None:
            found = getattr(response, self.items)
            setattr(
                response,
                self.items,
                [one for one in found if ask(self.operation, self.resource, getattr(one, self.name))],
            )

        call.amend(hide)
        return None


def split(asked: list[Any], may: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    allowed: list[Any] = []
    denied: list[Any] = []
    for one in asked:
        (allowed if may(one) else denied).append(one)
    return allowed, denied


def refuse_some(call: GuardedCall, results: str, denied: list[Any], code: int) -> None:
    made = element(call.api_key, results)
    refused_ones = [mirrored(made, one, code, call.version) for one in denied]
    call.refused = True
    call.amend(lambda response: getattr(response, results).extend(refused_ones), once=True)


def element(api_key: int, results: str) -> Any:
    made = response_class(api_key)
    field = next(field for field in made.SCHEMA.fields if field.name == results)
    return struct_named(made, field.element)


@dataclass(frozen=True, slots=True)
class Configs:
    """Settings of topics and groups are theirs, those of brokers the cluster's."""

    operation: int
    results: str

    def __call__(self, ask: Ask, request: Any, call: GuardedCall) -> Any:
        request.resources, denied = split(request.resources, lambda one: ask(self.operation, *_configured(one)))
        for one in denied:
            refuse_some(call, self.results, [one], CODES[_configured(one)[0]])
        return None


def _configured(resource: Any) -> tuple[int, str]:
    if resource.resource_type == TOPIC_RESOURCE:
        return TOPIC, resource.resource_name
    if resource.resource_type == GROUP_RESOURCE:
        return GROUP, resource.resource_name
    return CLUSTER, CLUSTER_NAME
