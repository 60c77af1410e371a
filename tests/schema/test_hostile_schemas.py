"""Schemas that are meant to hurt: deep, wide, endless, with patterns that never end. Each is refused, or done soon."""

from __future__ import annotations

import json

import pytest

from proving import proves
from tidelog.errors import InvalidSchema
from tidelog.schema.bounds import DEPTH_MAX, NODES_MAX, STEPS_MAX, TEXT_MAX
from tidelog.schema.formats import FORMATS, compatible, parse
from tidelog.schema.json_schema.patterns import matches


def nested(begin: str, inner: str, end: str, times: int) -> str:
    return begin * times + inner + end * times


DEEP = {
    "AVRO": nested('{"type":"array","items":', '"int"', "}", 100_000 // 30),
    "JSON": nested('{"not":', "{}", "}", 100_000 // 30),
    "PROTOBUF": 'syntax = "proto3";' + nested("message A {", "", "}", 100_000 // 30),
}


@proves("schemas", "hostile")
@pytest.mark.parametrize("format", FORMATS)
def test_a_schema_that_is_nested_too_deep_is_refused(format: str) -> None:
    with pytest.raises(InvalidSchema, match=f"more than {DEPTH_MAX} deep"):
        parse(format, DEEP[format], {})


@proves("schemas", "hostile")
@pytest.mark.parametrize("format", FORMATS)
def test_a_schema_that_is_too_large_is_refused_before_it_is_looked_at(format: str) -> None:
    with pytest.raises(InvalidSchema, match=str(TEXT_MAX)):
        parse(format, "[" * (TEXT_MAX + 1), {})
    with pytest.raises(InvalidSchema, match=str(TEXT_MAX)):
        parse(format, "{}", {"half": " " * TEXT_MAX})


@proves("schemas", "hostile")
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("text", ["", " ", "\0", "{", "[]", "{}}", '"', "\ud800", "/*", "a" * 10_000, "AAAA", "null"])
def test_what_is_no_schema_is_refused_or_is_one(format: str, text: str) -> None:
    try:
        parse(format, text, {})
    except InvalidSchema as error:
        assert str(error)
    else:
        assert format == "PROTOBUF" or json.loads(text) is not None


@proves("schemas", "hostile")
def test_a_chain_of_names_that_is_too_long_to_be_followed_is_refused() -> None:
    """Flat to look at, but each record holds the one before."""

    def chain(last: str) -> str:
        records = [{"type": "record", "name": "R0", "fields": [{"name": "a", "type": last}]}]
        for index in range(1, 5_000):
            fields = [{"name": "a", "type": f"R{index - 1}"}]
            records.append({"type": "record", "name": f"R{index}", "fields": fields})
        return json.dumps(records)

    with pytest.raises(InvalidSchema, match=r"too deep|steps"):
        compatible(parse("AVRO", chain("int"), {}), parse("AVRO", chain("string"), {}))


@proves("schemas", "hostile")
def test_a_comparison_that_would_not_end_is_given_up() -> None:
    def ways(count: int, limit: int) -> str:
        parts = [{"type": "object", "properties": {f"p{i}": {"maxLength": i + limit}}} for i in range(count)]
        return json.dumps({"oneOf": [{"oneOf": [*parts, {"minLength": n}]} for n in range(20)]})

    with pytest.raises(InvalidSchema, match=str(STEPS_MAX)):
        compatible(parse("JSON", ways(40, 5), {}), parse("JSON", ways(40, 4), {}))


@proves("schemas", "hostile")
def test_what_is_listed_counts_as_steps() -> None:
    """Few pairs, but each with very much in it."""
    many = [f"s{number}" for number in range(20_000)]
    enums = [{"enum": many[: 19_000 + n]} for n in range(5)]
    with pytest.raises(InvalidSchema, match=str(STEPS_MAX)):
        compatible(
            parse("JSON", json.dumps({"oneOf": enums[1:]}), {}), parse("JSON", json.dumps({"oneOf": enums[:-1]}), {})
        )
    optional = "".join(f"optional int32 f{number} = {number};" for number in range(1, 5_000))
    wide = f'syntax = "proto3"; message A {{ {optional} map<string, A> m = 9999; }}'
    assert compatible(parse("PROTOBUF", wide.replace("f1 ", "g1 "), {}), parse("PROTOBUF", wide, {})) == []


@proves("schemas", "hostile")
def test_references_that_go_in_a_circle_are_refused_or_end() -> None:
    circle = '{"$ref":"#/definitions/a","definitions":{"a":{"$ref":"#/definitions/b"},"b":{"$ref":"#/definitions/a"}}}'
    with pytest.raises(InvalidSchema, match="circle"):
        compatible(parse("JSON", circle, {}), parse("JSON", "{}", {}))
    itself = '{"type":"object","properties":{"next":{"$ref":"#"}},"additionalProperties":false}'
    more = '{"type":"object","properties":{"next":{"$ref":"#"},"x":{}},"additionalProperties":false}'
    assert compatible(parse("JSON", more, {}), parse("JSON", itself, {})) == []
    with pytest.raises(InvalidSchema, match="does not hold together"):
        parse("PROTOBUF", 'syntax = "proto3"; import "b.proto";', {"b.proto": 'syntax = "proto3"; import "b.proto";'})


@proves("schemas", "hostile")
@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("AVRO", r'{"type":"int","doc":"\ud800"}'),
        ("AVRO", '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":1e999}]}'),
        ("JSON", r'{"title":"\ud800"}'),
        ("JSON", '{"$schema":[]}'),
        ("JSON", '{"$ref":"http://["}'),
        ("JSON", '{"maximum":1e999}'),
        ("JSON", '{"$ref":"#no such anchor"}'),
        ("PROTOBUF", 'message A { optional string a = 1 [default = "\ud800"]; }'),
        ("PROTOBUF", 'option java_package = "\\xff";'),
        ("PROTOBUF", "message A { optional int32 a = 08; }"),
        ("PROTOBUF", 'message A { optional string a = 1 [default = "\\UFFFFFFFF"]; }'),
    ],
)
def test_what_breaks_a_library_or_the_topic_is_refused(format: str, text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse(format, text, {})


@proves("schemas", "hostile")
def test_nothing_is_fetched_from_elsewhere() -> None:
    with pytest.raises(InvalidSchema, match="add it to the references"):
        parse("JSON", '{"$ref":"http://169.254.169.254/latest/meta-data"}', {})
    with pytest.raises(InvalidSchema, match="add it to the references"):
        parse("JSON", '{"properties":{"a":{"$ref":"file:///etc/passwd"}}}', {})


@proves("schemas", "hostile")
def test_no_pattern_is_run() -> None:
    """This one, run on such a name, takes longer than the sun will shine."""
    endless = "^(a+)+$"
    name = "a" * 60 + "!"
    partly = json.dumps({"type": "object", "patternProperties": {endless: {"type": "string"}}})
    named = json.dumps({"type": "object", "properties": {name: {"type": "string"}}, "patternProperties": {endless: {}}})
    compatible(parse("JSON", named, {}), parse("JSON", partly, {}))
    compatible(parse("JSON", partly, {}), parse("JSON", named, {}))
    broken = json.dumps({"type": "string", "pattern": "((a{1000}){1000}){1000}("})
    assert parse("JSON", broken, {}).text


@proves("schemas", "hostile")
@pytest.mark.parametrize(
    ("pattern", "name", "matched"),
    [
        ("^I_", "I_123", True),
        ("^I_", "S_1", False),
        ("^abc$", "abc", True),
        ("^abc$", "abcd", False),
        ("b", "abc", True),
        ("^x-.*$", "x-y", True),
        (".*", "anything", True),
        ("c$", "abc", True),
        ("^[a-z]+$", "abc", None),
        ("a.c", "abc", None),
    ],
)
def test_simple_patterns_are_told_without_an_engine(pattern: str, name: str, matched: bool | None) -> None:
    assert matches(pattern, name) is matched


@proves("schemas", "hostile")
def test_more_words_than_a_schema_needs_are_refused() -> None:
    with pytest.raises(InvalidSchema, match=str(NODES_MAX)):
        parse("PROTOBUF", ";" * (NODES_MAX + 1), {})
    with pytest.raises(InvalidSchema, match=str(NODES_MAX)):
        parse("AVRO", json.dumps(["a"] * (NODES_MAX + 1)), {})
