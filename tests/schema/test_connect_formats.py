"""Connect's schemas in Avro and JSON Schema, against what a converter in Java made of Debezium's own records.

vectors/connect_avro.jsonl.xz: keys and values that Debezium 3.6 and 3.5 wrote, each with the Avro schema and the bytes
that the AvroData class of Apicurio's converter (Confluent's, under another name) makes of it.
"""

from __future__ import annotations

import io
import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import jsonschema
import pytest

from proving import proves
from tidelog.errors import InvalidSchema, UndecodableValue
from tidelog.schema import formats
from tidelog.schema.avro.values import decoder, encoder
from tidelog.schema.connect_avro import avro_name, avro_of, connect_of
from tidelog.schema.connect_json import connect_of as connect_of_json
from tidelog.schema.connect_json import json_schema_of

VECTORS = Path(__file__).parent / "vectors" / "connect_avro.jsonl.xz"
INT, TEXT = {"type": "int32", "optional": False}, {"type": "string", "optional": True}


@cache
def vectors() -> list[dict[str, Any]]:
    found = [json.loads(line) for line in lzma.decompress(VECTORS.read_bytes()).splitlines()]
    assert len(found) > 400
    return found


@proves("D1")
def test_schemas_and_bytes_are_those_of_the_converter_in_java() -> None:
    for one in vectors():
        made = avro_of(one["connect"])
        assert json.dumps(made) == json.dumps(json.loads(one["avro"])), "also the order of members"
        assert encoder(made)(one["payload"]).hex() == one["bytes"]


@proves("D1")
def test_what_was_written_is_read_back_and_so_are_schemas() -> None:
    for one in vectors():
        made = avro_of(one["connect"])
        assert connect_of(made) == one["connect"]
        assert connect_of_json(json_schema_of(one["connect"])) == one["connect"]
        assert decoder(made)(bytes.fromhex(one["bytes"])) == as_floats(one["payload"])


def as_floats(value: Any) -> Any:
    """A float of four bytes, read back, has the digits of eight."""
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-6)
    if isinstance(value, dict):
        return {name: as_floats(inner) for name, inner in value.items()}
    return [as_floats(inner) for inner in value] if isinstance(value, list) else value


@proves("D1")
def test_another_library_reads_the_bytes_and_the_registry_takes_the_schemas() -> None:
    seen = set()
    for one in vectors():
        formats.parse("AVRO", one["avro"], {})
        formats.parse("JSON", json.dumps(json_schema_of(one["connect"])), {})
        name = one["connect"]["name"]
        if name in seen or not name.endswith("kv.Envelope"):
            continue
        seen.add(name)
        value = fastavro.schemaless_reader(io.BytesIO(bytes.fromhex(one["bytes"])), json.loads(one["avro"]))
        assert value == one["payload"]
    assert seen


@proves("D1")
def test_a_json_schema_says_what_confluents_says() -> None:
    row = {"type": "struct", "fields": [{**INT, "field": "id"}, {**TEXT, "field": "v"}], "name": "shop.kv.Value"}
    assert json_schema_of({**row, "optional": False, "version": 1}) == {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "connect.type": "int32", "connect.index": 0},
            "v": {"connect.index": 1, "oneOf": [{"type": "null"}, {"type": "string"}]},
        },
        "title": "shop.kv.Value",
        "connect.version": 1,
    }
    for one in vectors():
        if "Decimal" not in json.dumps(one["connect"]) and "io.debezium.data.Bits" not in json.dumps(one["connect"]):
            jsonschema.validate(one["payload"], json_schema_of(one["connect"]))


@proves("D1")
def test_names_that_avro_does_not_have_are_mended_and_two_that_become_one_are_refused() -> None:
    assert [avro_name(one) for one in ("a b", "ünï", "1st", "", "ok_1")] == ["a_b", "_n_", "_1st", "_", "ok_1"]
    struct = {"type": "struct", "optional": False, "name": "t.Value"}
    with pytest.raises(InvalidSchema, match=r"two fields of t\.Value would both be called 'a_b' in Avro"):
        avro_of({**struct, "fields": [{**INT, "field": "a b"}, {**INT, "field": "a-b"}]})
    for wrong in ({"type": "date"}, {"type": "struct", "fields": [{"type": "?", "field": "x"}]}):
        with pytest.raises(InvalidSchema, match="is not a type of Kafka Connect"):
            avro_of(wrong)
        with pytest.raises(InvalidSchema, match="is not a type of Kafka Connect"):
            json_schema_of(wrong)


@proves("D1")
@pytest.mark.parametrize("data", ["", "06", "02ff", "0200", "0204ff", "8080808080808080808080", "020002", "02026102"])
def test_bytes_that_are_no_value_are_refused(data: str) -> None:
    schema = avro_of({"type": "struct", "optional": False, "name": "t", "fields": [{**TEXT, "field": "v"}]})
    with pytest.raises(UndecodableValue):
        decoder(schema)(bytes.fromhex(data) if data != "0200" else bytes.fromhex("0200ff"))


@proves("D1")
def test_a_block_that_claims_to_be_endless_is_refused() -> None:
    many = avro_of({"type": "array", "items": {"type": "struct", "name": "n", "fields": []}, "optional": False})
    with pytest.raises(UndecodableValue, match="items"):
        decoder(many)(bytes.fromhex("feffffffffffffffff01"))
    for wrong in (["int", "string"], {"type": "array", "items": ["null", "int", "string"]}, "nobody"):
        with pytest.raises(InvalidSchema):
            decoder(wrong)
