"""Whom a quota is for: a user, a client id, or a user's client id; each by name or the default (Kafka's entities).

Of several that fit a client, one counts, the most particular; in this order, as in Kafka:

    user and client    by name and name, by name and default
    user               by name
    user and client    default and name, default and default
    user               default
    client             by name, default

Everybody whom one entity counts for by name shares its quota; a default gives each name a quota of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

USER, CLIENT = "user", "client-id"
DEFAULT = None

Parts = tuple[tuple[str, str | None], ...]


class Entity(NamedTuple):
    """`parts` are (kind, name), user first; a name of None is the default."""

    parts: Parts

    def shown(self) -> str:
        return ", ".join(f"{kind} {'(default)' if name is DEFAULT else name}" for kind, name in self.parts)


# Which parts to look for, in order, and whether each is looked for by name.
_BY_NAME, _BY_DEFAULT = True, False
PRECEDENCE: tuple[tuple[tuple[str, bool], ...], ...] = (
    ((USER, _BY_NAME), (CLIENT, _BY_NAME)),
    ((USER, _BY_NAME), (CLIENT, _BY_DEFAULT)),
    ((USER, _BY_NAME),),
    ((USER, _BY_DEFAULT), (CLIENT, _BY_NAME)),
    ((USER, _BY_DEFAULT), (CLIENT, _BY_DEFAULT)),
    ((USER, _BY_DEFAULT),),
    ((CLIENT, _BY_NAME),),
    ((CLIENT, _BY_DEFAULT),),
)


class Applying(NamedTuple):
    """The quota that counts, and who shares it."""

    limit: float
    sharers: Parts


def candidates(user: str, client: str) -> Iterator[tuple[Entity, Parts]]:
    names = {USER: user, CLIENT: client}
    for row in PRECEDENCE:
        entity = Entity(tuple((kind, names[kind] if by_name else DEFAULT) for kind, by_name in row))
        yield entity, tuple((kind, names[kind]) for kind, _ in row)


def applying(quotas: Mapping[Entity, Mapping[str, float]], key: str, user: str, client: str) -> Applying | None:
    for entity, sharers in candidates(user, client):
        limit = quotas.get(entity, {}).get(key)
        if limit is not None:
            return Applying(limit, sharers)
    return None
