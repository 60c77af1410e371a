"""`stream_join`: events of two streams that happened within some time of each other. Spark's own join, in the JVM.

It takes plain rows and gives plain rows, each once. A row that met nothing is put out ("left", "right", "full", "anti")
when the watermark says that nothing can come any more that it would meet: Spark has that in append mode, and refuses
such a join in update mode when the query starts. Rows behind the watermark are dropped by Spark, which counts them
(`numRowsDroppedByWatermark` in the query's progress). Rows without an event time are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from tidelog.errors import UsageError
from tidelog.pipelines.operators.changelog import OP
from tidelog.pipelines.operators.dropped import counting_untimed
from tidelog.pipelines.operators.durations import Duration, milliseconds
from tidelog.pipelines.operators.joins.sides import sides_of, unplaced
from tidelog.spark.native_operators import declared_with

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SPARK_KINDS = {"inner": "inner", "left": "left", "right": "right", "full": "full", "semi": "left_semi", "anti": "left"}
LEFT_ONLY = ("semi", "anti")

Within = Duration | tuple[Duration, Duration]


def stream_join(
    right: DataFrame, on: str | Sequence[str], *, within: Within, how: str = "inner"
) -> Callable[[DataFrame], DataFrame]:
    """Rows of two streams that agree in `on` and happened within some time of each other, both ends included.

    `within` is a duration either way, or `(before, after)`: how long before and after the left row the right one may
    be. The event time of the result is that of the left; for "right", that of the right.
    """
    names = [on] if isinstance(on, str) else list(on)
    before, after = _range(within)
    if how not in SPARK_KINDS:
        raise UsageError(f"how is {how!r}; it is one of {', '.join(map(repr, SPARK_KINDS))}")

    def joined(rows: DataFrame) -> DataFrame:
        from tidelog.pipelines.operators.time import event_time_column

        left, other = unplaced(rows), unplaced(right)
        _check_inputs(left, other)
        left, other = (counting_untimed(one, "stream_join", event_time_column(one)) for one in (left, other))
        sides = sides_of(left, other, [(name, name) for name in names])
        met = _joined(left, other, names, (before, after), how)
        met = declared_with(met, "stream_join", _said(left, other, names, (before, after), how))
        return met.select(*_columns(left, other, names, how, sides.right))

    return joined


def _said(left: DataFrame, right: DataFrame, names: list[str], span: tuple[int, int], how: str) -> dict[str, str]:
    """For who goes on with the state."""
    from tidelog.pipelines.operators.time import event_time_column

    before, after = (str(timedelta(milliseconds=each)) for each in span)
    times = [event_time_column(left), event_time_column(right)]
    return {"on": str(names), "how": repr(how), "within before": before, "within after": after, "times": str(times)}


def _joined(left: DataFrame, right: DataFrame, names: list[str], span: tuple[int, int], how: str) -> DataFrame:
    from tidelog.pipelines.operators.time import event_time_column

    time, other = left[event_time_column(left)], right[event_time_column(right)]
    meets = (other >= time - _interval(span[0])) & (other <= time + _interval(span[1]))
    for name in names:
        meets = meets & (left[name] == right[name])
    # Of a row without a time Spark would never know that nothing can meet it any more: it would be kept for ever.
    joined = left.where(time.isNotNull()).join(right.where(other.isNotNull()), meets, SPARK_KINDS[how])
    return joined.where(other.isNull()) if how == "anti" else joined


def _columns(left: DataFrame, right: DataFrame, names: list[str], how: str, rest: Sequence[str]) -> list[Column]:
    """The columns that they are joined by, those of the left, those of the right; one of them is event time."""
    from pyspark.sql import functions as F

    from tidelog.pipelines.operators.time import event_time_column

    if how in LEFT_ONLY:
        return [left[name] for name in left.columns]
    keys = {
        name: F.coalesce(left[name], right[name]) if how == "full" else (right if how == "right" else left)[name]
        for name in names
    }
    plain = event_time_column(left) if how == "right" else event_time_column(right)
    owners = {name: left for name in left.columns if name not in names} | dict.fromkeys(rest, right)
    others = [owner[name].alias(name, metadata={}) if name == plain else owner[name] for name, owner in owners.items()]
    return [*(column.alias(name) for name, column in keys.items()), *others]


def _interval(span: int) -> Column:
    from pyspark.sql import functions as F

    return F.expr(f"interval {span} milliseconds")


def _range(within: Within) -> tuple[int, int]:
    before, after = within if isinstance(within, tuple) else (within, within)
    return milliseconds(before, what="within"), milliseconds(after, what="within")


def _check_inputs(left: DataFrame, right: DataFrame) -> None:
    if OP in left.columns or OP in right.columns:
        raise UsageError(
            "stream_join takes plain rows, and this is a changelog; use join_tables, or enrich for one of both"
        )
    if left.isStreaming != right.isStreaming:
        raise UsageError("one of the two is a stream and the other a batch; read both in the same way")
