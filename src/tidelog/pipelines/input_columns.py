"""What can be said of an input's columns before Spark is there: that their types exist, and event time and key, too.

Pure. Of values whose schema is not of columns (Avro, Protobuf, JSON Schema, a registry's), and of columns that only
Spark can read, nothing is said here: the run does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.errors import UsageError
from tidelog.pipelines.app import RECORD_TIME, Input
from tidelog.spark.ddl import Column, columns_of, is_ddl

TIMESTAMP = "timestamp"
OF_THE_SOURCE = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def check_input(one: Input) -> None:
    """Refused with the file and the line where it is declared."""
    try:
        columns = _columns(one)
        if columns is not None:
            _check_time(one, columns)
            _check_key(one, columns)
    except UsageError as error:
        raise UsageError(f"{one.place}: {one.kind} {one.name!r}: {error}") from None


def _columns(one: Input) -> list[Column] | None:
    """None where they are not known."""
    if one.value is None:
        return None if one.decoding or one.captured else [Column(name, "") for name in OF_THE_SOURCE]
    if isinstance(one.value, str):
        return columns_of(one.value) if is_ddl(one.value) else None
    _check_text(one.value)
    fields = getattr(one.value, "fields", None)  # a StructType, without importing Spark for it
    if not isinstance(fields, list):
        return None
    return [Column(field.name, field.dataType.typeName()) for field in fields]


def _check_text(value: Any) -> None:
    """{"id": "long"} is what many try first. A schema has a `type`, a `$ref`, or something that is not a text."""
    if isinstance(value, Mapping) and value and all(isinstance(one, str) for one in value.values()):
        if any(name == "type" or name.startswith("$") for name in value):
            return
        text = ", ".join(f"{name} {kind}" for name, kind in value.items())
        raise UsageError(f"value is a dict of columns; write them as one text, value={text!r}")


def _check_time(one: Input, columns: list[Column]) -> None:
    if one.time is None or one.time.column == RECORD_TIME:
        return
    name = one.time.column
    found = next((column for column in columns if column.name == name), None)
    if found is None:
        there = ", ".join(column.name for column in columns)
        its = f"name one of them, or {RECORD_TIME!r} for the record's own"
        raise UsageError(f"event_time is {name!r}, which is not one of its columns ({there}); {its}")
    if found.type not in (TIMESTAMP, ""):
        raise UsageError(f"event_time is {name!r}, a {found.type}; declare the column as a timestamp")


def _check_key(one: Input, columns: list[Column]) -> None:
    names = [column.name for column in columns]
    if missing := [name for name in one.key if name not in names]:
        raise UsageError(f"its key has {missing[0]!r}, and its columns are {', '.join(names)}")
