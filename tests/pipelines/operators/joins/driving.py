"""Folds over two inputs, driven without Spark, as its micro-batches would: real buckets and pages, kept as bytes.

Every step reads the state from its bytes and writes it back, so each one is a restart. Keys collide on purpose: there
are few hashes.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pipelines.operators.state.test_bucket import Kept
from tidelog.pipelines.operators.joins.sides import LEFT, RIGHT, Columns
from tidelog.pipelines.operators.state.bucket import Layout, step_bucket
from tidelog.pipelines.operators.state.fold import END_OF_TIME, HASH, SIDE, Clock, Fold
from tries import tries

Row = dict[str, Any]

FEWER = tries(10)  # a step writes real pages, so that an example of many steps takes a while

HASHES = 5
BUCKETS = 2

KEYED = Columns(pa.schema([("k", pa.string())]), pa.schema([("l", pa.int64())]), pa.schema([("r", pa.int64())]))


def hash_of(key: Iterable[Any]) -> int:
    return zlib.crc32(repr(tuple(key)).encode()) % HASHES


def arrow(rows: Sequence[Mapping[str, Any]], schema: pa.Schema, keys: Sequence[str]) -> pa.Table:
    hashed = [{**row, HASH: hash_of(row[key] for key in keys)} for row in rows]
    return pa.Table.from_pylist(hashed, schema.append(pa.field(HASH, pa.int64())))


@dataclass
class Driver:
    """`row` is the schema of what comes in; `make` the fold, made anew for every step as in a new worker."""

    make: Callable[[], Fold]
    row: pa.Schema
    keys: Sequence[str]
    buckets: list[Kept] = field(default_factory=lambda: [Kept() for _ in range(BUCKETS)])
    time: int | None = None
    now: int = 0

    def step(self, rows: Sequence[Mapping[str, Any]] = (), watermark: int | None = None) -> list[Row]:
        """One micro-batch. The watermark stays what it was unless one is given."""
        self.time = self.time if watermark is None else watermark
        clock, layout = Clock(self.time, self.now), Layout(BUCKETS, 1)
        found: list[Row] = []
        for number, bucket in enumerate(self.buckets):
            table = arrow([row for row in rows if self._bucket(row) == number], self.row, self.keys)
            if len(table):
                found += step_bucket(self.make(), bucket, layout, table, clock).to_pylist()
            if bucket.timer is not None and self.time is not None and bucket.timer <= self.time:
                found += step_bucket(self.make(), bucket, layout, table.slice(0, 0), clock).to_pylist()
        return found

    def _bucket(self, row: Mapping[str, Any]) -> int:
        return hash_of(row[key] for key in self.keys) % BUCKETS

    def counts(self) -> dict[str, int]:
        """What all steps have counted."""
        headers = [json.loads(bucket.known[0]) for bucket in self.buckets if bucket.known is not None]
        return dict(sum((Counter(header["counts"]) for header in headers), Counter()))

    def state(self) -> list[Row]:
        from tidelog.pipelines.operators.state.pages import read_page

        schema = self.make().state_schema
        pages = [read_page(data, schema) for bucket in self.buckets for data in bucket.pages.values()]
        return [row for page in pages for row in page.to_pylist()]


def in_a_batch(fold: Fold, rows: Sequence[Mapping[str, Any]], schema: pa.Schema, keys: Sequence[str]) -> list[Row]:
    """The batch answer: one step at the end of time."""
    clock = Clock(END_OF_TIME, END_OF_TIME)
    output = fold.step(fold.state_schema.empty_table(), arrow(rows, schema, keys), clock).output
    assert output.schema == fold.output_schema
    return list(output.to_pylist())


def left(**values: Any) -> Row:
    return {SIDE: LEFT, **values}


def right(**values: Any) -> Row:
    return {SIDE: RIGHT, **values}
