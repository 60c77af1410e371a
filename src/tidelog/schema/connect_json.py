"""Kafka Connect's schemas as JSON Schemas, and back, in the form that Confluent's JsonSchemaConverter writes. Pure.

    {"type":"int16","optional":true,"field":"n"}    "n": {"connect.index":0,"oneOf":[{"type":"null"},
                                                          {"type":"integer","connect.type":"int16"}]}

Rules:
- `title` is a schema's name, `description` its doc; version, parameters and the type stand in connect.* members.
- The place of a field among its fellows is its connect.index: JSON's members have no order.
- Objects are open: a member that the schema does not name is not an error. So under BACKWARD a new column is refused by
  registries, and a subject that is to take one has another compatibility.
- Values are those of JsonConverter without schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.errors import InvalidSchema
from tidelog.schema.connect_avro import DECIMAL

KINDS = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), "integer"),
    **dict.fromkeys(("float", "double"), "number"),
    "boolean": "boolean",
    "string": "string",
    "bytes": "string",
    "array": "array",
    "map": "object",
    "struct": "object",
}
TOLD = {"float": "float32", "double": "float64"}
SAID = {told: kind for kind, told in TOLD.items()}
UNTOLD = ("boolean", "string", "array", "struct")  # kinds that JSON Schema's own word says


def json_schema_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    return _json(schema, None)


def _json(schema: Mapping[str, Any], index: int | None) -> dict[str, Any]:
    place = {} if index is None else {"connect.index": index}
    if schema.get("optional"):
        return {**place, "oneOf": [{"type": "null"}, _json({**schema, "optional": False}, None)]}
    kind = schema.get("type")
    if kind not in KINDS:
        raise InvalidSchema(f"{str(kind)[:80]!r} is not a type of Kafka Connect")
    made: dict[str, Any] = {"type": "number" if schema.get("name") == DECIMAL else KINDS[kind]}
    made |= _parts(schema)
    made |= {"title": schema["name"]} if schema.get("name") else {}
    made |= {"description": schema["doc"]} if schema.get("doc") else {}
    made |= {"default": schema["default"]} if schema.get("default") is not None else {}
    made |= {} if kind in UNTOLD else {"connect.type": TOLD.get(kind, kind)}
    made |= {"connect.version": schema["version"]} if schema.get("version") is not None else {}
    made |= {"connect.parameters": dict(schema["parameters"])} if schema.get("parameters") else {}
    return made | place


def _parts(schema: Mapping[str, Any]) -> dict[str, Any]:
    if schema["type"] == "struct":
        return {"properties": {str(one["field"]): _json(one, at) for at, one in enumerate(schema.get("fields", ()))}}
    if schema["type"] == "array":
        return {"items": _json(schema["items"], None)}
    if schema["type"] != "map":
        return {}
    if schema["keys"]["type"] == "string" and not schema["keys"].get("optional"):
        return {"additionalProperties": _json(schema["values"], None)}
    pair = {"key": _json(schema["keys"], 0), "value": _json(schema["values"], 1)}
    return {"type": "array", "items": {"type": "object", "properties": pair}}


def connect_of(json: Any) -> dict[str, Any]:
    try:
        return _connect(json)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidSchema(f"{str(json)[:80]} is not a schema that JsonSchemaConverter writes ({error!r})") from error


def _connect(json: Mapping[str, Any]) -> dict[str, Any]:
    if "oneOf" in json:
        (other,) = [one for one in json["oneOf"] if one.get("type") != "null"]
        return {**_connect(other), "optional": True}
    told, kind = json.get("connect.type"), json["type"]
    made: dict[str, Any] = {
        "type": (told and SAID.get(told, told)) or {"integer": "int64", "number": "double"}.get(kind, kind)
    }
    if made["type"] == "map":
        made |= _map(json)
    elif kind == "object":
        fields = sorted(json["properties"].items(), key=lambda one: one[1].get("connect.index", 0))
        made = {"type": "struct", "fields": [{**_connect(one), "field": name} for name, one in fields]}
    elif kind == "array":
        made |= {"items": _connect(json["items"])}
    if made["type"] not in KINDS:
        raise InvalidSchema(f"{str(made['type'])[:80]!r} is not a type of Kafka Connect")
    made["optional"] = False
    members = {"name": "title", "doc": "description", "default": "default"}
    members |= {"version": "connect.version", "parameters": "connect.parameters"}
    return made | {name: json[member] for name, member in members.items() if member in json}


def _map(json: Mapping[str, Any]) -> dict[str, Any]:
    if json["type"] == "array":
        pair = json["items"]["properties"]
        return {"keys": _connect(pair["key"]), "values": _connect(pair["value"])}
    return {"keys": {"type": "string", "optional": False}, "values": _connect(json["additionalProperties"])}
