"""What operators by key share where they are declared: checks, and the way through the mechanism and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelog.errors import UsageError
from tidelog.pipelines.operators.changelog import OP, arrow_schema
from tidelog.pipelines.operators.state.fold import Fold
from tidelog.pipelines.operators.state.questions import Asking, check_questions, refuse_answers
from tidelog.pipelines.operators.time import EVENT_TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LATE = "_late"  # rows that came too late among others, by windows and joins with a side output
EVERYTHING = "_everything"  # the key of rows that are by no column


def check_columns(where: str, rows: DataFrame, names: Sequence[str]) -> None:
    if OP in rows.columns:
        raise UsageError(f"{where} takes plain rows, and this is a changelog: rows of it are taken back")
    refuse_answers(where, rows)
    if LATE in rows.columns:
        raise UsageError(f"{where} is given rows that came too late among others; split them off by on_time")
    for name in names:
        if name not in rows.columns:
            raise UsageError(f"column {name!r} does not exist; columns are {', '.join(rows.columns)}")


def asking_of(where: str, questions: DataFrame | None, names: Sequence[str]) -> Asking | None:
    """`names` is what the columns of the key are called by who asks."""
    if questions is None:
        return None
    check_questions(where, questions)
    return Asking(questions, tuple(names))


def row_schema(rows: DataFrame) -> pa.Schema:
    """Whether a column is never null is the affair of Spark's optimizer."""
    return pa.schema([pa.field(field.name, field.type) for field in arrow_schema(rows)])


def run_by(
    rows: DataFrame, keys: Sequence[str], fold: Fold, time: str, questions: DataFrame | None = None
) -> DataFrame:
    """The fold's output, whose column `time` is event time as it was in the input."""
    from pyspark.sql import functions as F

    from tidelog.pipelines.operators.state.operator import run_fold

    keyed = rows if keys else rows.withColumn(EVERYTHING, F.lit(0))
    asking = asking_of(fold.name, questions, keys)
    made = run_fold(keyed, keys or [EVERYTHING], fold, event_time=time, asking=asking)
    if rows.isStreaming:
        return made
    return made.withMetadata(time, {EVENT_TIME: rows.schema[time].metadata[EVENT_TIME]})
