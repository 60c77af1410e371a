"""`event_time(...)`: which column says when a row happened, and how late rows may come; operators over time need it.

In a stream it is Spark's watermark: the latest time of all rows so far, less a delay. Rows up to it are late.
On a batch DataFrame nothing is late; the column is only marked, so that the same operators find it there.

What it asks of Tidelog's source, which users need not know of (`docs/decisions/event_time_asks_the_source.md`):
- `alignment`: Spark's watermark is the latest of all partitions, so in a replay the rows of a partition that is behind
  would come late and be dropped. With it no partition runs ahead of another by more than half the delay. It is by
  the record's timestamp, or by a field of the value. Where event time is neither, there is a warning.
- `ticks`, where `idle_after` is given: an input that is silent for so long gets on by *tick rows*, which have a time
  and nothing else. They move the watermark and are then taken out, by a predicate over the event time itself: Spark
  would push any other one below the watermark, and ticks would never reach it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tidelog.errors import UsageError
from tidelog.pipelines.operators.durations import Duration, milliseconds, positive
from tidelog.spark.options import IDLE_AFTER_MS, RECORD_TIME
from tidelog.spark.plans import KAFKA, Origin, PlanLeaf, made_of, origins, sources, with_options
from tidelog.spark.registration import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WATERMARK = "spark.watermarkDelayMs"  # what Spark puts on a column with a watermark
EVENT_TIME = "tidelog.event_time"  # what we put on a column of a batch: the watermark delay, in ms
TICK_OFFSET = -1  # of a tick row: no record has it
BEGINNING = "-290000-01-01 00:00:00"  # before every time that Spark knows


def event_time(
    column: str, watermark_delay: Duration, idle_after: Duration | None = None, *, align_by: str | None = None
) -> Callable[[DataFrame], DataFrame]:
    """For `df.transform(event_time("timestamp", "10 seconds"))`.

    The watermark is `watermark_delay` behind the latest row, as Spark's `withWatermark` has it: rows at or below it may
    be dropped. An input that is silent for `idle_after` is
    taken to be as far as the clock is, less that time; without it, a silent input holds back all that waits for it.
    `align_by` names the field of the JSON value that `column` was made from, with dots (`event.at`); if it is a number,
    it is one of milliseconds since 1970, not of seconds.
    """
    delay_ms = milliseconds(watermark_delay, what="watermark_delay")
    idle_ms = None if idle_after is None else positive(idle_after, what="idle_after")

    def declare(rows: DataFrame) -> DataFrame:
        check_time(rows, column)
        if not rows.isStreaming:
            known = rows.schema[column].metadata
            return rows.withMetadata(column, {**known, EVENT_TIME: delay_ms})
        found = origins(rows)
        wanted = _wanted(rows, column, delay_ms, align_by)
        delay = f"{delay_ms} milliseconds"
        if idle_ms is None or not any(source.format == FORMAT for source in sources(rows)):
            return _asking(rows, wanted).withWatermark(column, delay)
        offset, record_time = _columns_of_ticks(found)
        asked = _asking(rows, wanted | {"idleAfter": f"{idle_ms}ms", "ticks": "true"})
        return _without_ticks(_timed(asked, column, offset, record_time).withWatermark(column, delay), column, offset)

    return declare


def event_time_column(rows: DataFrame) -> str:
    """The column that `event_time` has declared."""
    mark = WATERMARK if rows.isStreaming else EVENT_TIME
    names = [field.name for field in rows.schema if mark in field.metadata and field.dataType.typeName() == "timestamp"]
    if len(names) == 1:
        return names[0]
    if not names:
        have = ", ".join(rows.columns)
        raise UsageError(
            f"none of the columns {have} is known as event time; declare one first:"
            " df.transform(event_time('timestamp', '10 seconds'))"
        )
    raise UsageError(f"columns {' and '.join(names)} are both event time; drop one, or rename it by an expression")


def check_time(rows: DataFrame, column: str) -> None:
    if column not in rows.columns:
        inner = column.rpartition(".")[2]
        hint = f"; make it one first: df.withColumn({inner!r}, F.col({column!r}))" if "." in column else ""
        raise UsageError(f"column {column!r} does not exist; columns are {', '.join(rows.columns)}{hint}")
    if (kind := rows.schema[column].dataType.simpleString()) != "timestamp":
        raise UsageError(f"column {column!r} is {kind}, and event time is a timestamp; cast it first")


# --- what is asked of the source --------------------------------------------------------------------------------------


def _wanted(rows: DataFrame, column: str, delay_ms: int, align_by: str | None) -> dict[str, str]:
    """Options that the sources are to have so that a replay drops nothing; a warning where that cannot be."""
    topics = [source for source in sources(rows) if source.format in (FORMAT, KAFKA)]
    if not topics:
        return {}
    if len(topics) > 1:
        _warn(
            f"{len(topics)} inputs have one watermark together, which is the latest of all;"
            " declare event time on each before they meet"
        )
    if any(source.format == KAFKA for source in topics):
        _warn("Spark's own Kafka connector does not align partitions; read by format('tidelog')")
    ours = [source for source in topics if source.format == FORMAT]
    # Also where it is made of other columns beside it, as `corrected_time` is: the records' own is the clock to trust.
    is_of_record = any(one.column == RECORD_TIME for one in made_of(rows, column))
    if align_by is None and not is_of_record and any(source.option("alignBy") is None for source in ours):
        _warn(
            f"event time {column!r} is not the timestamp of the records; name the field of their JSON that it is made"
            f" from: event_time({column!r}, ..., align_by='field'), which is the source's option alignBy"
        )
        return {}
    return (_alignment(ours, delay_ms) if ours else {}) | ({} if align_by is None else {"alignBy": align_by})


def _alignment(ours: list[PlanLeaf], delay_ms: int) -> dict[str, str]:
    """What the user has said himself stays. Half of the delay is for rows that are out of order in their partition.

    A partition that has few rows holds the others for no longer than it lets them run ahead: in a topic that is read as
    it is written, nothing waits.
    """
    together = delay_ms // 2
    wanted = {"alignment": f"{together}ms", "idleAfter": f"{min(together, IDLE_AFTER_MS)}ms"}
    said = {name for name in wanted for source in ours if source.option(name) is not None}
    return {name: value for name, value in wanted.items() if name not in said}


def _warn(reason: str) -> None:
    warnings.warn(f"a replay may drop rows as late: {reason}", UserWarning, stacklevel=5)


def _asking(rows: DataFrame, wanted: Mapping[str, str]) -> DataFrame:
    return with_options(rows, wanted) if wanted else rows


# --- tick rows --------------------------------------------------------------------------------------------------------


def _columns_of_ticks(found: Mapping[str, list[Origin]]) -> tuple[str, str]:
    names = {
        wanted: next((name for name, those in found.items() if any(one.column == wanted for one in those)), None)
        for wanted in ("offset", RECORD_TIME)
    }
    offset, record_time = names["offset"], names[RECORD_TIME]
    if offset is None or record_time is None:
        missing = " and ".join(name for name, there in names.items() if there is None)
        raise UsageError(
            f"event_time with idle_after needs the source's column {missing}, by which it knows tick rows;"
            " declare event time before those columns are left out"
        )
    return offset, record_time


def _timed(rows: DataFrame, column: str, offset: str, record_time: str) -> DataFrame:
    """A tick has the time of its record, also where that is not the event time of other rows."""
    from pyspark.sql import functions as F

    if column == record_time:
        return rows
    tick = F.col(f"`{offset}`").eqNullSafe(F.lit(TICK_OFFSET))
    time = F.when(tick, F.col(f"`{record_time}`")).otherwise(F.col(f"`{column}`"))
    return rows.withColumn(column, time)


def _without_ticks(rows: DataFrame, column: str, offset: str) -> DataFrame:
    """Compared, and not asked whether it is null: that Spark would leave out where the column is known to be set.

    The number of the task is there because it is no function of the row: by it, Spark pushes no later filter through
    this one. A join's own `key IS NOT NULL`, or a user's filter, would sink below the watermark and take all ticks out.
    """
    from pyspark.sql import functions as F

    tick = F.col(f"`{offset}`").eqNullSafe(F.lit(TICK_OFFSET))
    timed = F.col(f"`{column}`") >= F.lit(BEGINNING).cast("timestamp")
    return rows.filter(~(tick & timed) & (F.spark_partition_id() >= 0))
