"""Kafka Connect's schemas as Avro's, and back, in the form that Confluent's AvroConverter writes. Pure.

    {"type":"int16","optional":true,"field":"n"}      {"name":"n","type":["null",{"type":"int","connect.type":"int16"}],
                                                       "default":null}
    a struct named shop.public.kv.Value               a record Value in the namespace shop.public.kv
    org.apache.kafka.connect.data.Decimal             bytes with logicalType decimal, of 64 digits if none are said

Rules:
- What Avro cannot say stands in properties: connect.name, .version, .parameters, .default, .doc, .type.
- An optional one is a union with null, which comes first unless there is a default.
- A record is written whole where it first stands, and by its name after that.
- Names are Avro's: another letter becomes `_`, as Debezium's field.name.adjustment.mode=avro has it (`avro_name`).
- `connect_of(avro_of(schema))` is the schema, but for such names.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.errors import InvalidSchema
from tidelog.schema.connect import PRECISION, SCALE

NAMESPACE, UNNAMED = "io.confluent.connect.avro", "ConnectDefault"
ENTRY = "MapEntry"
DECIMAL = "org.apache.kafka.connect.data.Decimal"
PRECISION_UNSAID = 64
LOGICAL = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}
PLAIN = {
    **dict.fromkeys(("int8", "int16", "int32"), "int"),
    "int64": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
BACK = {"int": "int32", "long": "int64"}


def avro_name(name: str) -> str:
    """Of a field, or of one part of a full name."""
    made = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return f"_{made}" if not made or made[0].isdigit() else made


def avro_of(schema: Mapping[str, Any]) -> Any:
    """Avro's schema as its JSON has it. `InvalidSchema` where two fields would have one name."""
    return _avro(schema, {}, "")


def _avro(schema: Mapping[str, Any], known: dict[str, Any], space: str) -> Any:
    made = _base(schema, known, space)
    if not schema.get("optional"):
        return made
    return [made, "null"] if schema.get("default") is not None else ["null", made]


def _base(schema: Mapping[str, Any], known: dict[str, Any], space: str) -> Any:
    kind = schema.get("type")
    if kind == "struct":
        return _record(schema, known, space)
    made: dict[str, Any]
    if kind == "array":
        made = {"type": "array", "items": _avro(schema["items"], known, space)}
    elif kind == "map":
        made = _map(schema, known, space)
    elif kind in PLAIN:
        made = {"type": PLAIN[kind]}
    else:
        raise InvalidSchema(f"{str(kind)[:80]!r} is not a type of Kafka Connect")
    made |= _decimal(schema) | _said(schema)
    return made["type"] if len(made) == 1 else made


def _record(schema: Mapping[str, Any], known: dict[str, Any], space: str) -> Any:
    parts = [avro_name(part) for part in str(schema.get("name") or f"{NAMESPACE}.{UNNAMED}").split(".")]
    inside, simple = ".".join(parts[:-1]), parts[-1]
    full = ".".join(parts)
    if full in known:
        return simple if inside == space else full
    made: dict[str, Any] = {"type": "record", "name": simple}
    made |= {"namespace": inside} if inside and inside != space else {}
    known[full] = made
    made["fields"] = _fields(schema.get("fields", ()), known, inside, full)
    return made | _said({key: value for key, value in schema.items() if key != "default"})


def _fields(fields: Sequence[Mapping[str, Any]], known: dict[str, Any], space: str, of: str) -> list[dict[str, Any]]:
    made: dict[str, dict[str, Any]] = {}
    for one in fields:
        name = avro_name(str(one["field"]))
        if name in made:
            raise InvalidSchema(
                f"two fields of {of} would both be called {name!r} in Avro, one of them {one['field']!r}"
            )
        said: dict[str, Any] = {"name": name, "type": _avro(one, known, space)}
        if one.get("default") is not None:
            said["default"] = _default(one, one["default"])
        elif one.get("optional"):
            said["default"] = None
        made[name] = said
    return list(made.values())


def _map(schema: Mapping[str, Any], known: dict[str, Any], space: str) -> dict[str, Any]:
    keys = schema["keys"]
    if keys["type"] == "string" and not keys.get("optional"):
        return {"type": "map", "values": _avro(schema["values"], known, space)}
    pair = [{**keys, "field": "key"}, {**schema["values"], "field": "value"}]
    named = {"type": "record", "name": ENTRY}
    named |= {"namespace": NAMESPACE} if space != NAMESPACE else {}
    if f"{NAMESPACE}.{ENTRY}" in known:
        return {"type": "array", "items": f"{NAMESPACE}.{ENTRY}"}
    known[f"{NAMESPACE}.{ENTRY}"] = named
    return {"type": "array", "items": {**named, "fields": _fields(pair, known, NAMESPACE, ENTRY)}}


def _decimal(schema: Mapping[str, Any]) -> dict[str, Any]:
    if schema.get("name") != DECIMAL:
        return {}
    said = schema.get("parameters") or {}
    return {"scale": int(said.get(SCALE, 0)), "precision": int(said.get(PRECISION, PRECISION_UNSAID))}


def _said(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What Avro has no words for."""
    told = {"connect.doc": schema.get("doc"), "connect.version": schema.get("version")}
    told |= {"connect.parameters": dict(schema["parameters"]) if schema.get("parameters") else None}
    told |= {"connect.default": None if schema.get("default") is None else _default(schema, schema["default"])}
    told |= {"connect.name": schema.get("name")}
    told |= {"connect.type": schema["type"] if schema["type"] in ("int8", "int16") else None}
    return {name: value for name, value in told.items() if value is not None} | _logical(schema)


def _logical(schema: Mapping[str, Any]) -> dict[str, Any]:
    name, said = schema.get("name"), schema.get("parameters") or {}
    if name == DECIMAL:
        scale, precision = int(said.get(SCALE, 0)), int(said.get(PRECISION, PRECISION_UNSAID))
        return {"logicalType": "decimal"} if 0 <= scale <= precision else {}
    return {"logicalType": LOGICAL[name]} if name in LOGICAL else {}


def _default(schema: Mapping[str, Any], value: Any) -> Any:
    """As Avro writes a default: bytes are a text of their numbers."""
    if schema["type"] == "bytes":
        return b64decode(value).decode("latin-1")
    if schema["type"] == "struct":
        fields = [(avro_name(str(one["field"])), one, value.get(one["field"])) for one in schema["fields"]]
        return {name: None if inner is None else _default(one, inner) for name, one, inner in fields}
    if schema["type"] == "array":
        return [_default(schema["items"], one) for one in value]
    return value


# Back -----------------------------------------------------------------------------------------------------------------


def connect_of(avro: Any) -> dict[str, Any]:
    """The schema of Connect that an Avro schema was made of, or would be read as."""
    try:
        return _connect(avro, {}, "")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidSchema(f"{str(avro)[:80]} is not a schema that AvroConverter writes ({error!r})") from error


def _connect(avro: Any, known: dict[str, Any], space: str) -> dict[str, Any]:
    if isinstance(avro, list):
        others = [one for one in avro if one != "null"]
        if len(others) != 1 or len(avro) != 2:
            raise InvalidSchema("a union of more than null and one other has no column")
        return {**_connect(others[0], known, space), "optional": True}
    if isinstance(avro, str):
        named = known.get(avro) or known.get(f"{space}.{avro}")
        return dict(named) if named is not None else _plain(avro, {})
    kind = avro["type"]
    if isinstance(kind, dict | list):
        return _connect(kind, known, space)
    if kind == "record":
        return _struct(avro, known, space)
    if kind == "array":
        items = _connect(avro["items"], known, space)
        if items.get("name") == f"{NAMESPACE}.{ENTRY}":
            by = {
                one["field"]: {name: said for name, said in one.items() if name != "field"} for one in items["fields"]
            }
            return {"type": "map", "keys": by["key"], "values": by["value"], **_told(avro)}
        return {"type": "array", "items": items, **_told(avro)}
    if kind == "map":
        keys = {"type": "string", "optional": False}
        return {"type": "map", "keys": keys, "values": _connect(avro["values"], known, space), **_told(avro)}
    return _plain(kind, avro)


def _struct(avro: Mapping[str, Any], known: dict[str, Any], space: str) -> dict[str, Any]:
    inside = avro.get("namespace", space)
    full = avro["name"] if "." in avro["name"] or not inside else f"{inside}.{avro['name']}"
    fields = []
    for one in avro["fields"]:
        column = _connect(one["type"], known, full.rpartition(".")[0])
        fields.append({**column, "field": one["name"]})
    made = {"type": "struct", "fields": fields, **_told(avro)}
    known[full] = made = made | {"name": full}
    return dict(made)


def _plain(kind: str, avro: Mapping[str, Any]) -> dict[str, Any]:
    if kind in ("enum", "fixed"):
        return {"type": "string" if kind == "enum" else "bytes", "optional": False}
    said = {"type": avro.get("connect.type") or BACK.get(kind, kind), **_told(avro)}
    if said["type"] not in PLAIN:
        raise InvalidSchema(f"{kind[:80]!r} is not a type that Kafka Connect has")
    if avro.get("logicalType") == "decimal" and "name" not in said:
        parameters = {SCALE: str(avro.get("scale", 0)), PRECISION: str(avro["precision"])}
        said |= {"name": DECIMAL, "version": 1, "parameters": parameters}
    for name, logical in LOGICAL.items():
        if avro.get("logicalType") == logical and "name" not in said:
            said |= {"name": name, "version": 1}
    if "default" in said and kind == "bytes":
        said["default"] = b64encode(said["default"].encode("latin-1")).decode()
    return said


def _told(avro: Mapping[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"optional": False}
    for name in ("name", "version", "doc", "parameters", "default"):
        if f"connect.{name}" in avro:
            said[name] = avro[f"connect.{name}"]
    return said
