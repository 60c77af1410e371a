"""`typed(...)`: a function DataFrame -> DataFrame that turns a column of bytes into a column of their schema's type.

What it does with which argument is decided when it is called, on the driver: the schema is read and its columns are
known, or it is refused. The work is done by Python workers over Arrow batches (`schema/decoding`), in batch and in
streams alike: in a stage of its own behind any DataFrame, or, as the source's option `decode`, by the stage that reads.

What becomes of a value that cannot be decoded (`on_error`):
    fail          the query fails, with topic, partition, offset and the reason; the default
    null          the value is null
    dead_letter   the value is null, and two columns more say what there was: `_error`, the reason, and `_undecoded`,
                  the bytes; both are null in rows that are fine. `dead_letters` makes two DataFrames of it
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.config import nearest
from tidelog.control.registry import RegistryAddress, registry_at
from tidelog.errors import UndecodableValue, UnknownSchema, UsageError
from tidelog.schema.decoding.decoder import Decoder, Failed, Reader, json_reader, reader_of
from tidelog.spark.ddl import is_ddl, struct_of
from tidelog.spark.row_marks import kept_in_order
from tidelog.spark.schema_registry import NO_SCHEMA, Text, schema_of_id, text_of_id, text_of_subject

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

FAIL, NULL, DEAD_LETTER = ON_ERROR = ("fail", "null", "dead_letter")
ERROR, UNDECODED = "_error", "_undecoded"
SPARK = "SPARK"  # a StructType, for values in JSON
FORMATS = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
PLACE = ("topic", "partition", "offset")
REMEDY = f"on_error='{DEAD_LETTER}' or '{NULL}' goes on without it"

# By which Avro's JSON and JSON Schema's are told apart.
AVRO_TYPES = {"record", "error", "enum", "fixed", "map"}
JSON_TYPES = {"object", "integer", "number", "string", "boolean", "null"}


class Task(NamedTuple):
    """What a worker needs: texts, so that it may be pickled and compared, and be an option of the source."""

    text: Text
    message: str | None
    registry: RegistryAddress | None
    column: str
    on_error: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = decoder_of(self)
        for batch in batches:
            yield decoded(self, decoder, batch)

    @property
    def option(self) -> str:
        """For the source, which then decodes what it reads."""
        return json.dumps(self)


@lru_cache(64)
def task_from(option: str) -> Task:
    text, message, registry, column, on_error = json.loads(option)
    form, said, references = text
    known = Text(form, said, tuple((name, one) for name, one in references))
    return Task(known, message, None if registry is None else RegistryAddress(*registry), column, on_error)


def typed(
    schema: str | Mapping[str, Any] | StructType | None = None,
    *,
    format: str | None = None,
    message: str | None = None,
    references: Mapping[str, str] | None = None,
    registry: str | None = None,
    subject: str | None = None,
    version: int | str = "latest",
    id: int | None = None,
    login_variable: str | None = None,
    column: str = "value",
    on_error: str = FAIL,
) -> Callable[[DataFrame], DataFrame]:
    """For `df.transform(typed(...))`. The column keeps its name and becomes what its schema says; null stays null.

    `schema` is the text of an Avro schema, a JSON Schema or a .proto file (or its descriptor in base64, with `message`
    if it is not the first), or, for values in JSON, a StructType or columns as Spark writes them ("id long, at
    timestamp"). `format` is needed where the text does not tell.
    With `registry`, values have its frame, and the schema may be named by `subject` or `id` instead.
    """
    task = task_of(
        schema,
        format=format,
        message=message,
        references=references,
        registry=registry,
        subject=subject,
        version=version,
        id=id,
        login_variable=login_variable,
        column=column,
        on_error=on_error,
    )
    return typed_by(task)


def typed_by(task: Task) -> Callable[[DataFrame], DataFrame]:
    reader = reader_for(task)

    def transform(rows: DataFrame) -> DataFrame:
        return kept_in_order(rows.mapInArrow(task, typed_schema(rows.schema, task, reader)))  # type: ignore[arg-type]

    return transform


def task_of(
    schema: str | Mapping[str, Any] | StructType | None = None,
    *,
    format: str | None = None,
    message: str | None = None,
    references: Mapping[str, str] | None = None,
    registry: str | None = None,
    subject: str | None = None,
    version: int | str = "latest",
    id: int | None = None,
    login_variable: str | None = None,
    column: str = "value",
    on_error: str = FAIL,
) -> Task:
    """What `typed` is called with, decided."""
    if on_error not in ON_ERROR:
        raise UsageError(f"on_error is {on_error!r}; use {nearest(on_error, ON_ERROR) or ' or '.join(ON_ERROR)}")
    at = None if registry is None else registry_at(registry, login_variable)
    text = _text(schema, format, references or {}, at, subject, version, id)
    return Task(text, message, at, column, on_error)


# --- which schema ----------------------------------------------------------------------------------------------------


def _text(
    schema: Any,
    format: str | None,
    references: Mapping[str, str],
    registry: RegistryAddress | None,
    subject: str | None,
    version: int | str,
    number: int | None,
) -> Text:
    if sum(one is not None for one in (schema, subject, number)) != 1:
        raise UsageError("typed needs one of a schema, a subject and an id; a subject or an id is of a registry")
    if schema is None:
        if registry is None:
            raise UsageError("a subject or an id is given, and no registry; name its address by registry")
        return text_of_id(registry, number) if subject is None else text_of_subject(registry, subject, version)  # type: ignore[arg-type]
    if isinstance(schema, str) and format in (None, "json") and is_ddl(schema):
        schema = struct_of(schema)
    if hasattr(schema, "jsonValue"):
        return Text(SPARK, schema.json())
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return Text(format_of(text, format), text, tuple(references.items()))


def format_of(text: str, said: str | None) -> str:
    if said is not None:
        if said.lower() not in FORMATS:
            raise UsageError(f"{said!r} is not a format; use {', '.join(FORMATS)}")
        return FORMATS[said.lower()]
    if text.lstrip()[:1] in ("[", '"'):
        return "AVRO"
    if text.lstrip()[:1] != "{":
        return "PROTOBUF"
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the schema begins like JSON and is not valid JSON: {error}") from None
    kind = value.get("type")
    if "$schema" in value or "properties" in value or (isinstance(kind, str) and kind in JSON_TYPES - {"string"}):
        return "JSON"
    if isinstance(kind, str) and kind in AVRO_TYPES:
        return "AVRO"
    raise UsageError("the schema may be one of Avro or a JSON Schema; say which by format='avro' or format='json'")


@lru_cache(64)
def reader_for(task: Task) -> Reader:
    text = task.text
    if text.format != SPARK:
        return reader_of(text.format, text.text, dict(text.references), message=task.message, name=task.column)
    from pyspark.sql.types import StructType

    from tidelog.spark.typed_columns import column_of

    return json_reader(column_of(task.column, StructType.fromJson(json.loads(text.text))))


def typed_schema(given: StructType, task: Task, reader: Reader) -> StructType:
    """The columns that come out."""
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    from tidelog.spark.typed_columns import spark_type

    if task.column not in given.names:
        raise UsageError(f"column {task.column!r} does not exist; columns are {', '.join(given.names)}")
    if not isinstance(given[task.column].dataType, BinaryType | StringType):
        kind = given[task.column].dataType.simpleString()
        raise UsageError(f"column {task.column!r} is {kind}; typed takes binary or string")
    fields = [
        StructField(task.column, spark_type(reader.column)) if field.name == task.column else field for field in given
    ]
    if task.on_error == DEAD_LETTER:
        if ERROR in given.names:
            raise UsageError(f"there is a column {ERROR} already; split what failed off by dead_letters first")
        fields += [StructField(ERROR, StringType()), StructField(UNDECODED, BinaryType())]
    return StructType(fields)


# --- in a worker -----------------------------------------------------------------------------------------------------


@lru_cache(64)
def decoder_of(task: Task) -> Decoder:
    """One for a process: tasks that follow find programs and schemas ready."""
    registry = task.registry
    return Decoder(reader_for(task), None if registry is None else lambda number: schema_of_id(registry, number))


def decoded(task: Task, decoder: Decoder, batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    at = batch.schema.get_field_index(task.column)
    values = bytes_in(batch, at)
    made, failed = decoder.decode(values)
    if failed and task.on_error == FAIL:
        raise undecodable(task, batch, failed)
    arrays, names = list(batch.columns), list(batch.schema.names)
    arrays[at] = made
    if task.on_error == DEAD_LETTER:
        arrays += _letters(values, failed)
        names += [ERROR, UNDECODED]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def bytes_in(batch: pa.RecordBatch, at: int) -> Any:
    import pyarrow as pa

    values = batch.column(at)
    return values if pa.types.is_binary(values.type) else values.cast(pa.binary())


def _letters(values: Any, failed: list[Failed]) -> list[Any]:
    import pyarrow as pa

    if not failed:
        return [pa.nulls(len(values), pa.string()), pa.nulls(len(values), pa.binary())]
    reasons: list[str | None] = [None] * len(values)
    bytes_of: list[bytes | None] = [None] * len(values)
    for row, reason in failed:
        reasons[row], bytes_of[row] = reason, values[row].as_py()
    return [pa.array(reasons, pa.string()), pa.array(bytes_of, pa.binary())]


def undecodable(task: Task, batch: pa.RecordBatch, failed: list[Failed]) -> UndecodableValue:
    """A registry may get to know a schema that it does not have yet: that is another error, which is tried again."""
    row, reason = failed[0]
    place = [f"{name} {batch.column(name)[row].as_py()}" for name in PLACE if name in batch.schema.names]
    more = f", and {len(failed) - 1} more of its batch" if len(failed) > 1 else ""
    said = f"column {task.column} of {', '.join(place) or f'row {row}'} cannot be decoded: {reason}{more}"
    return (UnknownSchema if NO_SCHEMA in reason else UndecodableValue)(f"{said}; {REMEDY}")
