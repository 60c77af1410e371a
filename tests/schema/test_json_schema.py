"""JSON Schema: the canonical text, references, and each kind of change, with the answer that registries give."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from proving import proves
from tidelog.errors import InvalidSchema
from tidelog.schema.formats import compatible, parse

LATEST = "https://json-schema.org/draft/2020-12/schema"


def kinds(old: Any, new: Any, references: dict[str, str] | None = None) -> list[str]:
    given = references or {}
    found = compatible(parse("JSON", json.dumps(new), given), parse("JSON", json.dumps(old), given))
    return [reason.kind for reason in found]


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def opened(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


STRING, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}

FITS = {
    "the same": (opened(a=STRING), opened(a=STRING)),
    "annotations": ({**STRING, "title": "a"}, {**STRING, "title": "b", "description": "c", "default": "d"}),
    "to anything": (STRING, {}),
    "to true": (opened(a=STRING), opened(a=True)),
    "from nothing": (opened(a=False), opened(a=STRING)),
    "whole to any number": (INTEGER, NUMBER),
    "longer strings": ({**STRING, "maxLength": 3}, {**STRING, "maxLength": 4}),
    "a pattern gone": ({**STRING, "pattern": "a"}, STRING),
    "a larger range": ({**NUMBER, "minimum": 1, "maximum": 2}, {**NUMBER, "minimum": 0, "maximum": 3}),
    "a finer grid": ({**NUMBER, "multipleOf": 10}, {**NUMBER, "multipleOf": 2.5}),
    "more values": ({"enum": [1, 2]}, {"enum": [1, 2, 3]}),
    "another type": (STRING, {"type": ["string", "null"]}),
    "optional to closed": (closed(a=STRING), closed(a=STRING, b=STRING)),
    "required with default": (closed(), {**closed(b={**STRING, "default": ""}), "required": ["b"]}),
    "gone from open": (opened(a=STRING), opened()),
    "opened": (closed(a=STRING), opened(a=STRING)),
    "no longer required": ({**opened(a=STRING), "required": ["a"]}, opened(a=STRING)),
    "covered by a pattern": (
        {"type": "object", "patternProperties": {"^x_": INTEGER}, "additionalProperties": False},
        {**closed(x_a=NUMBER), "patternProperties": {"^x_": INTEGER}},
    ),
    "less forbidden": ({"not": {}}, {"not": STRING}),
    "one of more": ({"oneOf": [STRING, NUMBER]}, {"oneOf": [NUMBER, STRING, {"type": "null"}]}),
    "all of fewer": ({"allOf": [STRING, {"maxLength": 3}]}, {"allOf": [{"maxLength": 3}]}),
    "one becomes any": ({"oneOf": [STRING, NUMBER]}, {"anyOf": [STRING, NUMBER]}),
    "items gone": ({"type": "array", "items": STRING}, {"type": "array"}),
    "fewer needed": ({"type": "array", "minItems": 2}, {"type": "array", "minItems": 1}),
    "moved to a definition": (
        opened(a=STRING),
        {**opened(a={"$ref": "#/definitions/s"}), "definitions": {"s": STRING}},
    ),
    "a dependency gone": ({**opened(), "dependencies": {"a": ["b"]}}, opened()),
    "a tuple in the newest draft": (
        {"$schema": LATEST, "type": "array", "prefixItems": [STRING], "items": False},
        {"$schema": LATEST, "type": "array", "prefixItems": [STRING, NUMBER], "items": False},
    ),
}

CONFLICTS = {
    "TYPE_CHANGED": (STRING, NUMBER),
    "TYPE_NARROWED": (NUMBER, INTEGER),
    "MAX_LENGTH_ADDED": (STRING, {**STRING, "maxLength": 3}),
    "MAX_LENGTH_DECREASED": ({**STRING, "maxLength": 3}, {**STRING, "maxLength": 2}),
    "MIN_LENGTH_INCREASED": ({**STRING, "minLength": 3}, {**STRING, "minLength": 4}),
    "PATTERN_ADDED": (STRING, {**STRING, "pattern": "a"}),
    "PATTERN_CHANGED": ({**STRING, "pattern": "b"}, {**STRING, "pattern": "a"}),
    "EXCLUSIVE_MAXIMUM_ADDED": (NUMBER, {**NUMBER, "exclusiveMaximum": 3}),
    "MULTIPLE_OF_EXPANDED": ({**NUMBER, "multipleOf": 2}, {**NUMBER, "multipleOf": 4}),
    "MULTIPLE_OF_CHANGED": ({**NUMBER, "multipleOf": 2}, {**NUMBER, "multipleOf": 3}),
    "ENUM_ARRAY_NARROWED": ({"enum": [1, 2]}, {"enum": [1]}),
    "ENUM_ARRAY_CHANGED": ({"enum": [1, 2]}, {"enum": [True, 3]}),
    "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": (opened(), opened(a=STRING)),
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": (closed(), {**closed(a=STRING), "required": ["a"]}),
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": (closed(a=STRING), closed()),
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        closed(a=STRING),
        {"type": "object", "additionalProperties": {"type": "integer"}},
    ),
    "REQUIRED_ATTRIBUTE_ADDED": (opened(a=STRING), {**opened(a=STRING), "required": ["a"]}),
    "ADDITIONAL_PROPERTIES_REMOVED": (opened(a=STRING), closed(a=STRING)),
    "ADDITIONAL_PROPERTIES_NARROWED": (opened(), {**opened(), "additionalProperties": STRING}),
    "NOT_TYPE_EXTENDED": ({"not": STRING}, {"not": {}}),
    "SUM_TYPE_NARROWED": ({"oneOf": [STRING, NUMBER]}, {"oneOf": [STRING]}),
    "PRODUCT_TYPE_EXTENDED": ({"allOf": [STRING]}, {"allOf": [STRING, {"maxLength": 3}]}),
    "COMBINED_TYPE_CHANGED": ({"anyOf": [STRING, NUMBER]}, {"oneOf": [STRING, NUMBER]}),
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": ({"oneOf": [STRING, NUMBER]}, {"oneOf": [STRING, {"type": "null"}]}),
    "SCHEMA_ADDED": ({"type": "array"}, {"type": "array", "items": STRING}),
    "UNIQUE_ITEMS_ADDED": ({"type": "array"}, {"type": "array", "uniqueItems": True}),
    "DEPENDENCY_ARRAY_ADDED": (opened(), {**opened(), "dependencies": {"a": ["b"]}}),
    "UNEVALUATED_PROPERTIES_REMOVED": (
        {"$schema": LATEST, "type": "object"},
        {"$schema": LATEST, "type": "object", "unevaluatedProperties": False},
    ),
}


@proves("schemas")
@pytest.mark.parametrize("change", FITS)
def test_what_lets_no_less_through_fits(change: str) -> None:
    old, new = FITS[change]
    assert kinds(old, new) == []


@proves("schemas")
@pytest.mark.parametrize("kind", CONFLICTS)
def test_what_lets_less_through_is_named(kind: str) -> None:
    old, new = CONFLICTS[kind]
    assert kind in kinds(old, new)


@proves("schemas")
def test_a_conflict_says_where() -> None:
    (reason,) = compatible(
        parse("JSON", json.dumps(opened(a=opened(b=NUMBER))), {}),
        parse("JSON", json.dumps(opened(a=opened(b=STRING))), {}),
    )
    assert reason.path == "#/properties/a/properties/b"


@proves("schemas")
def test_a_conflict_deep_in_a_schema_that_holds_itself_is_found() -> None:
    def tree(leaf: Any) -> Any:
        return closed(value=leaf, children={"type": "array", "items": {"$ref": "#"}})

    assert kinds(tree(INTEGER), tree(NUMBER)) == []
    assert set(kinds(tree(NUMBER), tree(INTEGER))) == {"TYPE_NARROWED"}


@proves("schemas")
def test_the_text_keeps_its_order_and_loses_its_spaces() -> None:
    written = '{ "type": "object",\n "properties": {"b": {}, "a": true} }'
    assert parse("JSON", written, {}).text == '{"type":"object","properties":{"b":{},"a":true}}'
    assert parse("JSON", written, {}, normalize=True).text == '{"properties":{"a":true,"b":{}},"type":"object"}'


@proves("schemas")
def test_references_are_found_by_name() -> None:
    other = {"other.json": json.dumps({"definitions": {"s": STRING}})}
    by_name = opened(a={"$ref": "other.json#/definitions/s"})
    assert kinds(by_name, opened(a=STRING), other) == []
    assert kinds(by_name, opened(a=NUMBER), other) == ["TYPE_CHANGED"]


@proves("schemas")
@pytest.mark.parametrize(
    "text",
    ["5", '{"type":"strung"}', '{"minLength":-1}', '{"$ref":"#/nowhere"}', '{"enum":3}', '{"properties":[]}', '"a"'],
)
def test_what_breaks_the_rules_of_its_draft_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse("JSON", text, {})


# Against jsonschema: what the old schema lets through, the new one does.

SCALARS = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(
        lambda low, size: {"type": "integer", "minimum": low, "maximum": low + size},
        st.integers(-3, 3),
        st.integers(0, 3),
    ),
    st.builds(lambda limit: {"type": "number", "maximum": limit}, st.integers(-3, 3)),
    st.builds(lambda limit: {"type": "string", "maxLength": limit}, st.integers(0, 3)),
    st.builds(lambda values: {"enum": sorted(values)}, st.sets(st.integers(0, 4), min_size=1)),
    st.just({"type": ["string", "null"]}),
    st.booleans(),
)


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def objects(properties: dict[str, Any], rest: Any, required: set[str]) -> dict[str, Any]:
        made = {"type": "object", "properties": properties, "additionalProperties": rest}
        return {**made, "required": sorted(required & properties.keys())}

    named = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    return st.one_of(
        st.builds(objects, named, st.one_of(st.booleans(), inner), st.sets(st.sampled_from("abc"))),
        st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 1)),
        st.builds(lambda ways: {"anyOf": ways}, st.lists(inner, min_size=1, max_size=2)),
    )


SCHEMAS = st.recursive(SCALARS, _larger, max_leaves=4)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.just(0.5), st.text("xy", max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)),
    max_leaves=4,
)


@proves("schemas")
@given(SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=20, max_size=20))
def test_what_the_old_schema_lets_through_the_new_one_does(old: Any, new: Any, values: list[Any]) -> None:
    if kinds(old, new):
        return
    before, after = Draft7Validator(old), Draft7Validator(new)
    assert [value for value in values if before.is_valid(value) and not after.is_valid(value)] == []
