"""Columns as Arrow arrays and back, over the same memory wherever the layouts agree. pyarrow is imported on first use.

The table of a topic has five columns: `offset` (int64), `timestamp` (milliseconds, UTC), `key` and `value` (binary,
null where the record has null) and `headers` (a list of name and value, empty where there are none). Header names are
UTF-8 by Kafka's rule; bytes that are not become U+FFFD here, and stay as they are in `Columns`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidelog.errors import UsageError
from tidelog.record.columns import TARGET_SIZE, Columns, encode_partitions
from tidelog.record.header import Buffer, DecodedBinary, DecodedHeaders

if TYPE_CHECKING:
    import pyarrow as pa


def topic_schema() -> pa.Schema:
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(header), nullable=False),
        ]
    )


# --- columns to Arrow ------------------------------------------------------------------------------------------------


def columns_to_arrow(columns: Columns, *, control: bool = False) -> pa.RecordBatch:
    """One record batch of all rows; those of control batches are left out, at the price of a copy, unless asked for."""
    import pyarrow as pa

    schema, count = topic_schema(), columns.count
    offsets, timestamps, keys, values, headers = columns.parts
    arrays = [
        pa.Array.from_buffers(schema.field("offset").type, count, [None, pa.py_buffer(offsets)]),
        pa.Array.from_buffers(schema.field("timestamp").type, count, [None, pa.py_buffer(timestamps)]),
        binary_array(keys, count),
        binary_array(values, count),
        _header_array(headers, count, schema.field("headers").type),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if not control and any(each.is_control for each in columns.batches):
        batch = batch.filter(pa.array([flag == 0 for flag in columns.control], pa.bool_()))
    return batch


def binary_array(parts: DecodedBinary, count: int) -> Any:
    import pyarrow as pa

    validity, offsets, data = parts
    bits = None if validity is None else pa.py_buffer(validity)
    return pa.Array.from_buffers(pa.binary(), count, [bits, pa.py_buffer(offsets), pa.py_buffer(data)])


def _header_array(headers: DecodedHeaders | None, count: int, kind: Any) -> Any:
    import pyarrow as pa

    if headers is None:
        children = pa.array([], kind.value_type)
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(bytes(4 * count + 4))], children=[children])
    children = header_children(headers, kind)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(headers[0])], children=[children])


def header_children(headers: DecodedHeaders, kind: Any) -> Any:
    """All headers of all rows, one behind the other."""
    import pyarrow as pa

    _, names, values = headers
    total = len(names[1]) // 4 - 1
    fields = [text_array(binary_array(names, total)), binary_array(values, total)]
    return pa.Array.from_buffers(kind.value_type, total, [None], children=fields)


def text_array(names: Any) -> Any:
    """Names are UTF-8 by Kafka's rule; bytes that are not become U+FFFD, as in Java."""
    import pyarrow as pa

    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


# --- Arrow to batches ------------------------------------------------------------------------------------------------


def arrow_to_partitions(
    rows: pa.RecordBatch,
    *,
    partitions: int,
    spare: int,
    timestamp_ms: int = -1,
    target: int = TARGET_SIZE,
    compression: str = "none",
) -> Iterator[tuple[int, bytearray]]:
    """Batches by partition of the rows in columns `key`, `value`, `timestamp`, `headers` and `partition`, those that
    there are: where `partition` is missing or null, by key (`encode_partitions`).

    Keys and values may be binary or text; timestamps of any unit, and `timestamp_ms` where there are none.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    count = rows.num_rows
    column = {name: rows.column(name) for name in rows.schema.names}
    given = column.get("partition")
    if given is not None:
        bounds = pc.min_max(given)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None and (low < 0 or high >= partitions):
            wrong = low if low < 0 else high
            raise UsageError(f"a row asks for partition {wrong}, and there are 0 to {partitions - 1}")
        given = None if low is None else given.cast(pa.int32()).fill_null(-1)
    return encode_partitions(
        count,
        _timestamps(column.get("timestamp"), count, timestamp_ms),
        _strings(column.get("key")),
        _strings(column.get("value")),
        _headers(column.get("headers")),
        partitions=partitions,
        spare=spare,
        given=None if given is None else _piece(given.buffers()[1], 4 * given.offset, 4 * count),
        target=target,
        compression=compression,
    )


def _timestamps(array: Any, count: int, default: int) -> Buffer:
    import pyarrow as pa

    if array is None:
        array = pa.repeat(pa.scalar(default, pa.int64()), count)
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", array.type.tz), safe=False)
    elif array.type != pa.int64():
        raise UsageError(f"column timestamp has type {array.type}; a timestamp or int64 milliseconds is needed")
    if array.null_count:
        array = array.fill_null(pa.scalar(default, pa.int64()).cast(array.type))
    return _piece(array.buffers()[1], 8 * array.offset, 8 * count)


def _strings(array: Any) -> DecodedBinary | None:
    import pyarrow as pa

    if array is None or pa.types.is_null(array.type):
        return None
    if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        try:
            array = array.cast(pa.binary())
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            raise UsageError(f"column has type {array.type}; binary or text is needed") from None
    validity, offsets, data = array.buffers()
    count, start = len(array), array.offset
    bits = _bits(validity, start, count) if array.null_count else None
    return bits, _piece(offsets, 4 * start, 4 * count + 4), _piece(data, 0, data.size if data else 0)


def _piece(buffer: Any, start: int, size: int) -> memoryview:
    """An Arrow buffer may be missing where nothing is in it."""
    if buffer is None or buffer.size < start + size:
        return memoryview(bytes(size))
    return memoryview(buffer).cast("B")[start : start + size]


def _bits(buffer: Any, start: int, count: int) -> Buffer:
    """Validity bits that begin at bit 0."""
    first, shift = start >> 3, start & 7
    piece = memoryview(buffer).cast("B")[first : (start + count + 7) >> 3]
    if shift == 0:
        return piece
    return (int.from_bytes(piece, "little") >> shift).to_bytes(len(piece), "little")


def _headers(array: Any) -> DecodedHeaders | None:
    import pyarrow as pa

    if array is None or pa.types.is_null(array.type) or array.null_count == len(array):
        return None
    if array.null_count:  # the place of a null may hide rows: made anew, it does not
        array = _without_hidden_rows(array)
    if pa.types.is_map(array.type):
        names, values = array.keys, array.items
    elif pa.types.is_list(array.type) and pa.types.is_struct(array.type.value_type):
        names, values = array.values.flatten()
    else:
        raise UsageError(f"column headers has type {array.type}; a list of key and value, or a map, is needed")
    if pa.types.is_null(values.type):
        values = values.cast(pa.binary())
    nothing: DecodedBinary = (None, bytes(4), b"")
    offsets = array.offsets
    first = _piece(offsets.buffers()[1], 4 * offsets.offset, 4 * len(array) + 4)
    return first, _strings(names) or nothing, _strings(values) or nothing


def _without_hidden_rows(array: Any) -> Any:
    """Lists of the same values, with empty ones in place of nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_list(array.type):
        return pa.array(array.to_pylist(), array.type)
    ends = pc.cumulative_sum(pc.list_value_length(array).fill_null(0))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, array.flatten())
