"""A fold as an operator on DataFrames: the one door through which every stateful operator goes.

    stream   hash of the keys -> packed by bucket -> transformWithState, a group a bucket -> rows
    batch    hash of the keys -> a group a bucket, one step at the end of time -> rows

In a stream the input's watermark comes along beside the packed rows, and the event time column does not: so Spark has
no way to drop late rows before the fold has seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tidelog.pipelines.operators.state.bucket import Layout
from tidelog.pipelines.operators.state.buckets import BUCKETS_A_PARTITION, bucket_ids
from tidelog.pipelines.operators.state.fold import END_OF_TIME, HASH, Clock, Fold
from tidelog.pipelines.operators.state.packing import PACKED, nullable, pack

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

PARTITIONS = "spark.sql.shuffle.partitions"
BUCKET = "_bucket"


def run_fold(frame: DataFrame, keys: Sequence[str], fold: Fold, *, event_time: str | None = None) -> DataFrame:
    """The fold's output over rows of `frame`, with the state of each key (the values of columns `keys`) to itself.

    `event_time` names the output column that later operators of the query may take for event time.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    hashed = frame.withColumn(HASH, F.xxhash64(*keys))
    partitions = int(frame.sparkSession.conf.get(PARTITIONS) or 0)
    layout = Layout(partitions * BUCKETS_A_PARTITION, partitions)
    output = from_arrow_schema(fold.output_schema)
    if not frame.isStreaming:
        buckets = F.pmod(F.col(HASH), F.lit(layout.buckets)).alias(BUCKET)
        return hashed.groupBy(buckets).applyInArrow(_whole(fold), output)
    from tidelog.pipelines.operators.state.processor import FoldProcessor

    packed = hashed.mapInArrow(_packing(bucket_ids(partitions, layout.buckets)), PACKED)
    processor = FoldProcessor(fold, layout, to_arrow_schema(hashed.schema, timezone="UTC"))
    mode = "EventTime" if has_watermark(frame) else "None"
    groups = packed.groupBy("bucket")
    return groups.transformWithStateInPandas(processor, output, "Append", mode, eventTimeColumnName=event_time or "")


def has_watermark(frame: DataFrame) -> bool:
    return "EventTimeWatermark" in frame._jdf.queryExecution().analyzed().toString()


def _whole(fold: Fold) -> Callable[[pa.Table], pa.Table]:
    def whole(rows: pa.Table) -> pa.Table:
        return fold.step(fold.state_schema.empty_table(), nullable(rows), Clock(END_OF_TIME, END_OF_TIME)).output

    return whole


def _packing(ids: list[int]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def packing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        return pack(batches, ids, task.partitionId())

    return packing
