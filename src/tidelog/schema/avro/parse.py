"""From text to a model: every rule of Avro's on names, fields, symbols, sizes and unions, checked.

Defaults are kept and not checked against their types: registries take them as they are, and a reader finds out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tidelog.errors import InvalidSchema
from tidelog.schema.avro.model import (
    MISSING,
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Model,
    Name,
    Named,
    Primitive,
    RecordType,
    Type,
    Union,
    kind_of,
)
from tidelog.schema.avro.text import write
from tidelog.schema.bounds import bounded, load_json
from tidelog.schema.schema import Schema

FORMAT = "AVRO"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # linear, and only of names
FIXED_SIZE_MAX = 2**31 - 1

# Members with a meaning of their own; all others are properties.
NAMED = {"type", "name", "namespace", "doc", "aliases"}
RESERVED = {
    "record": NAMED | {"fields"},
    "error": NAMED | {"fields"},
    "enum": NAMED | {"symbols", "default"},
    "fixed": NAMED | {"size"},
    "array": {"type", "items"},
    "map": {"type", "values"},
}
OF_FIELD = {"name", "type", "doc", "default", "order", "aliases"}
ORDERS = ("ascending", "descending", "ignore")


def parse(text: str, references: Mapping[str, str], *, normalize: bool = False) -> Schema:
    """`references` by name, in an order in which each comes after those that it refers to."""
    with bounded():
        parser = _Parser()
        for reference in references.values():
            parser.parse(load_json(reference), "")
        outside = frozenset(parser.names)
        root = parser.parse(load_json(text), "")
        model = Model(root, outside)
        return Schema(FORMAT, write(root, outside, sort=normalize), write(root, frozenset(), sort=True), model)


class _Parser:
    def __init__(self) -> None:
        self.names: dict[str, Named] = {}

    def parse(self, value: Any, space: str) -> Type:
        if isinstance(value, str):
            return Primitive(value) if value in PRIMITIVES else self._known(value, space)
        if isinstance(value, list):
            return self._union(value, space)
        if isinstance(value, dict):
            return self._object(value, space)
        raise InvalidSchema(f"{_shown(value)} is not an Avro type; write a name, an object or an array of types")

    def _object(self, value: dict[str, Any], space: str) -> Type:
        kind = value.get("type")
        if not isinstance(kind, str):
            if kind is None:
                raise InvalidSchema(f"{_shown(value)} has no type; add one")
            return self.parse(kind, space)  # {"type": {...}}, as Avro's own parser takes it
        if kind in PRIMITIVES:
            return Primitive(kind, _properties(value, {"type"}))
        if kind == "array":
            return Array(self.parse(_need(value, "items"), space), _properties(value, RESERVED[kind]))
        if kind == "map":
            return Map(self.parse(_need(value, "values"), space), _properties(value, RESERVED[kind]))
        if kind in RESERVED:
            return self._named(kind, value, space)
        return self._known(kind, space)

    def _named(self, kind: str, value: dict[str, Any], space: str) -> Named:
        name = _name(_need(value, "name"), value.get("namespace"), space)
        if name.full in self.names:
            raise InvalidSchema(f"{name.full!r} is defined twice; refer to the first by its name")
        aliases = tuple(_name(alias, None, name.space) for alias in _strings(value.get("aliases", []), "aliases"))
        doc = value.get("doc") if isinstance(value.get("doc"), str) else None
        properties = _properties(value, RESERVED[kind])
        made: Named
        if kind == "enum":
            made = Enum(name, *_symbols(value, name), doc, aliases, properties)
        elif kind == "fixed":
            made = Fixed(name, _size(value, name), doc, aliases, properties)
        else:
            made = RecordType(kind, name, doc, aliases, properties)
        self.names[name.full] = made
        if isinstance(made, RecordType):
            self._fields(made, _need(value, "fields"))
        return made

    def _fields(self, record: RecordType, fields: Any) -> None:
        if not isinstance(fields, list):
            raise InvalidSchema(f"the fields of {record.name.full!r} are not an array; write [...]")
        seen = set()
        for value in fields:
            if not isinstance(value, dict):
                raise InvalidSchema(f"{_shown(value)} in {record.name.full!r} is not a field; write an object")
            made = self._field(value, record.name)
            if made.name in seen:
                raise InvalidSchema(f"{record.name.full!r} has two fields {made.name!r}; rename one")
            seen.add(made.name)
            record.fields.append(made)

    def _field(self, value: dict[str, Any], owner: Name) -> Field:
        name = _need(value, "name")
        _check_name(name)
        order = value.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in ORDERS:
            raise InvalidSchema(f"the order of {name!r} is {_shown(order)}; use {', '.join(ORDERS)}")
        aliases = _strings(value.get("aliases", []), f"aliases of {name!r}")
        doc = value.get("doc") if isinstance(value.get("doc"), str) else None
        default = value.get("default", MISSING)
        of_type = self.parse(_need(value, "type"), owner.space)
        return Field(name, of_type, doc, default, order.lower(), aliases, _properties(value, OF_FIELD))

    def _union(self, value: list[Any], space: str) -> Union:
        branches = tuple(self.parse(branch, space) for branch in value)
        seen = set()
        for branch in branches:
            if isinstance(branch, Union):
                raise InvalidSchema("a union stands directly in a union; write one")
            what = branch.name.full if isinstance(branch, RecordType | Enum | Fixed) else kind_of(branch)
            if what in seen:
                raise InvalidSchema(f"a union has {what!r} twice; leave one out")
            seen.add(what)
        return Union(branches)

    def _known(self, text: str, space: str) -> Named:
        full = f"{space}.{text}" if space and "." not in text else text
        found = self.names.get(full) or self.names.get(text)
        if found is None:
            raise InvalidSchema(
                f"the type {text[:200]!r} is not defined; define it before its first use, or refer to it"
            )
        return found


def _name(text: Any, namespace: Any, space: str) -> Name:
    if not isinstance(text, str):
        raise InvalidSchema(f"{_shown(text)} is not a name; write a string")
    if "." in text:
        namespace, _, text = text.rpartition(".")
    elif namespace is None:
        namespace = space
    if not isinstance(namespace, str):
        raise InvalidSchema(f"{_shown(namespace)} is not a namespace; write a string")
    _check_name(text)
    for part in namespace.split(".") if namespace else ():
        _check_name(part)
    if not namespace and text in PRIMITIVES:
        raise InvalidSchema(f"{text!r} is a type of Avro's own; choose another name")
    return Name(namespace, text)


def _check_name(text: Any) -> None:
    if not isinstance(text, str) or not NAME.fullmatch(text):
        raise InvalidSchema(f"{_shown(text)} is not a name; use letters, digits and _, and do not begin with a digit")


def _symbols(value: dict[str, Any], name: Name) -> tuple[tuple[str, ...], str | None]:
    symbols = _strings(_need(value, "symbols"), f"symbols of {name.full!r}")
    for symbol in symbols:
        _check_name(symbol)
    if len(set(symbols)) < len(symbols):
        raise InvalidSchema(f"the enum {name.full!r} has a symbol twice; leave one out")
    default = value.get("default")
    if default is not None and default not in symbols:
        raise InvalidSchema(
            f"the default {_shown(default)} of enum {name.full!r} is not one of its symbols; use one of them"
        )
    return symbols, default


def _size(value: dict[str, Any], name: Name) -> int:
    size = _need(value, "size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= FIXED_SIZE_MAX:
        raise InvalidSchema(
            f"the size {_shown(size)} of {name.full!r} is not a number of bytes; use 0 to {FIXED_SIZE_MAX}"
        )
    return size


def _strings(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InvalidSchema(f"the {what} are not an array of strings; write one")
    return tuple(value)


def _need(value: dict[str, Any], member: str) -> Any:
    if member not in value:
        raise InvalidSchema(f"{_shown(value)} has no {member!r}; add it")
    return value[member]


def _properties(value: dict[str, Any], reserved: set[str]) -> dict[str, Any]:
    return {name: one for name, one in value.items() if name not in reserved}


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
