"""Captured tables whose records have a schema registry's frame: what the registry says of them, how they are decoded.

    what the topic has    the record of a capture, as always; else the subject TOPIC-value, as a Debezium connector with
                          Confluent's converters has registered it
    decoded               by the stage that reads, as any input with a registry; the key by a stage of its own

Rules:
- A value is decoded by the schema that it was written with to the columns that the app has kept: a column that came
  later is skipped, one that is gone is null.
- Partitions are aligned by the time of the records, since most databases' times are plain numbers in Avro.
- What comes out is what JSON would have given (`captured_tables.physical`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tidelog.control.captures import AVRO, DEBEZIUM, JSON, JSON_SCHEMA, ROW, CapturedColumns
from tidelog.control.registry import RegistryAddress, ask
from tidelog.errors import InvalidSchema, UsageError
from tidelog.schema import connect_json
from tidelog.schema.connect import ColumnType, from_connect, to_connect
from tidelog.schema.connect_avro import avro_of, connect_of

if TYPE_CHECKING:
    from tidelog.pipelines.captured_tables import CapturedShape


def in_registry(registry: RegistryAddress, topic: str) -> tuple[str, CapturedColumns] | None:
    """The format, and what the newest schemas of the topic's subjects say; None where there are none."""
    value, key = (_newest(registry, f"{topic}-{side}") for side in ("value", "key"))
    if value is None:
        return None
    format, held = value
    try:
        rows, envelope = _rows(held)
        names = tuple(str(one["field"]) for one in key[1]["fields"]) if key is not None else ()
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"the schema of subject {topic}-value is not of Debezium's envelopes, and not of rows: {error!r}"
        ) from None
    columns = tuple((name, to_connect(one)) for name, one in from_connect(rows).parts)
    return format, CapturedColumns(topic, columns, names, envelope)


def _newest(registry: RegistryAddress, subject: str) -> tuple[str, Mapping[str, Any]] | None:
    answer = ask(registry, f"/subjects/{quote(subject, safe='')}/versions/latest")
    if answer is None:
        return None
    kind = answer.get("schemaType", "AVRO")
    if kind not in ("AVRO", "JSON"):
        raise UsageError(f"the schema of subject {subject} is {kind}; a captured table is read in Avro or JSON")
    try:
        held = json.loads(answer["schema"])
        return (AVRO, connect_of(held)) if kind == "AVRO" else (JSON_SCHEMA, connect_json.connect_of(held))
    except (ValueError, InvalidSchema) as error:
        raise UsageError(f"the schema of subject {subject} is not one of a database's table: {error}") from error


def _rows(held: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    fields = {str(one["field"]): one for one in held["fields"]}
    return (fields["after"], DEBEZIUM) if {"after", "op"} <= fields.keys() else (held, ROW)


def check_format(topic: str, format: str, registry: RegistryAddress | None, at: str) -> None:
    """`at` is where the capture says that its schemas are."""
    if registry is None and format != JSON:
        where = f" at {at}" if at else ""
        raise UsageError(f"{topic} is written as {format}, with schemas in a registry{where}; name it by registry=")
    if registry is not None and format == JSON:
        raise UsageError(f"{topic} is written as plain JSON; leave registry= out")


# As the source decodes them -------------------------------------------------------------------------------------------


def value_schema(shape: CapturedShape) -> Any:
    """Of an envelope, or of a row; what `task_of` takes."""
    from tidelog.pipelines.captured_tables import envelope_type

    if shape.format != AVRO:
        return envelope_type(shape)
    rows = _struct("Value", shape.columns)
    if shape.envelope == ROW:
        return json.dumps(avro_of({**rows, "optional": False}))
    text = {"type": "string", "optional": True, "field": "op"}
    fields = [{**rows, "field": "before"}, {**rows, "field": "after"}, text]
    return json.dumps(avro_of({"type": "struct", "fields": fields, "optional": False, "name": "Envelope"}))


def key_schema(shape: CapturedShape) -> Any:
    from pyspark.sql.types import StructField, StructType

    from tidelog.pipelines.captured_tables import physical

    columns = [(name, dict(shape.columns)[name]) for name in shape.key]
    if shape.format != AVRO:
        return StructType([StructField(name, physical(one)) for name, one in columns])
    return json.dumps(avro_of({**_struct("Key", columns), "optional": False}))


def _struct(name: str, columns: Sequence[tuple[str, ColumnType]]) -> dict[str, Any]:
    fields = [{**_plain(to_connect(one)), "field": column, "optional": True} for column, one in columns]
    return {"type": "struct", "fields": fields, "optional": True, "name": name}


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Without what makes another column of it than JSON has: a decimal is bytes."""
    made: dict[str, Any] = {"type": schema["type"], "optional": bool(schema.get("optional"))}
    if schema["type"] == "struct":
        fields = [{**_plain(one), "field": one["field"]} for one in schema["fields"]]
        return made | {"fields": fields, "name": schema.get("name")}
    return made | {part: _plain(schema[part]) for part in ("items", "keys", "values") if part in schema}
