"""Avro: names, canonical text, what is refused, and whether one schema reads another's data, asked of fastavro too."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from typing import Any

import fastavro
import pytest
from fastavro.read import SchemaResolutionError
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.errors import InvalidSchema
from tidelog.schema.formats import compatible, parse
from tidelog.schema.schema import Schema


def avro(value: Any, references: dict[str, str] | None = None, *, normalize: bool = False) -> Schema:
    return parse("AVRO", json.dumps(value), references or {}, normalize=normalize)


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    made = [field if isinstance(field, dict) else {"name": field, "type": "int"} for field in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def kinds(reader: Any, writer: Any) -> list[str]:
    return [reason.kind for reason in compatible(avro(reader), avro(writer))]


@proves("schemas")
def test_the_canonical_text_is_the_one_that_registries_in_java_keep() -> None:
    written = """{ "fields": [
        {"type": "a.b.R", "name": "self"},
        {"aliases": ["old"], "default": null, "doc": "d", "name": "e", "x": 1, "order": "descending",
         "type": ["null", {"symbols": ["A"], "type": "enum", "name": "E", "namespace": "a.c"}]},
        {"name": "again", "type": "a.c.E"}, {"name": "s", "type": {"type": "string"}},
        {"name": "t", "type": {"logicalType": "timestamp-millis", "type": "long"}}],
      "namespace": "a.b", "name": "R", "type": "record", "doc": "about", "aliases": ["Old", "z.Older"], "k": "v"}"""
    assert parse("AVRO", written, {}).text == (
        '{"type":"record","name":"R","namespace":"a.b","doc":"about","fields":[{"name":"self","type":"R"},'
        '{"name":"e","type":["null",{"type":"enum","name":"E","namespace":"a.c","symbols":["A"]}],"doc":"d",'
        '"default":null,"order":"descending","aliases":["old"],"x":1},{"name":"again","type":"a.c.E"},'
        '{"name":"s","type":"string"},{"name":"t","type":{"type":"long","logicalType":"timestamp-millis"}}],'
        '"k":"v","aliases":["Old","z.Older"]}'
    )


@proves("schemas")
def test_the_canonical_text_of_a_canonical_text_is_itself() -> None:
    once = avro(record("a", {"name": "b", "type": ["null", "R"], "default": None}, namespace="n", doc="ü")).text
    assert parse("AVRO", once, {}).text == once


@proves("schemas")
def test_a_normal_form_leaves_the_order_of_properties_aside() -> None:
    one, other = record("a", x=1, y=2), record("a", y=2, x=1)
    assert avro(one).text != avro(other).text
    assert avro(one, normalize=True).text == avro(other, normalize=True).text


@proves("schemas")
def test_a_reference_stands_by_name_in_the_text_and_in_full_in_the_whole() -> None:
    part = json.dumps(record("x", name="n.Part"))
    by_reference = avro(record({"name": "p", "type": "n.Part"}), {"n.Part": part})
    inside = avro(record({"name": "p", "type": record("x", name="n.Part")}))
    assert by_reference.text == '{"type":"record","name":"R","fields":[{"name":"p","type":"n.Part"}]}'
    assert by_reference.whole == inside.whole
    assert compatible(by_reference, inside) == []


REFUSED = [
    '"nope"',
    "5",
    "null",
    "{}",
    "{",
    '{"type":"record","name":"9R","fields":[]}',
    '{"type":"record","name":"R"}',
    '{"type":"record","name":"R","fields":{}}',
    '{"type":"record","name":"R","fields":[{"name":"a b","type":"int"}]}',
    '{"type":"record","name":"R","fields":[{"name":"a"}]}',
    '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
    '{"type":"record","name":"string","fields":[]}',
    '{"type":"record","name":"R","namespace":"a..b","fields":[]}',
    '{"type":"array"}',
    '{"type":"map"}',
    '{"type":"enum","name":"E","symbols":["A","A"]}',
    '{"type":"enum","name":"E","symbols":["A"],"default":"B"}',
    '{"type":"enum","name":"E","symbols":["a b"]}',
    '{"type":"fixed","name":"F","size":-1}',
    '{"type":"fixed","name":"F","size":"4"}',
    '["int","int"]',
    '["int",["string"]]',
    '[{"type":"array","items":"int"},{"type":"array","items":"string"}]',
    '[{"type":"fixed","name":"F","size":1},{"type":"fixed","name":"F","size":1}]',
    '{"type":"record","name":"R","fields":[{"name":"a","type":"int","order":"up"}]}',
]


@proves("schemas")
@pytest.mark.parametrize("text", REFUSED)
def test_what_avro_forbids_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(InvalidSchema, match=r"."):
        parse("AVRO", text, {})


@proves("schemas")
def test_each_way_in_which_data_cannot_be_read_has_its_name() -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["A"]}
    fixed = {"type": "fixed", "name": "F", "size": 4}
    assert kinds(record("a", "b"), record("a")) == ["READER_FIELD_MISSING_DEFAULT_VALUE"]
    assert kinds("int", "long") == ["TYPE_MISMATCH"]
    assert kinds(record("a", name="S"), record("a")) == ["NAME_MISMATCH"]
    assert kinds(enum, {**enum, "symbols": ["A", "B"]}) == ["MISSING_ENUM_SYMBOLS"]
    assert kinds(fixed, {**fixed, "size": 5}) == ["FIXED_SIZE_MISMATCH"]
    assert kinds(["null", "int"], ["null", "string"]) == ["MISSING_UNION_BRANCH"]
    assert kinds(["null", "int"], "string") == ["MISSING_UNION_BRANCH"]


@proves("schemas")
def test_what_avro_resolves_is_compatible() -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["A"]}
    assert kinds(record("a", {"name": "b", "type": "int", "default": 0}), record("a")) == []
    assert kinds(record("a"), record("a", "b")) == []
    assert kinds("double", "int") == kinds("string", "bytes") == kinds("bytes", "string") == []
    assert kinds(record("a", name="S", aliases=["R"]), record("a")) == []
    assert kinds(record("a", namespace="other"), record("a")) == []
    assert kinds({**enum, "default": "A"}, {**enum, "symbols": ["A", "B"]}) == []
    assert kinds(["null", "long"], "int") == kinds("long", ["int", "long"]) == []
    assert kinds(record({"name": "n", "type": "int", "aliases": ["a"]}), record("a")) == []


@proves("schemas")
def test_a_type_that_holds_itself_is_compared_once() -> None:
    def chain(kind: str) -> dict[str, Any]:
        return record({"name": "v", "type": kind}, {"name": "next", "type": ["null", "R"]})

    assert kinds(chain("long"), chain("int")) == []
    assert kinds(chain("int"), chain("long")) == ["TYPE_MISMATCH"]


# Against fastavro: what is called compatible can be read.

SIMPLE = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
ENUMS = st.sets(st.sampled_from("ABCD"), min_size=1).map(
    lambda symbols: {"type": "enum", "name": "E", "symbols": sorted(symbols)}
)


def _wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    branches = st.lists(SIMPLE, min_size=1, max_size=4, unique=True)
    return st.one_of(
        inner.map(lambda one: {"type": "array", "items": one}),
        inner.map(lambda one: {"type": "map", "values": one}),
        branches,
    )


TYPES = st.recursive(SIMPLE, _wider, max_leaves=3)
FIELDS = st.dictionaries(st.sampled_from("abcd"), st.tuples(TYPES, st.booleans()), max_size=4)


PROMOTIONS = {"int": ["int", "long", "float", "double"], "long": ["long", "double"], "string": ["string", "bytes"]}


def _promoted(kind: Any, draw: Any) -> Any:
    return draw(st.sampled_from(PROMOTIONS[kind])) if isinstance(kind, str) and kind in PROMOTIONS else kind


def _record(fields: dict[str, tuple[Any, bool]]) -> dict[str, Any]:
    made = []
    for name, (kind, optional) in fields.items():
        if optional and not isinstance(kind, list):
            made.append({"name": name, "type": kind if kind == "null" else ["null", kind], "default": None})
        else:
            made.append({"name": name, "type": kind})
    return {"type": "record", "name": "R", "fields": made}


def _values(kind: Any) -> st.SearchStrategy[Any]:
    if isinstance(kind, list):
        return st.one_of([_values(branch) for branch in kind])
    if isinstance(kind, dict):
        if kind["type"] == "record":
            return st.fixed_dictionaries({field["name"]: _values(field["type"]) for field in kind["fields"]})
        if kind["type"] == "enum":
            return st.sampled_from(kind["symbols"])
        inner = _values(kind.get("items", kind.get("values")))
        return st.lists(inner, max_size=2) if kind["type"] == "array" else st.dictionaries(st.text(max_size=2), inner)
    whole = {"int": st.integers(-(2**31), 2**31 - 1), "long": st.integers(-(2**63), 2**63 - 1)}
    rest: dict[str, st.SearchStrategy[Any]] = {
        "null": st.none(),
        "boolean": st.booleans(),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "bytes": st.binary(max_size=3),
        "string": st.text(max_size=3),
    }
    return (whole | rest)[kind]


@proves("schemas")
@given(st.data())
def test_data_that_is_called_readable_is_read_by_fastavro(data: st.DataObject) -> None:
    fields = data.draw(FIELDS, "fields")
    evolved = {name: (_promoted(kind, data.draw), optional) for name, (kind, optional) in fields.items()}
    evolved |= data.draw(FIELDS.map(lambda more: {name: (kind, True) for name, (kind, _) in more.items()}), "more")
    record_too = st.just((_record(fields), _record(evolved)))
    writer, reader = data.draw(st.one_of(record_too, st.tuples(TYPES, TYPES), st.tuples(ENUMS, ENUMS)))
    if compatible(avro(reader), avro(writer)):
        return
    value = data.draw(_values(writer), "value")
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, writer, value)
    stream.seek(0)
    with suppress(UnicodeDecodeError):  # bytes read as a string, which Avro allows of types and not of every value
        fastavro.schemaless_reader(stream, writer, reader)


SAMPLES: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 0.5,
    "double": 0.25,
    "bytes": b"b",
    "string": "s",
}


def _fastavro_reads(writer: Any, reader: Any, value: Any) -> bool:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, writer, value)
    stream.seek(0)
    try:
        fastavro.schemaless_reader(stream, writer, reader)
    except (SchemaResolutionError, KeyError):
        return False
    return True


@proves("schemas")
@pytest.mark.parametrize("reader", SAMPLES)
@pytest.mark.parametrize("writer", SAMPLES)
def test_every_pair_of_simple_types_is_answered_as_fastavro_does(writer: str, reader: str) -> None:
    """Alone, in arrays and maps, in fields, and beside another branch of a union."""
    value = SAMPLES[writer]
    other = "null" if "null" not in (writer, reader) else "boolean" if "boolean" not in (writer, reader) else "bytes"
    for write, read, given_value in [
        (writer, reader, value),
        ({"type": "array", "items": writer}, {"type": "array", "items": reader}, [value]),
        ({"type": "map", "values": writer}, {"type": "map", "values": reader}, {"k": value}),
        (record({"name": "f", "type": writer}), record({"name": "f", "type": reader}), {"f": value}),
        (writer, [other, reader], value),
        ([other, writer], [other, reader], value),
    ]:
        assert (kinds(read, write) == []) is _fastavro_reads(write, read, given_value), (write, read)


@proves("schemas")
@given(FIELDS, FIELDS)
def test_a_field_that_fastavro_misses_is_named(one: Any, other: Any) -> None:
    """The other way round: fields without a default that the writer lacks, and no others, are named."""
    writer, reader = _record(one), _record(other)
    missing = {f["name"] for f in reader["fields"] if f["name"] not in one and "default" not in f}
    named = {
        reason.sentence.split("'")[2]
        for reason in compatible(avro(reader), avro(writer))
        if reason.kind == "READER_FIELD_MISSING_DEFAULT_VALUE"
    }
    assert named == missing
