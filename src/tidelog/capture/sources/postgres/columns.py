"""What a type of PostgreSQL is in an envelope: its Connect schema, the reader of its values, its way back, its default.

A type is found by its name where PostgreSQL or an extension brings it (a name is the same in every database, a number
is not), by its element for an array, by its base for a domain, by its labels for an enum. A type that is none of these
(a composite, a box, one of somebody's own) is a string: PostgreSQL's own text of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tidelog.capture.change import UNAVAILABLE
from tidelog.capture.sources.postgres import values as v
from tidelog.capture.sources.postgres.arrays import json_array, json_hstore
from tidelog.capture.sources.postgres.values import Reader

NO_MODIFIER = -1
BITS_UNBOUND = 2**31 - 1
NESTED_TYPES = 32  # a domain of a domain of an array: deeper is not a type
MARKER_TEXT = f'"{UNAVAILABLE}"'
MARKER_BYTES = v.base64_text(UNAVAILABLE.encode())
MARKER_NUMBERS = str(list(UNAVAILABLE.encode())).replace(" ", "")
MARKER_BITS = (
    "[" + ",".join(("false", "true")[byte >> bit & 1] for byte in UNAVAILABLE.encode() for bit in range(8)) + "]"
)

Plain = Callable[[str], str]
Connect = dict[str, Any]


class Type(NamedTuple):
    """A row of pg_type, and the labels of an enum."""

    id: int
    name: str
    kind: str  # b: a base type, d: domain, e: enum, c: composite, r: range, ...
    element: int = 0  # of an array
    delimiter: str = ","
    base: int = 0  # of a domain
    base_modifier: int = NO_MODIFIER
    base_dimensions: int = 0
    labels: tuple[str, ...] = ()
    visible: bool = True  # its operators too, so that keys of it can be compared


class PostgresKind(NamedTuple):
    connect: Connect  # without `optional` and `default`
    read: Reader
    plain: Plain | None = None  # None where a key's text cannot be had again, so that there is no range of keys
    unavailable: str = MARKER_TEXT
    zero: str | None = None  # what Debezium names as default of a column whose default is a function


def _named(kind: str, name: str, **more: Any) -> Connect:
    return {"type": kind, "name": name, "version": 1, **more}


def _string(name: str | None = None, read: Reader = v.json_text, plain: Plain | None = v.plain_text) -> PostgresKind:
    return PostgresKind({"type": "string"} if name is None else _named("string", name), read, plain)


def _integer(kind: str) -> PostgresKind:
    return PostgresKind({"type": kind}, v.json_verbatim, str, zero="0")


STRING = _string()
POINT_FIELDS = [
    {"type": "double", "optional": False, "field": "x"},
    {"type": "double", "optional": False, "field": "y"},
    {"type": "bytes", "optional": True, "field": "wkb"},
    {"type": "int32", "optional": True, "field": "srid"},
]
DECIMAL_FIELDS = [
    {"type": "int32", "optional": False, "field": "scale"},
    {"type": "bytes", "optional": False, "field": "value"},
]
SIMPLE: dict[str, PostgresKind] = {
    "int2": _integer("int16"),
    "int4": _integer("int32"),
    "int8": _integer("int64"),
    "oid": _integer("int64"),
    "float4": PostgresKind({"type": "float"}, v.json_float, v.plain_float, zero="0.0"),
    "float8": PostgresKind({"type": "double"}, v.json_float, v.plain_float, zero="0.0"),
    "bool": PostgresKind({"type": "boolean"}, v.json_boolean, v.plain_boolean),
    "bytea": PostgresKind({"type": "bytes"}, v.json_bytes, v.plain_bytes, MARKER_BYTES),
    "date": PostgresKind(_named("int32", "io.debezium.time.Date"), v.json_date, v.plain_date, zero="0"),
    "timetz": _string("io.debezium.time.ZonedTime", v.json_zoned_time),
    "interval": PostgresKind(_named("int64", "io.debezium.time.MicroDuration"), v.json_interval, zero="0"),
    "uuid": _string("io.debezium.data.Uuid")._replace(zero='"00000000-0000-0000-0000-000000000000"'),
    "json": _string("io.debezium.data.Json"),
    "jsonb": _string("io.debezium.data.Json"),
    "xml": _string("io.debezium.data.Xml"),
    "tsvector": _string("io.debezium.data.Tsvector"),
    "ltree": _string("io.debezium.data.Ltree"),
    "hstore": _string("io.debezium.data.Json", json_hstore, None),
    "money": PostgresKind(
        _named("bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"}), v.json_money, None
    ),
    "point": PostgresKind(
        {
            "type": "struct",
            "fields": POINT_FIELDS,
            "name": "io.debezium.data.geometry.Point",
            "version": 1,
            "doc": "Geometry (POINT)",
        },
        v.json_point,
    ),
}


def kind_of(number: int, modifier: int, dimensions: int, types: Mapping[int, Type], nested: int = 0) -> PostgresKind:
    found = types.get(number)
    if found is None or nested > NESTED_TYPES:
        return STRING
    if found.kind == "d":
        own = found.base_modifier if found.base_modifier != NO_MODIFIER else modifier
        return kind_of(found.base, own, found.base_dimensions or dimensions, types, nested + 1)
    if found.kind == "e":
        return _string()._replace(
            connect=_named("string", "io.debezium.data.Enum", parameters={"allowed": ",".join(found.labels)})
        )
    if found.element:
        return _array(kind_of(found.element, modifier, 0, types, nested + 1), found, types, dimensions)
    made = MODIFIED.get(found.name)
    kind = made(modifier) if made is not None else SIMPLE.get(found.name, STRING)
    return kind if found.visible else kind._replace(plain=None)


def connect_of(kind: PostgresKind, *, optional: bool, default: str | None) -> Connect:
    """The Connect schema of a column: in the order in which Connect writes it."""
    ends = ("name", "version", "doc", "parameters")
    connect = {word: told for word, told in kind.connect.items() if word not in ends}
    connect["optional"] = optional
    connect.update({word: kind.connect[word] for word in ends if word in kind.connect})
    told = default_of(default, kind) if default else None
    if told is not None and told != "null":
        connect["default"] = json.loads(told)
    return connect


_LITERAL = re.compile(r"'((?:[^']|'')*)'(?:::[^']+)?")
_NUMBER = re.compile(r"\(?(-?[0-9.]+(?:e[+-]?\d+)?)\)?(?:::[^']+)?")
_FUNCTION = re.compile(r"\(?[A-Za-z0-9_.]+\(.*", re.DOTALL)
_TIMES = ("CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIMESTAMP", "LOCALTIME")


def default_of(expression: str, kind: PostgresKind) -> str | None:
    """The JSON text of a default as pg_get_expr tells it, or None where it is not a constant."""
    if expression in ("true", "false"):
        return expression if kind.connect["type"] == "boolean" else None
    literal = _LITERAL.fullmatch(expression) or _NUMBER.fullmatch(expression)
    try:
        if literal is not None:
            return kind.read(literal[1].replace("''", "'").encode())
    except (ValueError, ArithmeticError):
        return None
    return kind.zero if _FUNCTION.fullmatch(expression) or expression.startswith(_TIMES) else None


def _array(element: PostgresKind, found: Type, types: Mapping[int, Type], dimensions: int) -> PostgresKind:
    of = types.get(found.element)
    required = of is not None and of.kind == "e"  # Debezium's items of an enum are required
    items = connect_of(element, optional=not required, default=None)
    unavailable = _marker(element)
    connect: Connect = {"type": "array", "items": items}
    for _ in range(dimensions - 1):
        connect = {"type": "array", "items": {**connect, "optional": True}}
        unavailable = f"[{unavailable}]"
    read = json_array(element.read, max(dimensions, 1), of.delimiter if of is not None else ",")
    return PostgresKind(connect, read, None, unavailable)


def _marker(element: PostgresKind) -> str:
    """Of an array whose value was not sent: the marker's bytes where the elements are numbers, as Debezium has it."""
    kind = element.connect["type"]
    if kind in ("string", "bytes", "struct"):
        return f"[{element.unavailable}]"
    return MARKER_BITS if kind == "boolean" else MARKER_NUMBERS


def _numeric(modifier: int) -> PostgresKind:
    if modifier < 4:
        connect = {
            "type": "struct",
            "fields": DECIMAL_FIELDS,
            "name": "io.debezium.data.VariableScaleDecimal",
            "version": 1,
            "doc": "Variable scaled decimal",
        }
        marker = f'{{"scale":0,"value":{MARKER_BYTES}}}'
        return PostgresKind(
            connect, v.json_variable_decimal, v.plain_variable_decimal, marker, '{"scale":0,"value":"AA=="}'
        )
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    scale = (scale ^ 1024) - 1024  # eleven bits with a sign
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    connect = _named("bytes", "org.apache.kafka.connect.data.Decimal", parameters=parameters)
    return PostgresKind(connect, v.json_decimal(scale), v.plain_decimal(scale), MARKER_BYTES, '"AA=="')


def _timestamp(modifier: int) -> PostgresKind:
    if 0 <= modifier <= 3:
        connect = _named("int64", "io.debezium.time.Timestamp")
        return PostgresKind(connect, v.json_timestamp_ms, v.plain_timestamp_ms, zero="0")
    connect = _named("int64", "io.debezium.time.MicroTimestamp")
    return PostgresKind(connect, v.json_timestamp_us, v.plain_timestamp_us, zero="0")


def _zoned_timestamp(modifier: int) -> PostgresKind:
    digits = modifier if modifier >= 0 else 6
    zero = f'"1970-01-01T00:00:00{"." + "0" * digits if digits else ""}Z"'
    connect = _named("string", "io.debezium.time.ZonedTimestamp")
    return PostgresKind(connect, v.json_zoned(digits), v.plain_zoned, zero=zero)


def _time(modifier: int) -> PostgresKind:
    if 0 <= modifier <= 3:
        return PostgresKind(_named("int32", "io.debezium.time.Time"), v.json_time_ms, v.plain_time_ms, zero="0")
    return PostgresKind(_named("int64", "io.debezium.time.MicroTime"), v.json_time_us, v.plain_time_us, zero="0")


def _bits(modifier: int) -> PostgresKind:
    length = modifier if modifier > 0 else BITS_UNBOUND
    connect = _named("bytes", "io.debezium.data.Bits", parameters={"length": str(length)})
    return PostgresKind(connect, v.json_bits, None, MARKER_BYTES)


def _bit(modifier: int) -> PostgresKind:
    return PostgresKind({"type": "boolean"}, v.json_bit) if modifier == 1 else _bits(modifier)


MODIFIED: dict[str, Callable[[int], PostgresKind]] = {
    "numeric": _numeric,
    "timestamp": _timestamp,
    "timestamptz": _zoned_timestamp,
    "time": _time,
    "bit": _bit,
    "varbit": _bits,
}
