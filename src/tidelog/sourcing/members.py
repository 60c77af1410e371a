"""Members of JSON that a type does not have: a misspelt field would be left out without a word. Pure, by JSON Schema.

Rules:
- A type is closed where its schema names its properties and says nothing of others: a dict, and a model that keeps what
  else it is given, have any member.
- Of a union, a member is known if any of its types has it.
- A pydantic model may take a field by its name, by any of its aliases, and by what a validator makes of the whole: its
  own members are asked of the model, and one with such a validator has any member.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

REF = "#/$defs/"

Schema = Mapping[str, Any]


class Unknown(NamedTuple):
    """`path` is as people write it: `address.streat`, `lines.0.sku`."""

    path: str
    known: list[str]


def unknown_member(cls: Any, schema: Schema, value: Any) -> Unknown | None:
    """The first one."""
    if not hasattr(cls, "model_validate_json"):
        return next(_unknown(schema, schema, value, ""), None)
    known = _model_members(cls)
    if known is None or not isinstance(value, dict):
        return None
    return next((Unknown(name, sorted(known)) for name in value if name not in known), None)


def _unknown(whole: Schema, schema: Schema, value: Any, path: str) -> Iterator[Unknown]:
    kinds = list(_kinds(whole, schema))
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from _unknown(whole, _any_of(_items(kinds, number)), one, f"{path}{number}.")
    if not isinstance(value, dict):
        return
    objects = [one for one in kinds if one.get("type", "object") == "object"]
    if not all(_is_closed(one) for one in objects):
        return
    known = {name for one in objects for name in one["properties"]}
    for name, one in value.items():
        if objects and name not in known:
            yield Unknown(f"{path}{name}", sorted(known))
        types = [kind["properties"][name] for kind in objects if name in kind["properties"]]
        yield from _unknown(whole, _any_of(types), one, f"{path}{name}.")


def _kinds(whole: Schema, schema: Schema) -> Iterator[Schema]:
    """What a value may be, without references and unions."""
    if "$ref" in schema:
        yield from _kinds(whole, whole["$defs"][schema["$ref"].removeprefix(REF)])
    elif "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from _kinds(whole, one)
    else:
        yield schema


def _items(kinds: list[Schema], number: int) -> list[Schema]:
    found = []
    for one in kinds:
        first = one.get("prefixItems", [])
        found.append(first[number] if number < len(first) else one.get("items") or {})
    return found


def _any_of(schemas: list[Schema]) -> Schema:
    return {"anyOf": schemas} if schemas else {}


def _is_closed(schema: Schema) -> bool:
    return "properties" in schema and not schema.get("additionalProperties")


def _model_members(cls: Any) -> set[str] | None:
    """None: any."""
    validators = cls.__pydantic_decorators__.model_validators.values()
    if cls.model_config.get("extra") == "allow" or any(one.info.mode != "after" for one in validators):
        return None
    found = set(cls.model_fields)
    for field in cls.model_fields.values():
        alias = field.validation_alias
        for one in getattr(alias, "choices", [alias]):
            path = getattr(one, "path", [one])
            found |= {path[0]} if isinstance(path[0], str) else set()
    return found
