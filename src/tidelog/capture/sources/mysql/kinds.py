"""What a column of MySQL or MariaDB is, how Connect's schema describes it, and its values as JSON texts.

    information_schema's COLUMN_TYPE --parse--> Kind <-- the binlog's table map (table_map.py)
    Kind -> Connect schema, converter of a value in the text protocol, name of its type in the binlog

Rules:
- A value has one JSON text, whether the snapshot or the binlog tells it (`packed.py` has the other half).
- Zero dates are `null`, and the epoch in a column that is NOT NULL, as Debezium has it.
- A BIGINT UNSIGNED above 2^63-1 is its true number. Debezium writes it as a negative one.
"""

from __future__ import annotations

import json
import re
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address
from json.encoder import encode_basestring
from typing import Any
from uuid import UUID

from tidelog.errors import UsageError

EPOCH_DAY = date(1970, 1, 1).toordinal()
EPOCH = datetime(1970, 1, 1)
MICROS_PER_DAY = 86_400_000_000
# Bytes of the fixed types that the binlog has as BINARY(n), and tells by nothing else.
FIXED = {"uuid": 16, "inet6": 16, "inet4": 4}
_INTEGERS = {"tinyint": "int8", "smallint": "int16", "mediumint": "int24", "int": "int32", "bigint": "int64"}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "nchar", "nvarchar"}
_BLOBS = {"tinyblob", "blob", "mediumblob", "longblob", "varbinary"}
_SHAPES = {"geometry", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"}
_GEOMETRIES = _SHAPES | {"geometrycollection", "geomcollection"}
_TYPE = re.compile(r"(?P<base>[a-z0-9_]+)\s*(?:\((?P<words>.*?)\))?(?P<rest>[^()]*)\Z", re.DOTALL)

Converter = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class MysqlKind:
    name: (
        str  # int8 ... int64, decimal, float, double, bit, year, date, time, datetime, timestamp, text, bytes, binary,
    )
    # enum, set, json, uuid, inet6, inet4, point, geometry
    unsigned: bool = False
    size: int = 0  # bits of BIT, bytes of BINARY, digits of DECIMAL
    scale: int = 0  # of DECIMAL; digits of the fraction of a time
    allowed: tuple[str, ...] = ()  # of ENUM and SET
    nullable: bool = True


def parse(declared: str, nullable: bool) -> MysqlKind:
    """Of information_schema's COLUMN_TYPE: `int(10) unsigned`, `enum('a','b')`."""
    found = _TYPE.match(declared.strip())
    base, words, rest = (
        (found["base"].lower(), found["words"] or "", found["rest"].lower()) if found else (declared, "", "")
    )
    numbers = [int(word) for word in words.split(",")] if re.fullmatch(r"\d+(,\d+)?", words) else []
    kind = _kind_of(base, words, numbers)
    if kind is None:
        raise UsageError(
            f"a column of type {declared!r} cannot be captured; leave its table out of the capture's tables"
        )
    unsigned = "unsigned" in rest and base in {*_INTEGERS, "decimal", "float", "double"}
    return replace(kind, unsigned=unsigned, nullable=nullable)


def _kind_of(base: str, words: str, numbers: list[int]) -> MysqlKind | None:
    first = numbers[0] if numbers else 0
    if base in _INTEGERS:
        return MysqlKind(_INTEGERS[base])
    if base == "decimal":
        return MysqlKind("decimal", size=first, scale=numbers[1] if len(numbers) > 1 else 0)
    if base in {"bit", "binary"}:
        return MysqlKind(base, size=first or 1)
    if base in {"time", "datetime", "timestamp"}:
        return MysqlKind(base, scale=first)
    if base in {"enum", "set"}:
        return MysqlKind(base, allowed=_quoted_words(words))
    if base in {"float", "double", "year", "date", "json", "point", *FIXED}:
        return MysqlKind(base)
    kinds = (("text", _TEXTS), ("bytes", _BLOBS), ("geometry", _GEOMETRIES))
    return next((MysqlKind(name) for name, bases in kinds if base in bases), None)


def _quoted_words(words: str) -> tuple[str, ...]:
    return tuple(word.replace("''", "'") for word in re.findall(r"'((?:[^']|'')*)'", words))


def in_binlog(kind: MysqlKind) -> MysqlKind:
    """The same kind as far as the binlog tells it: what is compared to know whether a column is still what it was."""
    if kind.name in FIXED:
        return MysqlKind("binary", size=FIXED[kind.name], nullable=kind.nullable)
    return kind


# Connect ------------------------------------------------------------------------------------------------------------

_PLAIN = {"float": "float", "double": "double", "text": "string", "bytes": "bytes", "binary": "bytes"}
_NAMED = {
    "year": ("int32", "io.debezium.time.Year"),
    "date": ("int32", "io.debezium.time.Date"),
    "time": ("int64", "io.debezium.time.MicroTime"),
    "timestamp": ("string", "io.debezium.time.ZonedTimestamp"),
    "json": ("string", "io.debezium.data.Json"),
    "uuid": ("string", "io.debezium.data.Uuid"),
}
_INT_TYPES = {"int8": ("int16", "int16"), "int16": ("int16", "int32"), "int24": ("int32", "int32")}
_INT_TYPES |= {"int32": ("int32", "int64"), "int64": ("int64", "int64")}
_WKB = {"type": "bytes", "field": "wkb"}
_SRID = {"type": "int32", "optional": True, "field": "srid"}


def connect_schema(kind: MysqlKind, default: str | None = None) -> Mapping[str, Any]:
    """`default` is the JSON text of the column's default."""
    schema = _connect_schema(kind)
    return schema if default is None else {**schema, "default": json.loads(default)}


def _connect_schema(kind: MysqlKind) -> dict[str, Any]:
    optional, name = kind.nullable, kind.name
    if name in _INT_TYPES:
        return {"type": _INT_TYPES[name][kind.unsigned], "optional": optional}
    if name in _PLAIN or name in {"inet6", "inet4"}:
        return {"type": _PLAIN.get(name, "string"), "optional": optional}
    if name in _NAMED:
        return _named(_NAMED[name][0], optional, _NAMED[name][1])
    if name == "decimal":
        parameters = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.size)}
        return _named("bytes", optional, "org.apache.kafka.connect.data.Decimal", parameters)
    if name == "bit":
        if kind.size == 1:
            return {"type": "boolean", "optional": optional}
        return _named("bytes", optional, "io.debezium.data.Bits", {"length": str(kind.size)})
    if name == "datetime":
        return _named("int64", optional, f"io.debezium.time.{'Micro' if kind.scale > 3 else ''}Timestamp")
    if name in {"enum", "set"}:
        which = "Enum" if name == "enum" else "EnumSet"
        return _named("string", optional, f"io.debezium.data.{which}", {"allowed": ",".join(kind.allowed)})
    return _geometry_schema(name == "point", optional)


def _named(type_: str, optional: bool, name: str, parameters: Mapping[str, str] | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": type_, "optional": optional, "name": name, "version": 1}
    return {**schema, "parameters": parameters} if parameters else schema


def _geometry_schema(point: bool, optional: bool) -> dict[str, Any]:
    axes = [{"type": "double", "optional": False, "field": axis} for axis in ("x", "y")] if point else []
    fields = [*axes, {**_WKB, "optional": point}, _SRID]
    name, doc = ("Point", "Geometry (POINT)") if point else ("Geometry", "Geometry")
    ends = {"optional": optional, "name": f"io.debezium.data.geometry.{name}", "version": 1, "doc": doc}
    return {"type": "struct", "fields": fields, **ends}


# JSON texts, of what both protocols have ----------------------------------------------------------------------------


def unscaled_text(number: int) -> str:
    """The base64 of Java's BigInteger.toByteArray, which is how Connect writes a Decimal."""
    length = (number if number >= 0 else number + 1).bit_length() // 8 + 1
    return bytes_text(number.to_bytes(length, "big", signed=True))


def bytes_text(data: bytes) -> str:
    return f'"{b64encode(data).decode()}"'


def bits_text(number: int, size: int) -> str:
    if size == 1:
        return "true" if number else "false"
    return bytes_text(number.to_bytes((size + 7) // 8, "little"))


def float_text(value: float) -> str:
    """The shortest number that is this single-precision one."""
    for digits in (6, 7, 8):
        text = f"{value:.{digits}g}"
        if struct.unpack("<f", struct.pack("<f", float(text)))[0] == value:
            return repr(float(text))
    return repr(float(f"{value:.9g}"))


def date_text(year: int, month: int, day: int, nullable: bool) -> str:
    days = _days(year, month, day)
    return _zero("0", nullable) if days is None else str(days)


def datetime_text(parts: tuple[int, int, int], micros: int, scale: int, nullable: bool) -> str:
    """`micros` since midnight."""
    days = _days(*parts)
    if days is None:
        return _zero("0", nullable)
    total = days * MICROS_PER_DAY + micros
    return str(total if scale > 3 else total // 1000)


def timestamp_text(seconds: int, micros: int, scale: int, nullable: bool) -> str:
    if not seconds and not micros:
        return _zero('"1970-01-01T00:00:00Z"', nullable)
    fraction = f".{micros:06d}"[: scale + 1] if scale else ""
    return f'"{(EPOCH + timedelta(seconds=seconds)).isoformat()}{fraction}Z"'


def geometry_text(data: bytes, point: bool) -> str:
    """Of the four bytes of the SRID and the well-known binary that the server keeps."""
    srid = int.from_bytes(data[:4], "little")
    rest = f'"wkb":{bytes_text(data[4:])},"srid":{srid or "null"}}}'
    if not point:
        return "{" + rest
    x, y = struct.unpack_from("<dd" if data[4] else ">dd", data, 9)
    return f'{{"x":{x!r},"y":{y!r},{rest}'


def fixed_text(name: str, data: bytes) -> str:
    """Of a UUID or an address, as the server writes it."""
    if name == "uuid":
        return f'"{UUID(bytes=data)}"'
    if name == "inet4":
        return f'"{IPv4Address(data)}"'
    address = IPv6Address(data)
    mapped = address.ipv4_mapped
    if mapped:
        return f'"::ffff:{mapped}"'
    return f'"::{IPv4Address(int(address))}"' if 1 << 16 <= int(address) < 1 << 32 else f'"{address}"'


def _days(year: int, month: int, day: int) -> int | None:
    if not (year and month and day):
        return None
    try:
        return date(year, month, day).toordinal() - EPOCH_DAY
    except ValueError:  # ALLOW_INVALID_DATES
        return None


def _zero(epoch: str, nullable: bool) -> str:
    return "null" if nullable else epoch


# JSON texts, of the text protocol -----------------------------------------------------------------------------------


def from_text(kind: MysqlKind) -> Converter:
    """Of a value as a query gives it: str, or bytes for what is binary. Not of NULL."""
    name, nullable, scale = kind.name, kind.nullable, kind.scale
    if name in _INT_TYPES:
        return lambda value: str(int(value))  # ZEROFILL
    simple = _SIMPLE.get(name)
    if simple is not None:
        return simple
    if name == "decimal":
        return lambda value: unscaled_text(_unscaled(value, scale))
    if name == "bit":
        return lambda value: bits_text(int.from_bytes(value, "big"), kind.size)
    if name == "date":
        return lambda value: date_text(*_date_parts(value), nullable)
    if name == "datetime":
        return lambda value: datetime_text(_date_parts(value), _time_micros(value[11:]), scale, nullable)
    if name == "timestamp":
        return lambda value: _timestamp_of(value, scale, nullable)
    return lambda value: geometry_text(value, name == "point")


def _unscaled(text: str, scale: int) -> int:
    whole, _, fraction = text.partition(".")
    return int(whole + fraction.ljust(scale, "0")[:scale])


def _date_parts(text: str) -> tuple[int, int, int]:
    return int(text[:4]), int(text[5:7]), int(text[8:10])


def _time_micros(text: str) -> int:
    negative = text.startswith("-")
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    micros = ((int(hours) * 60 + int(minutes)) * 60 + int(whole)) * 1_000_000 + int(fraction.ljust(6, "0"))
    return -micros if negative else micros


def _timestamp_of(text: str, scale: int, nullable: bool) -> str:
    days = _days(*_date_parts(text))
    micros = 0 if days is None else days * MICROS_PER_DAY + _time_micros(text[11:])
    return timestamp_text(*divmod(micros, 1_000_000), scale, nullable)


def json_text(value: Any) -> str:
    """MySQL's JSON, from both protocols the same: without the spaces that its text protocol has."""
    return encode_basestring(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


_SIMPLE: dict[str, Converter] = {
    "text": encode_basestring,
    "enum": encode_basestring,
    "set": encode_basestring,
    "uuid": encode_basestring,
    "inet6": encode_basestring,
    "inet4": encode_basestring,
    "json": lambda value: json_text(json.loads(value)),
    "bytes": bytes_text,
    "binary": bytes_text,
    "year": lambda value: str(int(value)),
    "time": lambda value: str(_time_micros(value)),
    "double": lambda value: repr(float(value)),
    # Asked for as a double: the server would round the text of a float to six digits.
    "float": lambda value: float_text(struct.unpack("<f", struct.pack("<f", float(value)))[0]),
}

# Defaults -----------------------------------------------------------------------------------------------------------

_NOW = re.compile(r"(current_timestamp|now|localtime)", re.IGNORECASE)


def default_text(kind: MysqlKind, told: str | None, quoted: bool, generated: bool) -> str | None:
    """The JSON text of a default as information_schema tells it. MariaDB has literals `quoted`; MySQL has them bare,
    and says of an expression that it is `generated`. An expression has no value, but for the time of now: that is the
    epoch where NULL is not allowed, as Debezium has it.
    """
    if told is None or (quoted and told.upper() == "NULL"):
        return None
    if _NOW.match(told) and kind.name in {"datetime", "timestamp"}:
        return None if kind.nullable else from_text(kind)("1970-01-01 00:00:00")
    bits = re.fullmatch(r"b'([01]*)'", told)
    if bits:
        return bits_text(int(bits[1] or "0", 2), kind.size) if kind.name == "bit" else None
    literal = _literal(told) if quoted else (None if generated else told)
    return None if literal is None else _converted(kind, literal)


def _literal(told: str) -> str | None:
    if re.fullmatch(r"-?\d+(\.\d+)?(e[-+]?\d+)?", told, re.IGNORECASE):
        return told
    found = re.fullmatch(r"'((?:[^'\\]|''|\\.)*)'", told, re.DOTALL)
    return re.sub(r"\\(.)", r"\1", found[1].replace("''", "'")) if found else None


def _converted(kind: MysqlKind, literal: str) -> str | None:
    value: Any = literal.encode() if kind.name in {"bytes", "binary"} else literal
    if kind.name == "binary":
        value = value.ljust(kind.size, b"\0")
    try:
        text = from_text(kind)(value)
    except (ValueError, TypeError, IndexError):
        return None
    return None if text == "null" else text


def utc_text(micros: int) -> str:
    """Microseconds since 1970 as the server writes a time."""
    return datetime.fromtimestamp(0, UTC).replace(tzinfo=None).__add__(timedelta(microseconds=micros)).isoformat(" ")
