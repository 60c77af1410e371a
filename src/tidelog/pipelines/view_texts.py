"""A view's rows as texts, made inside of the streaming plan; and which road they take from there to the view's topic.

    in the plan    key and row become JSON; of a changelog `_op` and `_seq` go along. The plan is made once a query
    driver         a small micro-batch is handed over (`spark/text_rows.py`), and netted and put into envelopes here
                   (`envelopes.py`)
    staged         of a large one Spark does that, and tasks encode and stage it, as for any other output

What a micro-batch is asked for on the first road are its rows: no DataFrame is built, analysed and compiled anew.

Rules:
- Texts are made where a key has one row a micro-batch, or rows say their order: an aggregate grouped by the view's key,
  a changelog, plain rows without `order`. Everything else is written as `view_topic.py` has it.
- Of rows whose order is that in which they were read (`collisions.py`), both roads take the last: collected rows come
  in the order of tasks, and within one as it gave them.
- Equal keys must be equal texts: so a key has no floating-point column, and no text with a collation of its own.
- No row is left out in the plan, also one without a key: Spark would take the filter down to the source, and such rows
  move watermarks as others do.
- The road is chosen by the offsets that a micro-batch is to read: as many rows, or so, come out of an aggregate in
  update mode and of what keeps no state. Where time alone may bring rows forth (a window that ends, a fold), it is also
  chosen by how much state there is, for all of it may come out at once. What is not known is taken for much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.pipelines.app import UPDATE, VIEW
from tidelog.pipelines.collisions import kind_written
from tidelog.pipelines.envelopes import TWO_ROWS, UNKNOWN_OP, not_a_key
from tidelog.pipelines.operators.changelog import ADDITIONS, DELETED, OP, RETRACTIONS, SEQ
from tidelog.pipelines.placing import Target
from tidelog.pipelines.view_topic import (
    AFTER,
    AGGREGATE,
    AS_READ,
    BEFORE,
    CHANGELOG,
    COUNT,
    FIRST,
    LAST,
    OPENED,
    ROW,
    ROWS,
    SUM,
    as_json,
    as_told,
    enveloped,
    is_grouped_by,
    keeps_state,
    mode_of,
    within_years,
)
from tidelog.schema.declaration import Declaration
from tidelog.spark.query_log import sources_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

KEY = "key"
DRIVER, STAGED = "driver", "staged"
OFFSETS_MAX = 10_000  # that a micro-batch of the driver's may read
STATE_BYTES_MAX = 32 << 20
EQUAL_AS_TEXT = (
    *("byte", "short", "integer", "long", "boolean", "decimal", "string"),
    *("date", "timestamp", "timestamp_ntz", "binary"),
)


class Texts(NamedTuple):
    """How the rows of one query become texts."""

    kind: str
    declared: Declaration
    is_bounded: bool  # no more rows come out than go in, or so


def texts_of(frame: DataFrame, target: Target) -> Texts | None:
    """None where the view's rows are not made texts in the plan."""
    output, declared = target.node.output, target.declared
    if output.kind != VIEW or declared is None or target.node.asked:
        return None
    kind = kind_written(output, frame)
    if not all(_is_equal_as_text(frame.schema[name].dataType) for name in declared.key):
        return None
    if (kind == ROWS and output.order is not None) or (kind == AGGREGATE and not is_grouped_by(frame, declared.key)):
        return None
    is_bounded = (kind == AGGREGATE and mode_of(output, frame) == UPDATE) or not keeps_state(frame)
    return Texts(kind, declared, is_bounded)


def _is_equal_as_text(kind: DataType) -> bool:
    return kind.typeName() in EQUAL_AS_TEXT and "collate" not in kind.simpleString()


def as_texts(frame: DataFrame, texts: Texts) -> DataFrame:
    """Columns key and row; of a changelog also `_op` and `_seq`."""
    from pyspark.sql import functions as F

    declared = texts.declared
    rows = within_years(frame, declared)
    keyed = F.lit(True)
    for name in declared.key:
        keyed = keyed & F.col(f"`{name}`").isNotNull()
    key = F.when(keyed, as_json(F.struct(*(as_told(rows, name) for name in declared.key))))
    row: Column = as_json(F.struct(*(as_told(rows, column.name) for column in declared.columns)))
    if texts.kind == CHANGELOG:
        return rows.select(key.alias(KEY), row.alias(ROW), F.col(OP), F.col(SEQ))
    if DELETED in rows.columns:
        row = F.when(~F.coalesce(F.col(DELETED).cast("boolean"), F.lit(False)), row)
    return rows.select(key.alias(KEY), row.alias(ROW))


def envelopes_of_texts(rows: DataFrame, texts: Texts, tail: str) -> DataFrame:
    """The staged road: columns key and value, as a task is to write them."""
    from pyspark.sql import functions as F

    keyed = rows.where(f"{KEY} is not null")
    if texts.kind == CHANGELOG:
        net = _net_changelog(keyed, texts.declared)
    elif texts.kind == AGGREGATE:  # it is grouped by the key
        net = keyed.select(KEY, F.lit(None).cast("string").alias(BEFORE), F.col(ROW).alias(AFTER))
    else:
        read = keyed.select(KEY, ROW, F.monotonically_increasing_id().alias(SEQ))
        by_key = read.groupBy(KEY).agg(F.max_by(F.struct(ROW), SEQ).alias(LAST), F.count("*").alias(COUNT))
        after = F.col(f"{LAST}.{ROW}")
        if texts.kind != AS_READ:
            after = F.when(F.col(COUNT) > 1, _refusal(TWO_ROWS)).otherwise(after)
        net = by_key.select(KEY, F.lit(None).cast("string").alias(BEFORE), after.alias(AFTER))
    return enveloped(net, F.col(KEY), texts.kind, tail)


def _net_changelog(rows: DataFrame, declared: Declaration) -> DataFrame:
    from pyspark.sql import functions as F

    op = F.col(OP)
    sign = F.when(op.isin(*ADDITIONS), 1).when(op.isin(*RETRACTIONS), -1).otherwise(_refusal(UNKNOWN_OP))
    signed = rows.select(KEY, F.struct(OP, ROW).alias(ROW), SEQ, sign.alias(SUM))
    net = signed.groupBy(KEY).agg(
        F.min_by(ROW, SEQ).alias(FIRST),
        F.max_by(ROW, SEQ).alias(LAST),
        F.sum(SUM).alias(SUM),
        F.count_if((F.col(SUM) < 0) & (F.col(SEQ) < 0)).alias(OPENED),
    )
    was = F.when(F.col(f"{FIRST}.{OP}").isin(*RETRACTIONS), F.col(f"{FIRST}.{ROW}"))
    now = F.when(F.col(f"{LAST}.{OP}").isin(*ADDITIONS), F.col(f"{LAST}.{ROW}"))
    more = F.when(now.isNull(), 0).otherwise(1) - F.when(was.isNull(), 0).otherwise(1)
    refused = _refusal(not_a_key(declared.key))
    after = F.when((F.col(SUM) != more) | (F.col(OPENED) > 1), refused).otherwise(now)
    return net.select(KEY, was.alias(BEFORE), after.alias(AFTER))


def _refusal(message: str) -> Any:
    from pyspark.sql import functions as F

    return F.raise_error(F.concat(F.lit(f"{message} "), F.col(KEY)))


# Which road -----------------------------------------------------------------------------------------------------------


def road_of(offsets: int, batch_id: int, state_bytes: int | None, *, is_bounded: bool) -> str:
    """`offsets` are to be read; `state_bytes` is what the query keeps, None where that is not known yet."""
    kept = 0 if is_bounded or batch_id == 0 else state_bytes
    return DRIVER if offsets <= OFFSETS_MAX and kept is not None and kept <= STATE_BYTES_MAX else STAGED


def offsets_to_read(checkpoint: str, batch_id: int) -> int:
    """At most so many: where the first micro-batch begins is not written down, so all before its end counts."""
    end = sources_of(checkpoint, batch_id).offsets
    begin = sources_of(checkpoint, batch_id - 1).offsets if batch_id else {}
    return sum(max(0, offset - begin.get(at, 0)) for at, offset in end.items())
