"""A fold as an operator on DataFrames: the one door through which every stateful operator goes.

    stream   hash of the keys -> packed by bucket -> transformWithState, a group a bucket -> rows
    batch    hash of the keys -> a group a bucket, one step at the end of time -> rows

How many buckets there are rests on Spark's shuffle partitions, which a checkpoint fixes for the life of its query,
whatever the session says later: so a stream learns them when it runs and not when it is declared.

In a stream the input's watermark comes along beside the packed rows, and the event time column does not: so Spark has
no way to drop late rows before the fold has seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tidelog.pipelines.operators.state.buckets import PARTITIONS, bucket_ids, layout_of, partitions_here
from tidelog.pipelines.operators.state.fold import END_OF_TIME, HASH, Clock, Fold
from tidelog.pipelines.operators.state.packing import PACKED, nullable, pack

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

BUCKET = "_bucket"
BATCH_BUCKETS_A_PARTITION = 32  # many: one is in memory at a time, with the rows of all history


def run_fold(frame: DataFrame, keys: Sequence[str], fold: Fold, *, event_time: str | None = None) -> DataFrame:
    """The fold's output over rows of `frame`, with the state of each key (the values of columns `keys`) to itself.

    `event_time` names the output column that later operators of the query may take for event time.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    hashed = frame.withColumn(HASH, F.xxhash64(*keys))
    output = from_arrow_schema(fold.output_schema)
    if not frame.isStreaming:
        buckets = int(frame.sparkSession.conf.get(PARTITIONS) or 1) * BATCH_BUCKETS_A_PARTITION
        return hashed.groupBy(F.pmod(F.col(HASH), F.lit(buckets)).alias(BUCKET)).applyInArrow(_whole(fold), output)
    from tidelog.pipelines.operators.state.processor import FoldProcessor

    packed = hashed.mapInArrow(packing, PACKED)
    processor = FoldProcessor(fold, to_arrow_schema(hashed.schema, timezone="UTC"))
    mode = "EventTime" if has_watermark(frame) else "None"
    groups = packed.groupBy("bucket")
    return groups.transformWithStateInPandas(processor, output, "Append", mode, eventTimeColumnName=event_time or "")


def has_watermark(frame: DataFrame) -> bool:
    return "EventTimeWatermark" in frame._jdf.queryExecution().analyzed().toString()


def _whole(fold: Fold) -> Callable[[pa.Table], pa.Table]:
    def whole(rows: pa.Table) -> pa.Table:
        return fold.step(fold.state_schema.empty_table(), nullable(rows), Clock(END_OF_TIME, END_OF_TIME)).output

    return whole


def packing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None
    layout = layout_of(partitions_here())
    return pack(batches, bucket_ids(layout.partitions, layout.buckets), task.partitionId())
