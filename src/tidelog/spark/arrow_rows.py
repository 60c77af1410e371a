"""Decoded columns as an Arrow record batch with the columns of Spark's Kafka connector.

Keys, values and offsets are the codec's own memory. Columns that are the same in every row (topic, partition, kind of
timestamp) are made once, for as many rows as came at once so far, and sliced. Spark compares the schema with its own,
to the names of nested fields, and takes no dictionaries.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelog.client.metadata import TopicPartition
from tidelog.errors import MalformedBatch
from tidelog.record.arrow import binary_array, header_children
from tidelog.record.columns import Columns

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
WITH_HEADERS = (*COLUMNS, "headers")
CREATE_TIME, APPEND_TIME = 0, 1


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    kinds = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(name, kinds[name]) for name in columns])


class ArrowRows:
    """Of one partition."""

    def __init__(self, at: TopicPartition, columns: Sequence[str]) -> None:
        self.at = at
        self.schema = arrow_schema(columns)
        self._repeated: dict[tuple[str, int | str], Any] = {}

    def batch(self, columns: Columns, start: int, end: int) -> pa.RecordBatch:
        """The rows with offsets from `start` up to and without `end`."""
        import pyarrow as pa

        batch = pa.RecordBatch.from_arrays([self._column(field, columns) for field in self.schema], schema=self.schema)
        if columns.batches[0].base_offset >= start and columns.batches[-1].last_offset < end:
            return batch
        offsets = columns.offsets
        first = bisect_left(offsets, start)
        return batch.slice(first, bisect_left(offsets, end) - first)

    def _column(self, field: Any, columns: Columns) -> Any:
        import pyarrow as pa

        offsets, timestamps, keys, values, _ = columns.parts
        match field.name:
            case "key":
                return binary_array(keys, columns.count)
            case "value":
                return binary_array(values, columns.count)
            case "topic":
                return self._constant(field, self.at.topic, columns.count)
            case "partition":
                return self._constant(field, self.at.partition, columns.count)
            case "offset":
                return pa.Array.from_buffers(field.type, columns.count, [None, pa.py_buffer(offsets)])
            case "timestamp":
                return self._timestamps(field, timestamps, columns.count)
            case "timestampType":
                return self._timestamp_types(field, columns)
            case _:
                return _headers(columns, field.type)

    def _constant(self, field: Any, value: int | str, count: int) -> Any:
        import pyarrow as pa

        made = self._repeated.get((field.name, value))
        if made is None or len(made) < count:
            made = self._repeated[field.name, value] = pa.repeat(pa.scalar(value, field.type), count)
        return made.slice(0, count)

    def _timestamps(self, field: Any, timestamps: Any, count: int) -> Any:
        import pyarrow as pa

        given = pa.Array.from_buffers(pa.timestamp("ms", "UTC"), count, [None, pa.py_buffer(timestamps)])
        try:
            return given.cast(field.type)
        except pa.ArrowInvalid as error:
            raise MalformedBatch(
                f"{self.at} has a timestamp that is too far from 1970 to be held in microseconds: {error}"
            ) from error

    def _timestamp_types(self, field: Any, columns: Columns) -> Any:
        import pyarrow as pa

        kinds = [APPEND_TIME if header.append_time else CREATE_TIME for header in columns.batches]
        if len(set(kinds)) == 1:
            return self._constant(field, kinds[0], columns.count)
        runs = [
            pa.repeat(pa.scalar(kind, field.type), header.count)
            for kind, header in zip(kinds, columns.batches, strict=True)
        ]
        return pa.concat_arrays(runs)


def _headers(columns: Columns, kind: Any) -> Any:
    """Null where a record has none, as the connector has it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = columns.headers
    if found is None:
        return pa.nulls(columns.count, kind)
    offsets, children = found.parts[0], header_children(found.parts, kind)
    starts = pa.Array.from_buffers(pa.int32(), columns.count + 1, [None, pa.py_buffer(offsets)])
    some = pc.not_equal(starts.slice(1), starts.slice(0, columns.count))
    return pa.Array.from_buffers(kind, columns.count, [some.buffers()[1], pa.py_buffer(offsets)], children=[children])
