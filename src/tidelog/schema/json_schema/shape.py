"""What a JSON value means as a schema: one kind of constraint, or a combination of several.

Registries compare JSON Schemas kind by kind, so a schema that says several things is taken apart first:

    {"type": "string", "enum": [...]}        allOf [enum, string]
    {"type": ["string", "null"]}             anyOf [string, null]
    {"minLength": 1}                         string, though other types are let through
    {"$ref": ...}                            what it points to; from draft 2019-09 on, together with what stands beside
    {} and true                              empty; false is false

Shapes are made when they are asked for, since schemas may refer to themselves, and kept, one for each place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from json import dumps
from typing import Any, NamedTuple

from referencing import Resource
from referencing.jsonschema import DRAFT7, specification_with

from tidelog.errors import InvalidSchema

REFERENCES_IN_A_ROW = 64

ENUM, CONST, NOT, CONDITIONAL, EMPTY, FALSE = "enum", "const", "not", "conditional", "empty", "false"
COMBINED = ("allOf", "anyOf", "oneOf")

KEYWORDS = {
    "array": {
        *("items", "additionalItems", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
        *("minContains", "maxContains", "unevaluatedItems"),
    },
    "object": {
        *("properties", "required", "minProperties", "maxProperties", "dependencies", "patternProperties"),
        *("additionalProperties", "propertyNames", "dependentRequired", "dependentSchemas", "unevaluatedProperties"),
    },
    "number": {"minimum", "maximum", "minimumExclusive", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "string": {"minLength", "maxLength", "pattern", "format"},
}
FAMILY = {"integer": "number"}
CONDITIONALS = {"if", "then", "else"}
MEANT = {*COMBINED, *CONDITIONALS, ENUM, CONST, NOT, "type", *(one for some in KEYWORDS.values() for one in some)}

# Where further schemas stand: as they are, in an array, or in an object by name.
ONE = (
    *("not", "if", "then", "else", "items", "additionalItems", "contains", "additionalProperties", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
MANY = (*COMBINED, "prefixItems", "items")
NAMED = ("properties", "patternProperties", "dependencies", "dependentSchemas", "definitions", "$defs")


class Subschema(NamedTuple):
    """A schema within its document: `resolver` knows what `$ref` means there."""

    value: Any
    resolver: Any


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    kind: str
    place: Subschema
    parts: tuple[Shape | Subschema, ...] = ()  # of a combination

    @property
    def value(self) -> Mapping[str, Any]:
        return self.place.value if isinstance(self.place.value, dict) else {}

    @property
    def combined(self) -> bool:
        return self.kind in COMBINED


class Model:
    def __init__(self, root: Subschema) -> None:
        self.root = root
        self._shapes: dict[int, Shape] = {}
        self._distinct: dict[int, list[Subschema | Shape]] = {}
        self._values: dict[int, frozenset[str]] = {}

    def shape(self, one: Subschema | Shape) -> Shape:
        if isinstance(one, Shape):
            return one
        found = self._shapes.get(id(one.value))
        if found is None:
            found = self._shapes[id(one.value)] = self._make(one)
        return found

    def at(self, parent: Subschema, value: Any) -> Subschema:
        """The place of a schema that stands inside another."""
        if isinstance(value, dict) and isinstance(value.get("$id", value.get("id")), str):
            return Subschema(value, parent.resolver.in_subresource(resource(value)))
        return Subschema(value, parent.resolver)

    def distinct(self, shape: Shape) -> list[Subschema | Shape]:
        """The parts of a combination, those that say the same once."""
        found = self._distinct.get(id(shape))
        if found is None:
            shapes = ((self.shape(part), part) for part in shape.parts)
            by_text = {f"{one.kind} {dumps(one.place.value, sort_keys=True)}": part for one, part in shapes}
            found = self._distinct[id(shape)] = list(by_text.values())
        return found

    def values(self, shape: Shape) -> frozenset[str]:
        """What an enum or a const allows, as text: in JSON 1 and true are two."""
        found = self._values.get(id(shape))
        if found is None:
            listed = shape.value[ENUM] if shape.kind == ENUM else [shape.value[CONST]]
            found = self._values[id(shape)] = frozenset(_text(one) for one in listed)
        return found

    def inner(self, place: Subschema) -> list[Subschema]:
        """All schemas that stand in this one, and the one that it refers to."""
        if not isinstance(place.value, dict):
            return []
        found = [self.at(place, value) for value in _inner(place.value)]
        if isinstance(place.value.get("$ref"), str):
            found.append(self._follow(place))
        return found

    def _follow(self, place: Subschema) -> Subschema:
        resolved = place.resolver.lookup(place.value["$ref"])
        return Subschema(resolved.contents, resolved.resolver)

    def _make(self, place: Subschema) -> Shape:
        for _ in range(REFERENCES_IN_A_ROW):
            value = place.value
            if not (isinstance(value, dict) and isinstance(value.get("$ref"), str)):
                return self._apart(place)
            target = self._follow(place)
            beside = {key: one for key, one in value.items() if key in MEANT} if self._beside_counts(place) else {}
            if beside:
                return Shape("allOf", place, (target, Subschema(beside, place.resolver)))
            place = target
        raise InvalidSchema(f"{REFERENCES_IN_A_ROW} references follow one another, or go in a circle; break it")

    def _beside_counts(self, place: Subschema) -> bool:
        named = self.root.value.get("$schema") if isinstance(self.root.value, dict) else None
        return isinstance(named, str) and ("2019-09" in named or "2020-12" in named)

    def _apart(self, place: Subschema) -> Shape:
        value = place.value
        if value is False:
            return Shape(FALSE, place)
        if not isinstance(value, dict):
            return Shape(EMPTY, place)
        parts = list(_parts(place, value))
        if not parts:
            return Shape(EMPTY, place)
        return parts[0] if len(parts) == 1 else Shape("allOf", place, tuple(parts))


def resource(value: Any) -> Resource[Any]:
    """A document, or a part of one with a name of its own. One that does not say its draft is taken for draft 7."""
    name = value.get("$schema") if isinstance(value, dict) else None
    specification = specification_with(name.rstrip("#"), default=DRAFT7) if isinstance(name, str) else DRAFT7
    return specification.create_resource(value)


def _text(value: Any) -> str:
    """Numbers that are equal have one text."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return dumps(value, sort_keys=True)


def _parts(place: Subschema, value: Mapping[str, Any]) -> Iterator[Shape]:
    if ENUM in value:
        yield Shape(ENUM, place)
    for criterion in COMBINED:
        if criterion in value:
            yield Shape(criterion, place, tuple(Subschema(one, place.resolver) for one in value[criterion]))
    if NOT in value:
        yield Shape(NOT, place)
    if CONST in value:
        yield Shape(CONST, place)
    named = value.get("type")
    types = [named] if isinstance(named, str) else list(named or ())
    if isinstance(named, str):
        yield Shape(named, place)
    elif types:
        yield Shape("anyOf", place, tuple(Shape(one, place) for one in types))
    spoken_for = {FAMILY.get(one, one) for one in types}
    for family, keywords in KEYWORDS.items():
        if family not in spoken_for and keywords & value.keys():
            yield Shape(family, place)
    if CONDITIONALS & value.keys():
        yield Shape(CONDITIONAL, place)


def _inner(value: Mapping[str, Any]) -> Iterator[Any]:
    for keyword in ONE:
        if isinstance(value.get(keyword), dict):
            yield value[keyword]
    for keyword in MANY:
        if isinstance(value.get(keyword), list):
            yield from value[keyword]
    for keyword in NAMED:
        if isinstance(value.get(keyword), dict):
            yield from (one for one in value[keyword].values() if isinstance(one, dict))
