"""A fold as an operator on DataFrames: the one door through which every stateful operator goes.

    stream   hash of the keys -> packed by bucket -> transformWithState, a group a bucket -> rows
    batch    hash of the keys -> a group a bucket, one step at the end of time -> rows

How many buckets there are rests on Spark's shuffle partitions, which a checkpoint fixes for the life of its query,
whatever the session says later: so a stream learns them when it runs and not when it is declared.

In a stream the input's watermark comes along beside the packed rows, and the event time column does not: so Spark has
no way to drop late rows before the fold has seen them.

What is one key in Spark's SQL is one here (`key_values.py`): 0.0 and -0.0, and all that is not a number.

Questions (`questions.py`) are packed beside the rows, and go to the bucket of their key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tidelog.pipelines.operators.state.buckets import PARTITIONS, bucket_ids, layout_of, partitions_here
from tidelog.pipelines.operators.state.checking import check_fold, check_key_type, check_keys, checked_step
from tidelog.pipelines.operators.state.fold import END_OF_TIME, EVERY_KEY, HASH, Clock, Fold
from tidelog.pipelines.operators.state.key_values import with_plain_keys
from tidelog.pipelines.operators.state.packing import PACKED, nullable, nullable_schema, pack
from tidelog.pipelines.operators.state.questions import (
    ASKED,
    QUESTION,
    Asking,
    beside,
    no_answers,
    question_schema,
    reading,
)
from tidelog.pipelines.operators.state.steps import wanted_step
from tidelog.spark.row_marks import one_row_by

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

BUCKET = "_bucket"
BATCH_BUCKETS_A_PARTITION = 32  # many: one is in memory at a time, with the rows of all history


def run_fold(
    frame: DataFrame,
    keys: str | Sequence[str],
    fold: Fold,
    *,
    event_time: str | None = None,
    asking: Asking | None = None,
    for_all: str | None = None,
    one_row: bool = False,
) -> DataFrame:
    """The fold's output over rows of `frame`, with the state of each key (the values of columns `keys`) to itself.

    For folds of one's own: `rows.transform(run_fold, "user", CountAndLast())`.
    `event_time` names the output column that later operators of the query may take for event time. With `asking` there
    are answers beside the output. `for_all` names a column that is true for a row that is for every key. `one_row` says
    that a step puts out no more than one row of a key, so that a view by these keys needs no order.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    check_fold(fold, event_time)
    keys = check_keys(fold, keys, frame.columns)
    for key in keys:
        check_key_type(fold, key, frame.schema[key].dataType.simpleString())
    hashed = frame.withColumn(HASH, F.xxhash64(*keys))
    if for_all is not None:
        own = F.greatest(F.col(HASH), F.lit(EVERY_KEY + 1))
        hashed = hashed.withColumn(HASH, F.when(F.col(for_all), EVERY_KEY).otherwise(own))
    output = from_arrow_schema(fold.output_schema)
    if not frame.isStreaming:
        buckets = int(frame.sparkSession.conf.get(PARTITIONS) or 1) * BATCH_BUCKETS_A_PARTITION
        bucket = F.pmod(F.col(HASH), F.lit(buckets))
        if for_all is not None:
            everywhere = F.sequence(F.lit(0).cast("bigint"), F.lit(buckets - 1).cast("bigint"))
            to = F.when(F.col(for_all), everywhere).otherwise(F.array(bucket))
            hashed, bucket = hashed.withColumn(BUCKET, F.explode(to)), F.col(BUCKET)
        grouped = hashed.groupBy(bucket.alias(BUCKET))
        made = grouped.applyInArrow(_whole(fold, keys), output)
        return made if asking is None else no_answers(made)
    from tidelog.pipelines.operators.state.processor import AskedBy, FoldProcessor

    packed, asked = hashed.mapInArrow(packing if for_all is None else packing_for_all, PACKED), None
    if asking is not None:
        output = from_arrow_schema(beside(fold.output_schema))
        questions = _read(asking, frame, keys)
        asked = AskedBy(to_arrow_schema(questions.schema, timezone="UTC"), event_time)
        packed = packed.union(questions.mapInArrow(packing_questions, PACKED))
    step_by = wanted_step(fold, frame.sparkSession.sparkContext)
    timed = has_watermark(frame)
    processor = FoldProcessor(fold, to_arrow_schema(hashed.schema, timezone="UTC"), tuple(keys), timed, asked, step_by)
    mode = "EventTime" if timed else "None"
    groups = packed.groupBy("bucket")
    made = groups.transformWithStateInPandas(processor, output, "Append", mode, eventTimeColumnName=event_time or "")
    return one_row_by(made, keys) if one_row else made


def _read(asking: Asking, frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Questions with the columns of their key, and its hash."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    kinds = nullable_schema(to_arrow_schema(frame.select(*(F.col(f"`{key}`") for key in keys)).schema, timezone="UTC"))
    schema = from_arrow_schema(question_schema(kinds))
    asked = asking.questions.select(QUESTION, ASKED).mapInArrow(reading(kinds, asking.names), schema)
    return asked.withColumn(HASH, F.xxhash64(*keys))


def has_watermark(frame: DataFrame) -> bool:
    return "EventTimeWatermark" in frame._jdf.queryExecution().analyzed().toString()


def _whole(fold: Fold, keys: Sequence[str]) -> Callable[[pa.Table], pa.Table]:
    def whole(rows: pa.Table) -> pa.Table:
        clock = Clock(END_OF_TIME, END_OF_TIME)
        plain = with_plain_keys(nullable(rows), keys)
        return checked_step(fold, fold.state_schema.empty_table(), plain, clock).output

    return whole


def packing(batches: Iterable[pa.RecordBatch], *, for_all: bool = False) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None
    layout = layout_of(partitions_here())
    return pack(batches, bucket_ids(layout.partitions, layout.buckets), task.partitionId(), for_all=for_all)


def packing_for_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return packing(batches, for_all=True)


def packing_questions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Told from rows by a `part` below 0."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for packed in packing(batches):
        parts = pc.subtract(pa.scalar(-1, pa.int32()), packed.column("part"))
        yield packed.set_column(packed.schema.get_field_index("part"), "part", parts)
