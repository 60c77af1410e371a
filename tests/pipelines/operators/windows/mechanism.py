"""A fold as its mechanism runs it, without Spark: buckets as bytes; those are stepped that have rows or are due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines.operators.state.test_bucket import Kept
from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.aggregates import Aggregate
from tidelog.pipelines.operators.state.bucket import Header, step_bucket
from tidelog.pipelines.operators.state.buckets import Layout
from tidelog.pipelines.operators.state.fold import END_OF_TIME, HASH, Clock, Fold
from tidelog.pipelines.operators.state.pages import read_page
from tidelog.pipelines.operators.windows.spec import Spec

TIMESTAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("key", pa.string()), ("at", TIMESTAMP), ("x", pa.int64())])
AGGREGATES: dict[str, Aggregate] = {
    "n": agg.count(),
    "total": agg.sum("x"),
    "earliest": agg.first("x"),
    "newest": agg.last("x"),
}


class Row(NamedTuple):
    """`at` in microseconds."""

    key: str | None
    at: int | None
    x: int | None


class Told(NamedTuple):
    """A row of output. Times in microseconds; `values` are those of the aggregates."""

    op: str
    key: str | None
    start: int
    end: int
    values: tuple[Any, ...]


class Late(NamedTuple):
    row: Row
    start: int | None
    end: int | None


def spec(**more: Any) -> Spec:
    chosen = more.pop("aggregates", AGGREGATES)
    return Spec(SCHEMA, "at", ("key",), tuple(chosen.items()), **more)


def hash_of(key: str | None) -> int:
    """With collisions, and the same in every process."""
    return 0 if key is None else ord(key[0]) // 2


def table_of(rows: Sequence[Row], extra: dict[str, pa.Array] | None = None) -> pa.Table:
    columns = {
        "key": pa.array([row.key for row in rows], pa.string()),
        "at": pa.array([row.at for row in rows], pa.int64()).cast(TIMESTAMP),
        "x": pa.array([row.x for row in rows], pa.int64()),
        HASH: pa.array([hash_of(row.key) for row in rows], pa.int64()),
    }
    return pa.table(columns | (extra or {}))


def microseconds(column: pa.ChunkedArray) -> list[Any]:
    found: list[Any] = column.cast(pa.int64()).to_pylist()
    return found


@dataclass
class Mechanism:
    """Every step reads the state from its bytes and writes it back, as after a restart."""

    fold: Fold
    pages: int
    kept: list[Kept] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept = [Kept() for _ in range(self.pages)]

    def run(self, rows: Sequence[Row], watermark: int | None) -> pa.Table:
        """One micro-batch; all that it puts out."""
        output = [self.fold.output_schema.empty_table()]
        for page, kept in enumerate(self.kept):
            its = [row for row in rows if hash_of(row.key) % self.pages == page]
            if its or (kept.timer is not None and watermark is not None and kept.timer <= watermark):
                made = step_bucket(self.fold, kept, Layout(self.pages, 1), table_of(its), Clock(watermark, 0))
                assert made.schema == self.fold.output_schema
                output.append(made)
        return pa.concat_tables(output).combine_chunks()

    @property
    def state(self) -> list[pa.Table]:
        schema = self.fold.state_schema
        found = [[read_page(data, schema) for data in kept.pages.values()] for kept in self.kept]
        return [pa.Table.from_batches(pages, schema) for pages in found]

    @property
    def counts(self) -> dict[str, int]:
        headers = [Header.decode(kept.known[0]) for kept in self.kept if kept.known is not None]
        names = {name for header in headers for name in header.counts}
        return {name: sum(header.counts.get(name, 0) for header in headers) for name in names}


def told_of(output: pa.Table) -> list[Told]:
    """Results, in order, without rows that came too late."""
    if "_late" in output.column_names:
        output = output.filter(output["_late"].is_null())
    ops = output["_op"].to_pylist() if "_op" in output.column_names else ["+I"] * len(output)
    names = [name for name in output.column_names if name not in ("_op", "_seq", "_late", "key")]
    values = [name for name in names if not name.startswith("window_")]
    starts, ends = microseconds(output["window_start"]), microseconds(output["window_end"])
    results = zip(*(output[name].to_pylist() for name in values), strict=True) if values else [()] * len(output)
    return [Told(*each) for each in zip(ops, output["key"].to_pylist(), starts, ends, results, strict=True)]


def late_of(output: pa.Table) -> list[Late]:
    if "_late" not in output.column_names:
        return []
    late = output["_late"].combine_chunks().drop_null()
    if not len(late):
        return []
    row = late.field("row")
    columns = [row.field("key").to_pylist(), row.field("at").cast(pa.int64()).to_pylist(), row.field("x").to_pylist()]
    starts, ends = (late.field(name).cast(pa.int64()).to_pylist() for name in ("window_start", "window_end"))
    return [
        Late(Row(*each), *span)
        for each, span in zip(zip(*columns, strict=True), zip(starts, ends, strict=True), strict=True)
    ]


def batch(fold: Fold, rows: Sequence[Row]) -> pa.Table:
    return fold.step(fold.state_schema.empty_table(), table_of(rows), Clock(END_OF_TIME, 0)).output


def added_up(told: Sequence[Told]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """What a changelog comes to; it may take away only what is there, and put only where nothing is."""
    table: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for each in told:
        place = (each.key, each.start, each.end)
        if each.op in ("-U", "-D"):
            assert table.pop(place) == each.values
        else:
            assert place not in table
            table[place] = each.values
    return table
