"""What folds have kept, as tables: read from a checkpoint by Spark's own state reader, also while its query runs.

A reader sees the state as of one micro-batch that was committed: the last one, or any that Spark still keeps.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.errors import UsageError
from tidelog.pipelines.operators.state.bucket import Header
from tidelog.pipelines.operators.state.buckets import Layout
from tidelog.pipelines.operators.state.pages import ENTRY, read_page

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADER = "header"  # the names of Spark's state variables
PAGES = "pages"


class FoldState(NamedTuple):
    """`operator` is Spark's number of it in the query, `size` the bytes of its pages, `rows` what the fold kept."""

    operator: int
    fold: str
    version: int
    layout: Layout
    counts: Mapping[str, int]
    pages: int
    size: int
    rows: pa.Table


class Bucket(NamedTuple):
    header: str
    directory: bytes


def read_states(spark: SparkSession, checkpoint: str | PathLike[str], *, batch: int | None = None) -> list[FoldState]:
    """The state of every fold in the query of this checkpoint, in Spark's order; none where no query was."""
    numbers = fold_operators(spark, checkpoint)
    return [_read_state(spark, str(checkpoint), number, batch) for number in numbers]


def is_there(spark: SparkSession, checkpoint: str | PathLike[str]) -> bool:
    """By Spark's own file systems: a checkpoint may be at s3a://..."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(str(checkpoint))
    return bool(path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).exists(path))


def fold_operators(spark: SparkSession, checkpoint: str | PathLike[str]) -> list[int]:
    operators = spark.read.format("state-metadata").load(str(checkpoint)).collect()
    return sorted({row["operatorId"] for row in operators if _is_fold(json.loads(row["operatorProperties"] or "{}"))})


def _is_fold(properties: Mapping[str, Any]) -> bool:
    return {HEADER, PAGES} <= {variable["stateName"] for variable in properties.get("stateVariables", ())}


def _read_state(spark: SparkSession, checkpoint: str, operator: int, batch: int | None) -> FoldState:
    from pyspark.errors import PySparkException

    try:
        headers = _variable(spark, checkpoint, operator, batch, HEADER).select("key.bucket", "value.*").collect()
        kept = _variable(spark, checkpoint, operator, batch, PAGES)
        pages = kept.select("key.bucket", "user_map_key.number", "user_map_value.page").collect()
    except PySparkException as error:
        when = "" if batch is None else f" as of micro-batch {batch}"
        raise UsageError(f"the state in {checkpoint}{when} cannot be read: {_first_line(error)}") from error
    buckets = {row["bucket"]: Bucket(row["header"], bytes(row["directory"])) for row in headers}
    return state_of(operator, buckets, [(row["bucket"], row["number"], bytes(row["page"])) for row in pages])


def _variable(spark: SparkSession, checkpoint: str, operator: int, batch: int | None, name: str) -> DataFrame:
    reader = spark.read.format("statestore").option("operatorId", operator).option("stateVarName", name)
    return (reader if batch is None else reader.option("batchId", batch)).load(checkpoint)


def state_of(operator: int, buckets: Mapping[int, Bucket], pages: Iterable[tuple[int, int, bytes]]) -> FoldState:
    """One fold's state of what its buckets have: their headers and directories, and pages by bucket and number."""
    if not buckets:
        raise UsageError(f"operator {operator} has no state yet: no micro-batch with rows was committed")
    headers = {bucket: Header.decode(kept.header) for bucket, kept in buckets.items()}
    by_bucket: dict[int, dict[int, bytes]] = defaultdict(dict)
    for bucket, number, page in pages:
        by_bucket[bucket][number] = page
    batches, counts = [], dict[str, int]()
    for bucket, header in sorted(headers.items()):
        directory = np.frombuffer(buckets[bucket].directory, ENTRY)
        batches += [read_page(by_bucket[bucket][number], header.schema) for number in directory["number"].tolist()]
        counts |= {name: counts.get(name, 0) + count for name, count in header.counts.items()}
    newest = max(headers.values(), key=lambda header: header.version)
    # Buckets that have had no rows since an upgrade still have the old version, and perhaps other columns.
    tables = [pa.Table.from_batches([batch]) for batch in batches] or [newest.schema.empty_table()]
    rows = pa.concat_tables(tables, promote_options="permissive")
    size = sum(len(page) for kept in by_bucket.values() for page in kept.values())
    return FoldState(operator, newest.fold, newest.version, newest.layout, counts, len(batches), size, rows)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
