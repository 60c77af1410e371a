"""What an Avro schema is made of. A record refers to itself by being the same object, so equality is identity.

Properties are what Avro gives no meaning to and keeps (`logicalType` among them).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class Missing:
    """Stands for a default that is not there: null is one that is."""


MISSING: Final = Missing()

Properties: TypeAlias = Mapping[str, Any]


class Name(NamedTuple):
    space: str
    simple: str

    @property
    def full(self) -> str:
        return f"{self.space}.{self.simple}" if self.space else self.simple


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    kind: str
    properties: Properties = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    items: Type
    properties: Properties = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    values: Type
    properties: Properties = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    branches: tuple[Type, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    name: Name
    size: int
    doc: str | None
    aliases: tuple[Name, ...]
    properties: Properties


@dataclass(frozen=True, slots=True, eq=False)
class Enum:
    name: Name
    symbols: tuple[str, ...]
    default: str | None
    doc: str | None
    aliases: tuple[Name, ...]
    properties: Properties


class Field(NamedTuple):
    name: str
    type: Type
    doc: str | None
    default: Any
    order: str
    aliases: tuple[str, ...]
    properties: Properties


@dataclass(frozen=True, slots=True, eq=False)
class RecordType:
    """`fields` are put in after it is made: they may refer to it."""

    kind: str  # record, or error
    name: Name
    doc: str | None
    aliases: tuple[Name, ...]
    properties: Properties
    fields: list[Field] = field(default_factory=list)


Named: TypeAlias = RecordType | Enum | Fixed
Type: TypeAlias = Primitive | Array | Map | Union | RecordType | Enum | Fixed


def kind_of(one: Type) -> str:
    if isinstance(one, Primitive):
        return one.kind
    if isinstance(one, RecordType):
        return "record"
    return type(one).__name__.lower()


class Model(NamedTuple):
    root: Type
    outside: frozenset[str]  # full names that come from references
