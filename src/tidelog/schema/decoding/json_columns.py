"""The columns of a JSON Schema. It is read for its types; what else it demands of a value is not checked.

    object with properties            struct, in the order in which they stand; other members are left out
    object with additionalProperties  map, where it has no properties
    array with one schema of items    list
    integer, number                   long, double
    string                            string; with format date or date-time: date, timestamp
    null beside another               the other, which may be null anyway
    allOf of objects                  one struct with the properties of all
    everything else                   the text of the value, which Spark's functions for JSON take

Only what contains itself is refused, by name: no column can.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidelog.errors import InvalidSchema
from tidelog.schema.decoding.column import Column, map_of
from tidelog.schema.json_schema.shape import Model, Shape, Subschema

PLAIN = {"integer": "long", "number": "double", "boolean": "boolean", "string": "string"}
FORMATS = {"date": "date", "date-time": "timestamp"}


def json_column(model: Model, name: str) -> Column:
    return _Walk(model).column(model.root, name, ())


class _Walk:
    def __init__(self, model: Model) -> None:
        self._model = model

    def column(self, place: Subschema | Shape, name: str, inside: tuple[int, ...]) -> Column:
        shape = self._model.shape(place)
        if shape.combined:
            return self._combined(shape, name, inside)
        if shape.kind == "object":
            return self._object(shape, name, inside)
        if shape.kind == "array":
            return self._array(shape, name, inside)
        if shape.kind == "enum":
            return self._listed(shape.value["enum"], name)
        if shape.kind == "const":
            return self._listed([shape.value["const"]], name)
        if shape.kind == "string":
            return Column(name, FORMATS.get(str(shape.value.get("format")), "string"))
        return Column(name, PLAIN.get(shape.kind, "json"))

    def _listed(self, values: list[Any], name: str) -> Column:
        """An enum has the type that its values have, if it is one."""
        kinds = {_kind(value) for value in values if value is not None}
        return Column(name, kinds.pop() if len(kinds) == 1 else "json")

    def _combined(self, shape: Shape, name: str, inside: tuple[int, ...]) -> Column:
        parts = [self._model.shape(part) for part in shape.parts]
        if shape.kind != "allOf":
            parts = [part for part in parts if not _is_null(part)]
            return self.column(parts[0], name, inside) if len(parts) == 1 else Column(name, "json")
        if any(part.kind == "enum" for part in parts):
            return self.column(next(part for part in parts if part.kind == "enum"), name, inside)
        known = [part for part in parts if part.kind not in ("empty", "not", "conditional")]
        if len(known) == 1:
            return self.column(known[0], name, inside)
        made = [self.column(part, name, inside) for part in known]
        if not made or any(column.kind != "struct" for column in made):
            return Column(name, "json")
        fields = {field.name: field for column in made for field in column.children}
        return Column(name, "struct", tuple(fields.values()))

    def _object(self, shape: Shape, name: str, inside: tuple[int, ...]) -> Column:
        inner = self._inner(shape, name, inside)
        properties, additional = shape.value.get("properties"), shape.value.get("additionalProperties")
        if properties:
            return Column(name, "struct", tuple(self._properties(shape, properties, inner)))
        if isinstance(additional, dict) and "patternProperties" not in shape.value:
            value = self.column(self._model.at(shape.place, additional), "value", inner)
            return map_of(name, Column("key", "string"), value)
        return Column(name, "json")

    def _properties(self, shape: Shape, properties: dict[str, Any], inner: tuple[int, ...]) -> Iterator[Column]:
        for name, value in properties.items():
            yield self.column(self._model.at(shape.place, value), name, inner)

    def _array(self, shape: Shape, name: str, inside: tuple[int, ...]) -> Column:
        items = shape.value.get("items")
        if not isinstance(items, dict) or "prefixItems" in shape.value:
            return Column(name, "json")
        element = self.column(self._model.at(shape.place, items), "element", self._inner(shape, name, inside))
        return Column(name, "list", (element,))

    def _inner(self, shape: Shape, name: str, inside: tuple[int, ...]) -> tuple[int, ...]:
        here = id(shape.place.value)
        if here in inside:
            raise InvalidSchema(f"the schema contains itself at {name!r}; a column cannot")
        return (*inside, here)


def _is_null(shape: Shape) -> bool:
    return shape.kind == "null" or (shape.kind in ("enum", "const") and _only_null(shape))


def _only_null(shape: Shape) -> bool:
    return all(value is None for value in shape.value.get("enum", [shape.value.get("const")]))


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    return {int: "long", float: "double"}.get(type(value), "json")
