"""When a record happened, for partitions that catch up together: its timestamp, or a field of its value.

A field is named with dots (`event.at`). It is a timestamp, a date, a number of milliseconds since 1970 or a time as
ISO 8601 writes it; without a zone it is UTC. A number that is a time of our days in seconds, and one before 1973 in
milliseconds, is said once in the log: partitions would be aligned a thousand times too loosely, and nobody saw it.
How the value is written (`AlignBy`):

    neither schema nor registry      JSON
    schema                           Avro, Protobuf or a JSON Schema, without frames
    registry                         with frames of a registry's: each value is read with the schema that it names
    both                             with frames, read with the schema that is given

A record that has no such field, or none that is a time, or that cannot be read, has no time: it holds nobody back. A
schema that has no such field is refused. A registry that cannot be reached is an error: without times nothing would be
aligned, and rows would be dropped in silence.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tidelog.errors import UsageError
from tidelog.record.columns import Row
from tidelog.spark.options import AlignBy

if TYPE_CHECKING:
    from tidelog.control.registry import RegistryAddress
    from tidelog.schema.decoding.column import Column
    from tidelog.schema.decoding.decoder import Decoder, Reader
    from tidelog.schema.schema import Schema

VALUE = "value"
TIMES = ("timestamp", "timestamp_ntz", "date", "int", "long", "float", "double", "decimal", "string", "json")
IDS = slice(1, 5)  # of a frame
LIKE_SECONDS = range(10**8, 10**11)  # 1973 to 5138 in seconds; the first three years in milliseconds
LARGEST = (1 << 63) - 1

TimeOf = Callable[[Row], int | None]


def time_reader(by: AlignBy) -> TimeOf:
    """Refuses what can never be read."""
    if by.is_record_time:
        return lambda row: row.timestamp
    if by.schema is None and by.registry is None:
        return lambda row: _time(_field(_json(row.value), by.path), by)
    if by.schema is not None:
        _check(reader_of_schema(by).column, by)
    if by.schema is not None and by.registry is None:
        return lambda row: _decoded(_decoder_of_schema(by), row.value, by)
    return lambda row: _decoded(_decoder_of_frame(by, row.value or b""), row.value, by)


def _time(found: Any, by: AlignBy) -> int | None:
    """In milliseconds."""
    from datetime import UTC, date, datetime
    from decimal import Decimal

    if isinstance(found, str):
        found = _iso(found)
    if isinstance(found, date) and not isinstance(found, datetime):
        found = datetime(found.year, found.month, found.day)
    if isinstance(found, datetime):
        zoned = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        return int(zoned.timestamp() * 1000)
    if not isinstance(found, int | float | Decimal) or isinstance(found, bool):
        return None
    try:
        time = int(found)
    except (ValueError, OverflowError):  # Python's JSON has NaN and infinities
        return None
    if time in LIKE_SECONDS:
        _say_seconds(by.field, time)
    return time if -LARGEST <= time <= LARGEST else None


_said: set[str] = set()  # fields


def _say_seconds(field: str, time: int) -> None:
    """Once for a field: there may be a million such records. No error: rows of those years are rows, too."""
    if field not in _said:
        _said.add(field)
        logging.getLogger(__name__).warning(
            "alignBy is %r, which has %d: numbers are milliseconds there, and this looks like seconds. Partitions are "
            "aligned a thousand times too loosely, and a replay may drop rows as late: align by a field in milliseconds"
            ", or by a text as ISO 8601 has it",
            field,
            time,
        )


def _iso(text: str) -> Any:
    from datetime import datetime

    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _field(value: Any, path: list[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _json(value: bytes | None) -> Any:
    import json

    try:
        return json.loads(value or b"null")
    except (ValueError, RecursionError):  # nested deeper than Python goes
        return None


# --- values with a schema --------------------------------------------------------------------------------------------


@lru_cache(16)
def reader_of_schema(by: AlignBy) -> Reader:
    from tidelog.schema.decoding.decoder import reader_of
    from tidelog.spark.typed_values import format_of

    assert by.schema is not None
    return reader_of(format_of(by.schema, by.format), by.schema, {}, message=by.message, name=VALUE)


def _check(column: Column, by: AlignBy) -> None:
    for name in by.path:
        found = next((child for child in column.children if column.kind == "struct" and child.name == name), None)
        if found is None:
            there = ", ".join(child.name for child in column.children) or f"a {column.kind}"
            raise UsageError(f"alignBy is {by.field!r}, and alignSchema has no {name!r} there; it has {there}")
        column = found
    if column.kind not in TIMES:
        raise UsageError(f"alignBy is {by.field!r}, which is a {column.kind}, not a time; name another field")


@lru_cache(16)
def _decoder_of_schema(by: AlignBy) -> Decoder:
    from tidelog.schema.decoding.decoder import Decoder
    from tidelog.spark.schema_registry import schema_of_id

    registry = _registry(by)
    return Decoder(reader_of_schema(by), None if registry is None else lambda number: schema_of_id(registry, number))


def _registry(by: AlignBy) -> RegistryAddress | None:
    from tidelog.control.registry import registry_at

    return None if by.registry is None else registry_at(by.registry, by.login_variable)


def _decoder_of_frame(by: AlignBy, value: bytes) -> Decoder | None:
    from tidelog.spark.schema_registry import schema_of_id

    if by.schema is not None:
        return _decoder_of_schema(by)
    if value[:1] != b"\0" or len(value) < IDS.stop:
        return None
    number = int.from_bytes(value[IDS], "big", signed=True)
    registry = _registry(by)
    assert registry is not None
    schema = schema_of_id(registry, number)
    return None if isinstance(schema, str) else _decoder_of_id(by, number, _message(schema, value))


@lru_cache(256)
def _decoder_of_id(by: AlignBy, number: int, message: str | None) -> Decoder:
    from tidelog.schema.decoding.decoder import Decoder, reader_of
    from tidelog.spark.schema_registry import schema_of_id, text_of_id

    registry = _registry(by)
    assert registry is not None
    text = text_of_id(registry, number)
    reader = reader_of(text.format, text.text, dict(text.references), message=message, name=VALUE)
    return Decoder(reader, lambda known: schema_of_id(registry, known))


def _message(schema: Schema, value: bytes) -> str | None:
    """Which message of its file a value of Protobuf is; its frame has the place."""
    if schema.format != "PROTOBUF":
        return None
    from tidelog.schema.decoding.decoder import compiled
    from tidelog.schema.decoding.protobuf_program import name_at

    _, offsets, data = _array(value).buffers()
    kinds, *_ = compiled().frames(compiled().Rows(1, 0, None, offsets, data), True)
    return name_at(schema.model, kinds[0][1]) if kinds else None


def _decoded(decoder: Decoder | None, value: bytes | None, by: AlignBy) -> int | None:
    if decoder is None or value is None:
        return None
    made, failed = decoder.decode(_array(value))
    if failed:
        return None
    try:
        return _time(_field(made[0].as_py(), by.path), by)
    except (ValueError, OverflowError):  # a year that Python has no date for
        return None


def _array(value: bytes) -> Any:
    import pyarrow as pa

    return pa.array([value], pa.binary())
