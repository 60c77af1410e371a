"""Access rules: which there are, which fit, and what they say. The rules of Kafka's StandardAuthorizer.

A principal may do an operation on a resource when it is one of `super.users`, or when a rule that fits allows it and
none that fits denies it. Where no rule is about the resource at all, `allow.everyone.if.no.acl.found` decides.

    a rule fits     its resource   by name, by prefix, or "*" (every resource of its type)
                    its principal  the same, or User:*
                    its host       the same address, or *; whose address nobody knows (`UNKNOWN_HOST`) is denied what
                                   any address is denied, and allowed what all are
                    its operation  the same, or ALL; one that allows READ, WRITE, DELETE or ALTER allows DESCRIBE too,
                                   and one that allows ALTER_CONFIGS allows DESCRIBE_CONFIGS
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from tidelog.wire.acl import Acl

ANY = 1

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = 2, 3, 4, 5, 6, 7
RESOURCES = {
    "topic": TOPIC,
    "group": GROUP,
    "cluster": CLUSTER,
    "transactional-id": TRANSACTIONAL_ID,
    "delegation-token": DELEGATION_TOKEN,
    "user": USER,
}
CLUSTER_NAME = "kafka-cluster"

MATCH, LITERAL, PREFIXED = 2, 3, 4

ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
CREATE_TOKENS, DESCRIBE_TOKENS, TWO_PHASE_COMMIT = 13, 14, 15
OPERATIONS = {
    "all": ALL,
    "read": READ,
    "write": WRITE,
    "create": CREATE,
    "delete": DELETE,
    "alter": ALTER,
    "describe": DESCRIBE,
    "cluster-action": CLUSTER_ACTION,
    "describe-configs": DESCRIBE_CONFIGS,
    "alter-configs": ALTER_CONFIGS,
    "idempotent-write": IDEMPOTENT_WRITE,
    "create-tokens": CREATE_TOKENS,
    "describe-tokens": DESCRIBE_TOKENS,
    "two-phase-commit": TWO_PHASE_COMMIT,
}
DENY, ALLOW = 2, 3

WILDCARD = "*"
EVERYBODY = "User:*"
IMPLIED_BY = {
    DESCRIBE: frozenset({DESCRIBE, READ, WRITE, DELETE, ALTER}),
    DESCRIBE_CONFIGS: frozenset({DESCRIBE_CONFIGS, ALTER_CONFIGS}),
}

# Which operations a resource has, for "what may I do?" (KIP-430).
OPERATIONS_OF = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE),
}


class AclFilter(NamedTuple):
    """None and ANY fit everything; a pattern of MATCH fits the rules that would count for this name."""

    resource: int
    pattern: int
    name: str | None
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def exactly(self) -> Acl | None:
        """The one rule that it can fit, if it leaves nothing open."""
        if self.name is None or self.principal is None or self.host is None or self.pattern in (ANY, MATCH):
            return None
        if ANY in (self.resource, self.operation, self.permission):
            return None
        return Acl(self.resource, self.pattern, self.name, self.principal, self.host, self.operation, self.permission)

    def takes(self, acl: Acl) -> bool:
        return (
            self.resource in (ANY, acl.resource)
            and self._takes_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )

    def _takes_name(self, acl: Acl) -> bool:
        if self.pattern not in (ANY, MATCH, acl.pattern):
            return False
        if self.name is None or (self.pattern != MATCH and self.name == acl.name):
            return True
        return self.pattern == MATCH and covers(acl, self.name)


UNKNOWN_HOST = ""


class Asker(NamedTuple):
    principal: str
    host: str


def covers(acl: Acl, name: str) -> bool:
    """Whether a rule is about the resource of this name."""
    if acl.pattern == PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, WILDCARD)


class Index:
    """Rules by what they are about: to find those of one name does not take longer the more rules there are."""

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._found: dict[tuple[int, int, str], list[Acl]] = {}
        lengths: dict[int, set[int]] = {}
        for acl in acls:
            self._found.setdefault((acl.resource, acl.pattern, acl.name), []).append(acl)
            if acl.pattern == PREFIXED:
                lengths.setdefault(acl.resource, set()).add(len(acl.name))
        self._lengths = {resource: sorted(found) for resource, found in lengths.items()}

    def about(self, resource: int, name: str) -> list[Acl]:
        places = {(resource, LITERAL, name), (resource, LITERAL, WILDCARD)}
        places |= {(resource, PREFIXED, name[:size]) for size in self._lengths.get(resource, ()) if size <= len(name)}
        return [acl for place in places for acl in self._found.get(place, ())]


def _concerns(acl: Acl, asker: Asker, operation: int) -> bool:
    if acl.principal not in (asker.principal, EVERYBODY):
        return False
    if acl.host not in (asker.host, WILDCARD) and not (asker.host == UNKNOWN_HOST and acl.permission == DENY):
        return False
    if acl.operation in (operation, ALL):
        return True
    return acl.permission == ALLOW and acl.operation in IMPLIED_BY.get(operation, ())


def allows(acls: Iterable[Acl], asker: Asker, operation: int, resource: int, name: str, *, if_none: bool) -> bool:
    """What the rules say; `if_none` where none is about the resource."""
    about = [acl for acl in acls if acl.resource == resource and covers(acl, name)]
    if not about:
        return if_none
    fitting = {acl.permission for acl in about if _concerns(acl, asker, operation)}
    return ALLOW in fitting and DENY not in fitting


def allows_some(acls: Collection[Acl], asker: Asker, operation: int, resource: int, *, if_none: bool) -> bool:
    """Whether there could be a resource of this type on which the rules allow the operation."""
    concerned = [acl for acl in acls if acl.resource == resource and _concerns(acl, asker, operation)]
    denied = [acl for acl in concerned if acl.permission == DENY]
    if any(acl.name == WILDCARD and acl.pattern == LITERAL for acl in denied):
        return False
    for acl in concerned:
        if acl.permission == ALLOW and not any(_shuts(one, acl) for one in denied):
            return True
    return if_none


def _shuts(deny: Acl, allow: Acl) -> bool:
    """Whether a rule that denies leaves nothing of one that allows."""
    if deny.pattern == PREFIXED:
        return allow.name.startswith(deny.name) and not (allow.pattern == LITERAL and allow.name == WILDCARD)
    return allow.pattern == LITERAL and allow.name == deny.name
