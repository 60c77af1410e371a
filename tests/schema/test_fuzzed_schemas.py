"""Texts that are nearly schemas: whatever is cut out, doubled or put in, the answer is a schema or a refusal."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proving import proves
from tidelog.errors import InvalidSchema
from tidelog.schema.formats import compatible, parse
from tidelog.schema.protobuf.parse import serialized

PROTOBUF = r"""
syntax = "proto3"; package a.b; import "google/protobuf/timestamp.proto"; import "google/protobuf/descriptor.proto";
option java_package = "x";
message A { reserved 5, 7 to max; reserved "x"; string id = 1 [json_name = "i", (o).p = { a: 1 }, deprecated = true];
  optional int64 t = 2; map<string, A> m = 4; oneof o { A a = 10; bytes c = 11; } google.protobuf.Timestamp at = 12;
  enum E { option allow_alias = true; Z = 0; N = 0; L = -1; } message B { repeated sint32 r = 0x3 [packed = false]; } }
extend google.protobuf.FieldOptions { int32 q = 50100; }
service S { rpc G (stream A) returns (A) { option deprecated = true; } }
"""
OLDER = 'syntax = "proto2"; message A { required string a = 1 [default = "x\\n"]; extensions 4 to 9; }'
WORDS = st.sampled_from(
    ["{", "}", ";", "=", "[", "]", "(", ")", "<", ">", ",", ".", "-", '"', "1", "0x", "A", "max", "/*"]
)

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 3), st.floats(allow_nan=False), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=5,
)
AVRO_NAMES = (
    "type",
    "name",
    "fields",
    "items",
    "values",
    "symbols",
    "size",
    "namespace",
    "aliases",
    "default",
    "order",
    "doc",
)
AVRO_WORDS = ("record", "enum", "fixed", "array", "map", "error", "int", "string", "null", "R", "a.R", "")
JSON_NAMES = (
    *("$schema", "$id", "$ref", "type", "properties", "required", "items", "enum", "const", "not", "allOf", "anyOf"),
    *("oneOf", "additionalProperties", "patternProperties", "definitions", "$defs", "dependencies", "prefixItems"),
    *("maximum", "multipleOf", "uniqueItems", "pattern", "unevaluatedProperties", "dependentSchemas", "if", "default"),
)
JSON_WORDS = (
    *("string", "object", "array", "number", "null", "#", "#/definitions/a", "#a", "a.json", "http://[", "(a+)+$", ""),
    *("http://json-schema.org/draft-04/schema#", "https://json-schema.org/draft/2020-12/schema"),
)


def like(names: tuple[str, ...], words: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """JSON with the members and words of a format in all the wrong places."""
    leaves = st.one_of(st.sampled_from(words), VALUES)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(names), inner, min_size=1, max_size=5)
        ),
        max_leaves=12,
    )


def answered(format: str, text: str) -> None:
    """Nothing but InvalidSchema; and what is taken can be taken again, and reads its own data."""
    try:
        schema = parse(format, text, {})
    except InvalidSchema as error:
        assert str(error)
        return
    again = parse(format, schema.text, {})
    assert (again.text, again.whole) == (schema.text, schema.whole)
    assert compatible(again, schema) == []
    other = parse(format, {"AVRO": '"int"', "JSON": "{}", "PROTOBUF": PROTOBUF}[format], {})
    for reader, writer in ((schema, other), (other, schema)):
        try:
            compatible(reader, writer)
        except InvalidSchema as error:
            assert str(error)


@proves("schemas", "hostile")
@given(like(AVRO_NAMES, AVRO_WORDS))
@example({"type": "record", "name": 5, "fields": []})
def test_nearly_avro(value: Any) -> None:
    answered("AVRO", json.dumps(value))


@proves("schemas", "hostile")
@given(like(JSON_NAMES, JSON_WORDS))
@example({"$ref": "#", "definitions": {}})
@example({"allOf": [{"$ref": "#"}]})
@example({"$schema": "http://["})
def test_nearly_json_schema(value: Any) -> None:
    answered("JSON", json.dumps(value))


@proves("schemas", "hostile")
@given(st.sampled_from([PROTOBUF, OLDER]), st.data())
def test_nearly_protobuf(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(0, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        text = (
            text[:start] + data.draw(st.one_of(WORDS, st.text(max_size=2), st.just(text[start:end] * 2))) + text[end:]
        )
    answered("PROTOBUF", text)


@proves("schemas", "hostile")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("syntax = 3;", "a string"),
        ('syntax = "proto2"; message A { string a = 1; }', "optional, required or repeated"),
        ('syntax = "proto3"; message A { required string a = 1; }', "proto3 has no required fields"),
        ("", "the schema is empty"),
        ("CgA=", "the descriptor describes nothing"),
        ("/////w==", "neither the text of a .proto file nor a descriptor"),
    ],
)
def test_what_few_examples_would_come_across_is_refused_in_words(text: str, told: str) -> None:
    with pytest.raises(InvalidSchema, match=told):
        parse("PROTOBUF", text, {})


@proves("schemas", "hostile")
@given(st.data())
def test_nearly_a_descriptor(data: st.DataObject) -> None:
    sent = bytearray(b64decode(serialized(parse("PROTOBUF", PROTOBUF, {}))))
    for _ in range(data.draw(st.integers(0, 3))):
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    answered("PROTOBUF", b64encode(bytes(sent)).decode())


@proves("schemas", "hostile")
@given(st.text(), st.sampled_from(["AVRO", "JSON", "PROTOBUF"]))
def test_any_text(text: str, format: str) -> None:
    answered(format, text)
