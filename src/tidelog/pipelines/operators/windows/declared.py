"""What the windows have in common where they are declared: their options, checked, and the two roads to a result.

    native   groupBy(window(...)) in the JVM: where rows that come too late are dropped and nothing else is asked for
    fold     `run_fold`: where they are corrected or a side output, where windows are put out early, or always, where
             Spark lacks the window or the aggregate, and where questions are to be answered

Both give the same rows, but for ties (see `aggregates.py`), for rows close to the watermark, of which Spark judges by
that of the micro-batch before and a fold by the newest, and for sessions: there a fold lets a late row join a session
that is still open, and Spark drops it. Windows take plain rows, and give plain rows, or a changelog where what
is put out may change: with `early`, and with `late="correct"`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tidelog.errors import UsageError
from tidelog.pipelines.operators.aggregates import Aggregate
from tidelog.pipelines.operators.changelog import OP
from tidelog.pipelines.operators.durations import Duration, milliseconds, positive
from tidelog.pipelines.operators.windows.anchors import SEED, seeding
from tidelog.pipelines.operators.windows.grid import Grid

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from tidelog.pipelines.operators.state.fold import Fold
    from tidelog.pipelines.operators.windows.grid_fold import GridFold
    from tidelog.pipelines.operators.windows.session_fold import SessionFold
    from tidelog.pipelines.operators.windows.spec import Spec

Late = Literal["drop", "correct", "side_output"]
SIDE_OUTPUT = "side_output"  # late rows come out beside results (`late.py`)
MICROSECONDS = 1_000
EVERYTHING = "_everything"  # the key of windows that are by no column


class Policy(NamedTuple):
    """What becomes of rows that come too late, and when windows are put out: keywords that every window has."""

    late: Late
    allowed_lateness: Duration | None
    beyond: Literal["drop", "side_output"]
    early: bool | Duration


class Declared(NamedTuple):
    """`allowed` in microseconds; None: nothing is corrected. `interval` in ms; None: early results come at once."""

    where: str
    by: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    allowed: int | None
    diverts: bool
    early: bool
    interval: int | None

    def native(self, time: str, *, asked: bool = False) -> dict[str, Column]:
        """The aggregates as Spark's own, if nothing is asked for that it lacks, and nobody asks; else none."""
        if self.allowed is not None or self.diverts or self.early or asked:
            return {}
        columns = {name: aggregate.native(time) for name, aggregate in self.aggregates.items()}
        known = {name: column for name, column in columns.items() if column is not None}
        return known if len(known) == len(columns) else {}


def declare(where: str, by: str | Sequence[str], aggregates: Mapping[str, Aggregate], policy: Policy) -> Declared:
    late, allowed, beyond, early = policy
    if not aggregates:
        raise UsageError(f"{where} has no aggregates; give it some: aggregates={{'rows': count()}}")
    if late not in ("drop", "correct", SIDE_OUTPUT):
        raise UsageError(f"late is {late!r}; write 'drop', 'correct' or 'side_output'")
    if beyond not in ("drop", SIDE_OUTPUT):
        raise UsageError(f"beyond is {beyond!r}; write 'drop' or 'side_output'")
    if late != "correct" and (allowed is not None or beyond != "drop"):
        raise UsageError(f"allowed_lateness and beyond are for late='correct', and late is {late!r}")
    if late == "correct" and allowed is None:
        raise UsageError("late='correct' needs an allowed lateness; write allowed_lateness='1 hour'")
    span = None if allowed is None else positive(allowed, what="allowed_lateness") * MICROSECONDS
    interval = None if isinstance(early, bool) else positive(early, what="early")
    names = (by,) if isinstance(by, str) else tuple(by)
    diverts = SIDE_OUTPUT in (late, beyond)
    return Declared(where, names, dict(aggregates), span, diverts, early is not False, interval)


def microseconds(duration: Duration, what: str) -> int:
    return positive(duration, what=what) * MICROSECONDS


def grid_of(size: Duration, every: Duration, offset: Duration) -> Grid:
    length, hop = microseconds(size, "size"), microseconds(every, "every")
    if hop > length:
        raise UsageError(f"every is {every!r}, longer than size, {size!r}: rows in between would be in no window")
    return Grid(length, hop, milliseconds(offset, what="offset") * MICROSECONDS % hop)


def checked(declared: Declared, frame: DataFrame) -> Spec:
    """What is declared, on this frame; refuses what it does not fit."""
    from tidelog.pipelines.operators.changelog import arrow_schema
    from tidelog.pipelines.operators.place_in_query import warn_of_less_lateness
    from tidelog.pipelines.operators.state.questions import refuse_answers
    from tidelog.pipelines.operators.time import event_time_column
    from tidelog.pipelines.operators.windows.spec import LATE, Spec, check, nullable

    if OP in frame.columns:
        raise UsageError(f"{declared.where} takes plain rows, and this is a changelog: rows of it are taken back")
    refuse_answers(declared.where, frame)
    if LATE in frame.columns:
        raise UsageError(f"{declared.where} is given rows that came too late among others; split them off by on_time")
    if declared.allowed is not None:
        warn_of_less_lateness(frame, f"{declared.where} with late='correct'", declared.allowed // MICROSECONDS)
    rows, aggregates = nullable(arrow_schema(frame)), tuple(declared.aggregates.items())
    policy = (declared.allowed, declared.early, declared.diverts, declared.interval)
    return check(Spec(rows, event_time_column(frame), declared.by, aggregates, *policy))


def on_grid(
    declared: Declared, grid: Grid, keys: Sequence[Any] | None = None, questions: DataFrame | None = None
) -> Callable[[DataFrame], DataFrame]:
    """Tumbling and hopping windows; those of `keys` also without a row."""

    def windows(frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        from tidelog.pipelines.operators.windows.always_fold import AlwaysFold
        from tidelog.pipelines.operators.windows.grid_fold import GridFold

        spec = checked(declared, frame)
        if keys is not None:
            seeded = with_seeds(frame, spec, key_values(spec, keys))
            return by_fold(seeded, AlwaysFold(spec, grid), spec, questions=questions)
        if native := declared.native(spec.time, asked=questions is not None):
            durations = [f"{each} microseconds" for each in (grid.size, grid.every, grid.offset)]
            return by_spark(frame, F.window(spec.time, *durations), GridFold(spec, grid), native)
        return by_fold(frame, GridFold(spec, grid), spec, questions=questions)

    return windows


def key_values(spec: Spec, keys: Sequence[Any]) -> pa.Table:
    """Declared keys as a table: each a tuple in the order of `by`, or a value where there is one column."""
    import pyarrow as pa

    rows = [key if isinstance(key, tuple) else (key,) for key in keys]
    if wrong := [row for row in rows if len(row) != len(spec.by)]:
        raise UsageError(f"keys has {wrong[0]!r}, and windows are by {', '.join(spec.by) or 'nothing'}")
    fields = [spec.rows.field(name) for name in spec.by]
    columns = {field.name: pa.array([row[place] for row in rows], field.type) for place, field in enumerate(fields)}
    return pa.table(columns) if columns else pa.table({SEED: [True] * len(rows)})


def with_seeds(frame: DataFrame, spec: Spec, keys: pa.Table) -> DataFrame:
    """The rows, and for each of the keys what the other rows tell it of time."""
    from pyspark.sql.types import BooleanType, StructField, StructType

    fields = [StructField(field.name, field.dataType, True, field.metadata) for field in frame.schema]
    return frame.mapInArrow(seeding(spec.time, keys), StructType([*fields, StructField(SEED, BooleanType())]))


def called(fold: Fold) -> str:
    """As users know it; its `name` is for checkpoints, and stays."""
    from tidelog.pipelines.operators.windows.grid_fold import GridFold

    if not isinstance(fold, GridFold):
        return fold.name
    return "tumbling windows" if fold.grid.tumbles else "hopping windows"


def by_fold(
    frame: DataFrame, fold: Fold, spec: Spec, *, together: bool = False, questions: DataFrame | None = None
) -> DataFrame:
    """`together`: what is told of a key is told at once (`throttled.py`)."""
    from pyspark.sql import functions as F

    from tidelog.pipelines.operators.keyed import asking_of
    from tidelog.pipelines.operators.place_in_query import check_place
    from tidelog.pipelines.operators.state.operator import run_fold
    from tidelog.pipelines.operators.windows.spec import START, TIME
    from tidelog.pipelines.operators.windows.throttled import Throttled
    from tidelog.spark.row_marks import one_row_by

    check_place(frame, called(fold), "ask for late='drop' and nothing more here, or ")
    assert spec.state_fields  # an aggregate that only Spark has refuses here, and not in a worker
    if spec.interval is not None:
        fold = Throttled(fold, spec, spec.interval, together)
    keyed = frame if spec.by else frame.withColumn(EVERYTHING, F.lit(0))
    time = None if spec.changelog else TIME
    asking = asking_of(fold.name, questions, spec.by)
    made = run_fold(keyed, spec.by or [EVERYTHING], fold, event_time=time, asking=asking)
    return with_time(frame, made if spec.changelog else one_row_by(made, (*spec.by, START)), spec)


def by_spark(
    frame: DataFrame, window: Column, fold: GridFold | SessionFold, results: Mapping[str, Column]
) -> DataFrame:
    """`fold` is the one in whose place this stands."""
    from pyspark.sql import functions as F

    from tidelog.pipelines.operators.dropped import counting_untimed
    from tidelog.pipelines.operators.state.parameters import said_of
    from tidelog.pipelines.operators.windows.spec import END, START, TIME
    from tidelog.spark.native_operators import declared_with

    spec = fold.spec
    frame = counting_untimed(frame, called(fold), spec.time)
    grouped = frame.groupBy(window.alias("window"), *(F.col(name).alias(f"by_{name}") for name in spec.by))
    found = grouped.agg(*(column.alias(f"of_{name}") for name, column in results.items()))
    found = declared_with(found, fold.name, said_of(fold))
    bounds = [F.col("window.start").alias(START), F.col("window.end").alias(END), F.window_time("window").alias(TIME)]
    by = [F.col(f"by_{name}").alias(name) for name in spec.by]
    return with_time(frame, found.select(*bounds, *by, *(F.col(f"of_{name}").alias(name) for name in results)), spec)


def with_time(frame: DataFrame, results: DataFrame, spec: Spec) -> DataFrame:
    """Of a batch, too, later operators know the event time: it is as late as that of its rows."""
    from tidelog.pipelines.operators.time import EVENT_TIME
    from tidelog.pipelines.operators.windows.spec import TIME

    if frame.isStreaming or spec.changelog:
        return results
    return results.withMetadata(TIME, {EVENT_TIME: frame.schema[spec.time].metadata[EVENT_TIME]})
