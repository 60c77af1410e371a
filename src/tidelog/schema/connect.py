"""Columns of captured tables as Kafka Connect describes them, in the forms that Debezium writes. Pure.

    {"type": "int64", "optional": true, "name": "io.debezium.time.MicroTimestamp", "version": 1}

FORMS has each of them once, by a name of ours. The name of a kind (`column_types.KINDS`) is the form in which Debezium
writes that kind when nothing else is set; beside them are what only databases have (a uuid, an enum), and what other
settings of Debezium make of the same columns: `iso_...` by time.precision.mode=isostring and
interval.handling.mode=string, `connect_...` by time.precision.mode=connect.

Rules:
- `to_connect(from_connect(schema))` is the schema where FORMS has it, its members in the order of Connect's
  JsonConverter. `default` and `field` are a column's and not its type's: who writes them puts them behind, in this
  order.
- A name of a schema that FORMS does not have says what a value means to somebody else: the column is what its plain
  type is.
- A form says which values stand in JSON; its kind says which column holds them. A time of a day has no kind of its own,
  and is the number or the text that it is in JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidelog.errors import InvalidSchema
from tidelog.schema.bounds import bounded

PARTS = ("items", "keys", "values")  # of an array, and of a map
VERSION = 1  # of every form that has a name
SCALE, PRECISION = "scale", "connect.decimal.precision"
WHO = "did a JsonConverter with schemas.enable=true write it?"


@dataclass(frozen=True, slots=True)
class ColumnType:
    form: str
    optional: bool = True
    parameters: tuple[tuple[str, str], ...] = ()  # SCALE and PRECISION, `length` of bits, `allowed` of enums
    parts: tuple[tuple[str, ColumnType], ...] = ()  # by PARTS, or by the names of a struct's fields


class Form(NamedTuple):
    type: str
    name: str
    kind: str
    fields: tuple[tuple[str, ColumnType], ...] = ()  # of a struct that always has the same
    doc: str = ""


_SCALED = (("scale", ColumnType("int", False)), ("value", ColumnType("binary", False)))
_PLACE = (
    *(("x", ColumnType("double", False)), ("y", ColumnType("double", False))),
    *(("wkb", ColumnType("binary")), ("srid", ColumnType("int"))),
)
FORMS = {
    "boolean": Form("boolean", "", "boolean"),
    "byte": Form("int8", "", "byte"),
    "short": Form("int16", "", "short"),
    "int": Form("int32", "", "int"),
    "long": Form("int64", "", "long"),
    "float": Form("float", "", "float"),
    "double": Form("double", "", "double"),
    "decimal": Form("bytes", "org.apache.kafka.connect.data.Decimal", "decimal"),
    "string": Form("string", "", "string"),
    "binary": Form("bytes", "", "binary"),
    "json": Form("string", "io.debezium.data.Json", "json"),
    "date": Form("int32", "io.debezium.time.Date", "date"),  # days since 1970
    "timestamp": Form("string", "io.debezium.time.ZonedTimestamp", "timestamp"),
    "timestamp_ntz": Form("int64", "io.debezium.time.MicroTimestamp", "timestamp_ntz"),
    "interval": Form("int64", "io.debezium.time.MicroDuration", "interval"),  # microseconds; a month is 30.4375 days
    "struct": Form("struct", "", "struct"),
    "list": Form("array", "", "list"),
    "map": Form("map", "", "map"),
    "timestamp_ms": Form("int64", "io.debezium.time.Timestamp", "timestamp_ntz"),
    "time": Form("int64", "io.debezium.time.MicroTime", "long"),
    "time_ms": Form("int32", "io.debezium.time.Time", "int"),
    "time_tz": Form("string", "io.debezium.time.ZonedTime", "string"),
    "year": Form("int32", "io.debezium.time.Year", "int"),
    "uuid": Form("string", "io.debezium.data.Uuid", "string"),
    "enum": Form("string", "io.debezium.data.Enum", "string"),
    "enum_set": Form("string", "io.debezium.data.EnumSet", "string"),
    "xml": Form("string", "io.debezium.data.Xml", "string"),
    "ltree": Form("string", "io.debezium.data.Ltree", "string"),
    "tsvector": Form("string", "io.debezium.data.Tsvector", "string"),
    "bits": Form("bytes", "io.debezium.data.Bits", "binary"),  # the lowest byte first
    "any_decimal": Form(
        "struct", "io.debezium.data.VariableScaleDecimal", "decimal", _SCALED, "Variable scaled decimal"
    ),
    "point": Form("struct", "io.debezium.data.geometry.Point", "struct", _PLACE, "Geometry (POINT)"),
    "iso_date": Form("string", "io.debezium.time.IsoDate", "date"),
    "iso_time": Form("string", "io.debezium.time.IsoTime", "string"),
    "iso_timestamp": Form("string", "io.debezium.time.IsoTimestamp", "timestamp_ntz"),
    "iso_interval": Form("string", "io.debezium.time.Interval", "string"),
    "connect_date": Form("int32", "org.apache.kafka.connect.data.Date", "date"),
    "connect_time": Form("int32", "org.apache.kafka.connect.data.Time", "int"),
    "connect_timestamp": Form("int64", "org.apache.kafka.connect.data.Timestamp", "timestamp_ntz"),
}
_BY_SCHEMA: dict[Any, str] = {(one.type, one.name): form for form, one in FORMS.items()}


def to_connect(column: ColumnType) -> dict[str, Any]:
    """Connect's schema, without the name and the default of a field."""
    form = FORMS[column.form]
    said: dict[str, Any] = {"type": form.type}
    if form.type == "struct":
        said["fields"] = [{**to_connect(one), "field": name} for name, one in form.fields or column.parts]
    else:
        said |= {name: to_connect(one) for name, one in column.parts}
    said["optional"] = column.optional
    if form.name:
        said |= {"name": form.name, "version": VERSION}
    if form.doc:
        said["doc"] = form.doc
    if column.parameters:
        said["parameters"] = dict(column.parameters)
    return said


def from_connect(schema: Mapping[str, Any]) -> ColumnType:
    """Of a field, a key or a whole row, as it stands in a record. What Connect does not have is refused."""
    with bounded():
        try:
            return _column(schema)
        except (AttributeError, TypeError, ValueError) as error:
            raise InvalidSchema(f"{str(schema)[:80]} is not a schema of Kafka Connect ({error}); {WHO}") from error


def _column(schema: Mapping[str, Any]) -> ColumnType:
    kind = schema.get("type")
    form = _BY_SCHEMA.get((kind, schema.get("name"))) or _BY_SCHEMA.get((kind, ""))
    if form is None:
        raise InvalidSchema(f"{str(kind)[:80]!r} is not a type of Kafka Connect; {WHO}")
    parts = [(part, schema[part]) for part in PARTS if part in schema]
    if not FORMS[form].fields:
        parts += [(str(one.get("field")), one) for one in schema.get("fields", ())]
    return ColumnType(
        form,
        bool(schema.get("optional", False)),
        tuple(dict(schema.get("parameters", ())).items()),
        tuple((part, _column(one)) for part, one in parts),
    )
