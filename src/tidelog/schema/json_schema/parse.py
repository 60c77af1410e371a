"""From text to a model: checked against the schema of its draft, with every `$ref` found."""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps
from typing import Any

from jsonschema import Draft7Validator, FormatChecker
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from tidelog.errors import InvalidSchema
from tidelog.schema.bounds import load_json
from tidelog.schema.json_schema.shape import Model, Subschema, resource
from tidelog.schema.schema import Schema

FORMAT = "JSON"
NO_FORMATS = FormatChecker(formats=())  # "format": "regex" would compile what came from outside


def parse(text: str, references: Mapping[str, str], *, normalize: bool = False) -> Schema:
    value = load_json(text)
    try:
        _check(value)
        model = _model(value, {name: load_json(reference) for name, reference in references.items()})
        _check_references(model)
    except ValueError as error:  # of names that are not addresses
        raise InvalidSchema(f"a name in the schema is not a URI: {error}") from error
    whole = dumps([value, *(dict(sorted(references.items()))).items()], separators=(",", ":"), sort_keys=True)
    canonical = dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=normalize)
    return Schema(FORMAT, canonical, whole, model)


def _model(value: Any, references: Mapping[str, Any]) -> Model:
    resources = {name: resource(one) for name, one in references.items()}
    root = resource(value)
    registry: Registry[Any] = Registry().with_resources(resources.items()).with_resource(root.id() or "", root)
    return Model(Subschema(value, registry.resolver_with_root(root)))


def _check(value: Any) -> None:
    if isinstance(value, dict) and not isinstance(value.get("$schema", ""), str):
        raise InvalidSchema("$schema is not a string; name a draft, or leave it out")
    if not isinstance(value, dict | bool):
        raise InvalidSchema(f"a JSON Schema is an object or a boolean, not {dumps(value)[:100]}; write one")
    validator = validator_for(value, default=Draft7Validator)
    error = next(validator(validator.META_SCHEMA, format_checker=NO_FORMATS).iter_errors(value), None)
    if error is not None:
        raise InvalidSchema(f"the schema breaks the rules of its draft at {error.json_path}: {error.message[:200]}")


def _check_references(model: Model) -> None:
    """Every `$ref` that can be reached, followed once."""
    waiting, seen = [model.root], set()
    while waiting:
        place = waiting.pop()
        if id(place.value) in seen:
            continue
        seen.add(id(place.value))
        try:
            waiting += model.inner(place)
        except Unresolvable as error:
            advice = "add it to the references, by that name" if not error.ref.startswith("#") else "define it"
            raise InvalidSchema(f"the schema refers to {error.ref[:200]!r}, which is not there; {advice}") from None
