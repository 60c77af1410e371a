"""A captured table as a table of an app: which columns its topic has, and its envelopes as upserts by key.

    what the topic has    the record that a capture writes of the table (`control/captures.py`); else the schema in the
                          topic's own records (Connect's JsonConverter with schemas), or in a registry
                          (`captured_formats.py`); else `value=` and `key=`
    columns               those of `value=`, or all of the table's. They are kept by app and table when they are first
                          found, so that a column that comes later changes nothing for an app that runs

Rules:
- An envelope's `after` is the row, whether it was read by a snapshot (r), created or updated. `d`, and a record without
  a value, end the key; `t` ends all keys of its partition. A changed key is a delete and a create.
- A value is what its form says (`schema/connect.py`): days become a date, unscaled bytes a decimal. A time without a
  zone is taken to be in UTC. A number whose scale is its own (PostgreSQL's `numeric`) is text, unless `value=` says
  otherwise.
- A large value that an update did not send is the one that the row had (`operators/joins/upserts.py`).
- A form that is another one than it was when the columns were kept is refused: what was written before would be read as
  something else. A rebuild does not mend that; a name of its own for the table does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control.captures import (
    AVRO,
    JSON,
    ROW,
    CapturedColumns,
    CapturedTable,
    read_captures,
    read_columns,
    write_columns,
)
from tidelog.control.reading import read, span
from tidelog.control.registry import RegistryAddress
from tidelog.errors import InvalidSchema, UsageError
from tidelog.pipelines.captured_formats import check_format, in_registry
from tidelog.schema.column_types import OF_SPARK
from tidelog.schema.connect import FORMS, PRECISION, SCALE, ColumnType, from_connect, to_connect
from tidelog.schema.decoding.column import Column as Decoded
from tidelog.spark.ddl import is_ddl, struct_of
from tidelog.spark.typed_columns import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

UNAVAILABLE = "__debezium_unavailable_value"
DECIMAL_MAX = 38  # digits that Spark has
DECIMAL_BYTES = 16
LOOKED_AT = 100  # records of a topic, for one with a schema
TEXTS = ("string", "json", "xml", "ltree", "tsvector")


class CapturedShape(NamedTuple):
    """What a topic has, as an app reads it."""

    columns: tuple[tuple[str, ColumnType], ...]
    key: tuple[str, ...]
    envelope: str
    wanted: Mapping[str, Any]  # Spark's types, where `value=` names them
    capture: str = ""  # that writes it, if one of ours does
    format: str = JSON


# Which columns --------------------------------------------------------------------------------------------------------


def shape_of(
    cluster: Cluster,
    app: str,
    table: str,
    topic: str,
    key: Sequence[str],
    value: Any,
    registry: RegistryAddress | None = None,
) -> CapturedShape:
    """As it was when the app first asked; `UsageError` where nobody says what the topic has."""
    written = _recorded(cluster, topic)
    found: CapturedColumns | None
    if written is not None:
        capture, format, found = written.capture, written.format, _columns_of(written)
        check_format(topic, format, registry, written.registry)
    elif registry is not None:
        capture, (format, found) = "", in_registry(registry, topic) or (AVRO, None)
    else:
        capture, format, found = "", JSON, _in_records(cluster, topic)
    shape = _shape_of(cluster, app, table, topic, key, value, found)
    return shape._replace(capture=capture, format=format)


def _shape_of(
    cluster: Cluster,
    app: str,
    table: str,
    topic: str,
    key: Sequence[str],
    value: Any,
    found: CapturedColumns | None,
) -> CapturedShape:
    kept = read_columns(cluster, app, table)
    if kept is not None and kept.topic == topic and value is None:
        _check_same(table, kept, found)
        return _shape(kept, key)
    if found is None and value is None:
        raise UsageError(
            f"nobody says what topic {topic} has: no capture of this cluster writes it, and its records have no schema;"
            " start the capture first, or give value= and key="
        )
    if value is not None:
        return declared_shape(value, key, found)
    assert found is not None
    write_columns(cluster, app, table, found)
    return _shape(found, key)


def declared_shape(value: Any, key: Sequence[str], found: CapturedColumns | None = None) -> CapturedShape:
    """By `value=`; what it does not say (the form of each value, the key) is `found`'s, or Debezium's default."""
    struct: StructType = struct_of(value) if isinstance(value, str) and is_ddl(value) else value
    if not hasattr(struct, "fields"):
        raise UsageError("a captured table has columns as Spark writes them: value='id long, name string'")
    known = {} if found is None else {name: from_connect(schema) for name, schema in found.columns}
    if found is not None and (missing := [one.name for one in struct.fields if one.name not in known]):
        raise UsageError(f"{found.topic} has no column {missing[0]!r}; it has {', '.join(known)}")
    columns = tuple((one.name, known.get(one.name) or default_form(one.dataType)) for one in struct.fields)
    names = tuple(key) or (() if found is None else found.key)
    envelope = "debezium" if found is None else found.envelope
    return _checked(CapturedShape(columns, names, envelope, {one.name: one.dataType for one in struct.fields}))


def default_form(kind: DataType) -> ColumnType:
    """That in which Debezium writes such a column when nothing else is set."""
    name = kind.typeName()
    if name == "decimal":
        said = ((SCALE, str(kind.scale)), (PRECISION, str(kind.precision)))  # type: ignore[attr-defined]
        return ColumnType("decimal", parameters=said)
    if name == "array":
        return ColumnType("list", parts=(("items", default_form(kind.elementType)),))  # type: ignore[attr-defined]
    found = OF_SPARK.get(name if name != "integer" else "int")
    if found not in FORMS or found in ("struct", "map"):
        raise UsageError(f"a captured table's column cannot be declared as {kind.simpleString()}; leave value= out")
    return ColumnType(found)


def _shape(kept: CapturedColumns, key: Sequence[str]) -> CapturedShape:
    columns = tuple((name, from_connect(schema)) for name, schema in kept.columns)
    return _checked(CapturedShape(columns, tuple(key) or kept.key, kept.envelope, {}))


def _checked(shape: CapturedShape) -> CapturedShape:
    names = [name for name, _ in shape.columns]
    if not shape.key:
        raise UsageError("the captured table has no primary key; name the columns that identify a row by key=")
    if missing := [name for name in shape.key if name not in names]:
        raise UsageError(f"its key has {missing[0]!r}, and its columns are {', '.join(names)}")
    return shape


def _check_same(table: str, kept: CapturedColumns, found: CapturedColumns | None) -> None:
    now = {} if found is None else dict(found.columns)
    for name, schema in kept.columns:
        if name in now and _form(now[name]) != _form(schema):
            raise UsageError(
                f"column {name!r} of {kept.topic} was written as {_form(schema)} when this app first read it, and is"
                f" written as {_form(now[name])} now: what stands in the topic has both; declare the table by another"
                f" name than {table!r}, with a topic that was captured again"
            )


def _form(schema: Mapping[str, Any]) -> str:
    column = from_connect(schema)
    scale = dict(column.parameters).get(SCALE)
    return column.form if scale is None else f"{column.form}({scale})"


def _recorded(cluster: Cluster, topic: str) -> CapturedTable | None:
    every = (one for capture in read_captures(cluster).values() for one in capture.tables.values())
    return next((one for one in every if one.topic == topic), None)


def _columns_of(one: CapturedTable) -> CapturedColumns:
    columns = tuple((str(column["name"]), column["connect"]) for column in one.columns)
    return CapturedColumns(one.topic, columns, one.key, one.envelope)


def _in_records(cluster: Cluster, topic: str) -> CapturedColumns | None:
    """From the first record that has a schema of Connect's, as a Debezium connector writes them by default."""
    at = TopicPartition(topic, 0)
    there = span(cluster, at, committed=True)
    if there is None:
        return None
    for _, row in read(cluster, {at: there.start}, {at: min(there.end, there.start + LOOKED_AT)}):
        try:
            value, key = json.loads(row.value or b"null"), json.loads(row.key or b"null")
            fields = {one["field"]: one for one in value["schema"]["fields"]}
            rows = from_connect(fields["after"])
            names = tuple(str(one["field"]) for one in key["schema"]["fields"]) if key is not None else ()
        except (ValueError, KeyError, TypeError, InvalidSchema):
            continue
        return CapturedColumns(topic, tuple((name, to_connect(one)) for name, one in rows.parts), names, "debezium")
    return None


# As Spark has them ----------------------------------------------------------------------------------------------------


def physical(column: ColumnType) -> DataType:
    """What stands in JSON."""
    from pyspark.sql import types as T

    form = FORMS[column.form]
    if form.type == "struct":
        parts = form.fields or column.parts
        return T.StructType([T.StructField(name, physical(one)) for name, one in parts])
    parts_of = dict(column.parts)
    if form.type == "array":
        return T.ArrayType(physical(parts_of["items"]))
    if form.type == "map":
        return T.MapType(T.StringType(), physical(parts_of["values"]))
    if column.form == "timestamp":
        return T.TimestampType()
    plain = FORMS[from_connect({"type": form.type}).form]  # what the form means to Connect is for `logical`
    return spark_type(Decoded("", plain.kind))


def envelope_type(shape: CapturedShape) -> StructType:
    """Of a value, with Connect's schemas around it or without."""
    from pyspark.sql.types import StringType, StructField, StructType

    rows = StructType([StructField(name, physical(one)) for name, one in shape.columns])
    if shape.envelope == ROW:
        return rows
    keys = StructType([field for field in rows.fields if field.name in shape.key])
    inside = [StructField("op", StringType()), StructField("before", keys), StructField("after", rows)]
    if shape.format != JSON:
        return StructType(inside)
    return StructType([*inside, StructField("payload", StructType(inside))])


def logical(value: Column, column: ColumnType, wanted: Any = None) -> Column:
    """A column of the app, of what stands in JSON."""
    from pyspark.sql import functions as F

    form = column.form
    if form in ("date", "connect_date"):
        made = F.date_from_unix_date(value)
    elif form in ("timestamp_ntz", "timestamp_ms", "connect_timestamp"):
        made = F.timestamp_micros(value) if form == "timestamp_ntz" else F.timestamp_millis(value)
    elif form == "iso_date":
        made = value.cast("date")
    elif form == "decimal":
        said = dict(column.parameters)
        scale = int(said.get(SCALE, "0"))
        kind = f"decimal({min(int(said.get(PRECISION, DECIMAL_MAX)), DECIMAL_MAX)},{scale})"
        made = _number(value, F.lit(scale)).cast(kind)
    elif form == "any_decimal":
        made = _number(value["value"], value["scale"])
    elif form == "list":
        inner = dict(column.parts)["items"]
        made = F.transform(value, lambda one: logical(one, inner))
    else:
        made = value
    return made if wanted is None else made.cast(wanted)


def _number(value: Column, scale: Column) -> Column:
    """The digits of an unscaled number, as Connect's Decimal has it, the highest byte first: by SQL, in the JVM."""
    from pyspark.sql import functions as F

    text = F.hex(value)
    below = F.substring(text, 1, 1) >= F.lit("8")
    plain = F.when(below, F.translate(text, "0123456789ABCDEF", "FEDCBA9876543210")).otherwise(text)
    padded = F.lpad(plain, 2 * DECIMAL_BYTES, "0")
    parts = [F.conv(F.substring(padded, 1 + 8 * at, 8), 16, 10).cast("decimal(38,0)") for at in range(4)]
    number = parts[0]
    for one in parts[1:]:
        number = (number * F.lit(2**32).cast("decimal(10,0)") + one).cast("decimal(38,0)")
    number = F.when(below, number + F.lit(1).cast("decimal(1,0)")).otherwise(number).cast("decimal(38,0)")
    digits = F.lpad(number.cast("string"), F.greatest(F.length(number.cast("string")), scale + 1), F.lit("0"))
    whole = F.substring(digits, F.lit(1), F.length(digits) - scale)
    point = F.when(scale > 0, F.concat(F.lit("."), F.substring(digits, F.length(digits) - scale + 1, scale)))
    said = F.concat(F.when(below, "-").otherwise(""), whole, F.coalesce(point, F.lit("")))
    too_large = F.raise_error(F.lit(f"a number of the captured table has more than {DECIMAL_MAX} digits; leave it out"))
    return F.when(F.length(value) > DECIMAL_BYTES, too_large.cast("string")).otherwise(said)


def unsent(value: Column, column: ColumnType) -> Column | None:
    """Whether the value says that it was not sent; None where such a column always is."""
    from pyspark.sql import functions as F

    if column.form in TEXTS or column.form == "enum":
        return value == F.lit(UNAVAILABLE)
    if column.form in ("binary", "decimal", "bits"):
        return value == F.lit(UNAVAILABLE.encode())
    if column.form == "list" and dict(column.parts)["items"].form in TEXTS:
        return F.try_element_at(value, F.lit(1)) == F.lit(UNAVAILABLE)
    return None


def rows_of(shape: CapturedShape, gone: str) -> list[Column]:
    """The columns of an upsert: the table's, whether its key is gone, and what `as_changelog(captured=True)` takes."""
    from pyspark.sql import functions as F

    from tidelog.pipelines.operators.joins.upserts import TRUNCATED, UNSENT

    framed = shape.envelope != ROW
    row = _inside(shape, "after") if framed else F.col("value")
    op = _inside(shape, "op") if framed else F.lit(None).cast("string")
    flags = {name: unsent(row[name], one) for name, one in shape.columns if name not in shape.key}
    lacking = {name: flag for name, flag in flags.items() if flag is not None}
    columns = {
        name: logical(_said(shape, row, name, lacking.get(name)), one, shape.wanted.get(name))
        for name, one in shape.columns
    }
    for name in shape.key:
        form, others = dict(shape.columns)[name], [_said(shape, one, name) for one in _keys(shape)]
        columns[name] = F.coalesce(columns[name], *(logical(one, form, shape.wanted.get(name)) for one in others))
    names = F.array_compact(F.array(*(F.when(flag, F.lit(name)) for name, flag in lacking.items())))
    truncated = F.coalesce(op == "t", F.lit(False))
    return [
        *(columns[name].alias(name) for name in (*shape.key, *(name for name in columns if name not in shape.key))),
        (row.isNull() & ~truncated).alias(gone),
        truncated.alias(TRUNCATED),
        F.when(F.size(names) > 0, names.cast("array<string>")).alias(UNSENT),
    ]


def _inside(shape: CapturedShape, name: str) -> Column:
    """A member of the envelope, which may stand in Connect's schemas."""
    from pyspark.sql import functions as F

    plain = F.col(f"value.{name}")
    return plain if shape.format != JSON else F.coalesce(plain, F.col(f"value.payload.{name}"))


def _said(shape: CapturedShape, row: Column, name: str, lacking: Column | None = None) -> Column:
    """A column of a row as JSON has it; null where it was not sent. Avro has no short numbers, and times as text."""
    from pyspark.sql import functions as F

    found = row[name] if shape.format != AVRO else row[name].cast(physical(dict(shape.columns)[name]))
    return found if lacking is None else F.when(~lacking, found)


def _keys(shape: CapturedShape) -> list[Column]:
    """Where else the key stands: in the row as it was, and in the record's own key."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructField, StructType

    if shape.format != JSON:
        return [*([F.col("value.before")] if shape.envelope != ROW else []), F.col("key")]
    kinds = [StructField(name, physical(dict(shape.columns)[name])) for name in shape.key]
    inside = StructType([*kinds, StructField("payload", StructType(kinds))])
    said = F.from_json(F.col("key").cast("string"), inside)
    before = [F.col("value.before"), F.col("value.payload.before")] if shape.envelope != ROW else []
    return [*before, said, said["payload"]]
