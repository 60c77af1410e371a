"""The canonical text of an Avro schema: JSON without spaces, members in the order of Avro's Java library.

A name is written out where it first stands and by name from then on; as short as the namespace around it allows. What
comes from references is always written by name. So a schema that a registry in Java kept has the same text here.
"""

from __future__ import annotations

from json import dumps
from typing import Any

from tidelog.schema.avro.model import (
    MISSING,
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Name,
    Named,
    Primitive,
    Properties,
    RecordType,
    Type,
    Union,
)


def write(root: Type, outside: frozenset[str], *, sort: bool) -> str:
    """`sort` puts properties in order too, so that their order makes no other schema."""
    return dumps(_Writer(outside, sort).value(root, ""), separators=(",", ":"), ensure_ascii=False)


class _Writer:
    def __init__(self, outside: frozenset[str], sort: bool) -> None:
        self._written = set(outside)
        self._sort = sort

    def value(self, one: Type, space: str) -> Any:
        if isinstance(one, Primitive):
            return {"type": one.kind, **self._properties(one.properties)} if one.properties else one.kind
        if isinstance(one, Array):
            return {"type": "array", "items": self.value(one.items, space), **self._properties(one.properties)}
        if isinstance(one, Map):
            return {"type": "map", "values": self.value(one.values, space), **self._properties(one.properties)}
        if isinstance(one, Union):
            return [self.value(branch, space) for branch in one.branches]
        if one.name.full in self._written:
            return _short(one.name, space)
        self._written.add(one.name.full)
        return self._named(one, space)

    def _named(self, one: Named, space: str) -> dict[str, Any]:
        made: dict[str, Any] = {"type": one.kind if isinstance(one, RecordType) else type(one).__name__.lower()}
        made["name"] = one.name.simple
        if one.name.space != space:
            made["namespace"] = one.name.space
        if one.doc is not None:
            made["doc"] = one.doc
        if isinstance(one, RecordType):
            made["fields"] = [self._field(field, one.name.space) for field in one.fields]
        elif isinstance(one, Enum):
            made["symbols"] = list(one.symbols)
            if one.default is not None:
                made["default"] = one.default
        elif isinstance(one, Fixed):
            made["size"] = one.size
        made |= self._properties(one.properties)
        if one.aliases:
            made["aliases"] = [_short(alias, one.name.space) for alias in one.aliases]
        return made

    def _field(self, field: Field, space: str) -> dict[str, Any]:
        made: dict[str, Any] = {"name": field.name, "type": self.value(field.type, space)}
        if field.doc is not None:
            made["doc"] = field.doc
        if field.default is not MISSING:
            made["default"] = field.default
        if field.order != "ascending":
            made["order"] = field.order
        if field.aliases:
            made["aliases"] = list(field.aliases)
        return made | self._properties(field.properties)

    def _properties(self, properties: Properties) -> dict[str, Any]:
        return dict(sorted(properties.items())) if self._sort else dict(properties)


def _short(name: Name, space: str) -> str:
    return name.simple if name.space == space and name.simple not in PRIMITIVES else name.full
