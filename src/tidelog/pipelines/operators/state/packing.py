"""Rows on their way to a bucket: many small rows as few large ones, so that Spark moves bytes and not rows.

    packed row   bucket int     the id of the bucket
                 task int       the number of the task that packed it
                 part int       counts up within the task; of questions, down from -1 (`questions.py`)
                 rows binary    an Arrow IPC stream: input rows of that bucket, in the order of arrival

Rules:
- `task` and `part` give the packed rows of one bucket their order: rows of one topic partition keep theirs.
- A task holds at most PACK_AT bytes of rows before it packs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.pipelines.operators.state.fold import EVERY_KEY, HASH

PACKED = "bucket int, task int, part int, rows binary"
PACK_AT = 16 * 1024 * 1024  # bytes

SCHEMA = pa.schema([("bucket", pa.int32()), ("task", pa.int32()), ("part", pa.int32()), ("rows", pa.binary())])


def pack(
    batches: Iterable[pa.RecordBatch], ids: Sequence[int], task: int, *, for_all: bool = False
) -> Iterator[pa.RecordBatch]:
    """Packed rows of these batches, whose column HASH says which of the buckets each row belongs to. With `for_all`,
    one with EVERY_KEY belongs to all of them.
    """
    for part, table in enumerate(_gathered(batches)):
        rows, places = _spread(table[HASH].to_numpy(), len(ids), for_all=for_all)
        order = np.lexsort((rows, places))
        sorted_rows = table.take(pa.array(rows[order])).combine_chunks()
        ends = np.searchsorted(places[order], np.arange(len(ids)), side="right").tolist()
        yield _packed(sorted_rows, ends, ids, task, part)


Places = npt.NDArray[np.int64]


def _spread(hashes: Places, buckets: int, *, for_all: bool) -> tuple[Places, Places]:
    """Rows, and the bucket of each; one that is for every key is there once for each bucket."""
    rows, places = np.arange(len(hashes)), hashes % buckets
    everywhere = np.flatnonzero(hashes == EVERY_KEY) if for_all else rows[:0]
    if not len(everywhere):
        return rows, places
    own = np.flatnonzero(hashes != EVERY_KEY)
    copies = np.tile(np.arange(buckets), len(everywhere))
    return np.concatenate([own, np.repeat(everywhere, buckets)]), np.concatenate([places[own], copies])


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= PACK_AT:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _packed(rows: pa.Table, ends: Sequence[int], ids: Sequence[int], task: int, part: int) -> pa.RecordBatch:
    starts = [0, *ends[:-1]]
    found = [
        (bucket, _stream(rows.slice(start, end - start)))
        for bucket, start, end in zip(ids, starts, ends, strict=True)
        if end > start
    ]
    buckets, streams = zip(*found, strict=True)
    columns = [buckets, [task] * len(found), [part] * len(found), streams]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpack(packed: Iterable[tuple[int, int, bytes]], schema: pa.Schema) -> pa.Table:
    """The rows of one bucket from its packed rows (task, part, rows), in order.

    By the schema's names and not by their own: of two inputs that differ in names alone Spark packs one, for both.
    """
    streams = [pa.ipc.open_stream(rows).read_all() for _, _, rows in sorted(packed, key=lambda row: row[:2])]
    named = [rows.rename_columns(schema.names) for rows in streams]
    return nullable(pa.concat_tables(named) if named else schema.empty_table())


def nullable(rows: pa.Table) -> pa.Table:
    """The same rows, where no column says that it is never null: whether one does is up to Spark's optimizer."""
    return pa.table(rows.columns, schema=nullable_schema(rows.schema))


def nullable_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])
