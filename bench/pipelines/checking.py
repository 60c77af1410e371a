"""Whether what a side wrote is the answer. Pure, but for reading the topic.

Values are JSON objects that have at least the answer's columns. Rows with a number below zero are the closing ones and
what came of them. Numbers are compared exactly, but for averages, which are sums of floating point in some order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

CLOSE = 1e-9
BLOCK = 1 << 24


def parsed(values: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    if not values:
        return schema.empty_table()
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    lines = pa.BufferReader(b"\n".join(values))
    found = pj.read_json(lines, parse_options=options, read_options=pj.ReadOptions(block_size=BLOCK))
    return found.select(schema.names).cast(schema)


def last_of_each(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key. All rows of a key are in one partition, and come in its order."""
    places = rows.append_column("_place", pa.array(np.arange(len(rows))))
    newest = places.group_by(list(keys)).aggregate([("_place", "max")])["_place_max"]
    return rows.take(newest)


def without_closing(rows: pa.Table) -> pa.Table:
    for name in ("auction", "bidder", "id", "category"):
        if name in rows.column_names:
            rows = rows.filter(pc.greater_equal(rows[name], 0))
    return rows


def difference(found: pa.Table, answer: pa.Table, keys: Sequence[str]) -> str | None:
    """What is wrong with the rows of a side, or None."""
    found = without_closing(found)
    if keys:
        found = last_of_each(found, keys)
    by = [(name, "ascending") for name in answer.column_names]
    found, answer = found.sort_by(by), answer.sort_by(by)
    if len(found) != len(answer):
        return f"{len(found):,} rows, and should be {len(answer):,}"
    for name in answer.column_names:
        theirs, right = found[name].combine_chunks(), answer[name].combine_chunks()
        same = np.isclose(theirs, right, rtol=CLOSE) if pa.types.is_floating(right.type) else pc.equal(theirs, right)
        wrong = np.flatnonzero(~np.asarray(same, bool))
        if len(wrong):
            place = int(wrong[0])
            return f"{len(wrong):,} rows differ in {name!r}: {found.slice(place, 1).to_pylist()[0]}"
    return None
