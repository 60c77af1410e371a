"""`session`: rows of one key that are no further apart than a gap, from the first to the gap behind the last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from tidelog.pipelines.operators.aggregates import Aggregate
from tidelog.pipelines.operators.durations import Duration
from tidelog.pipelines.operators.windows.declared import Late, Policy, by_fold, by_spark, checked, declare, microseconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def session(
    gap: Duration,
    *,
    by: str | Sequence[str] = (),
    aggregates: Mapping[str, Aggregate],
    late: Late = "drop",
    allowed_lateness: Duration | None = None,
    beyond: Literal["drop", "side_output"] = "drop",
    early: bool | Duration = False,
    questions: DataFrame | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """For `df.transform(session("30 minutes", by="user", aggregates={"clicks": count()}))`.

    A session is over when the watermark is a gap behind its last row. `late`, `allowed_lateness`, `beyond` and `early`
    are as for `tumbling`. Where a changelog is asked for, a session that grows is deleted before the larger one is
    inserted.
    """
    declared = declare("session", by, aggregates, Policy(late, allowed_lateness, beyond, early))
    span = microseconds(gap, "gap")

    def sessions(frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        from tidelog.pipelines.operators.windows.session_fold import SessionFold

        spec = checked(declared, frame)
        fold = SessionFold(spec, span)
        native = declared.native(spec.time, asked=questions is not None)
        if native and spec.by:  # Spark has no sessions that are by nothing
            return by_spark(frame, F.session_window(spec.time, f"{span} microseconds"), fold, native)
        return by_fold(frame, fold, spec, together=True, questions=questions)

    return sessions
