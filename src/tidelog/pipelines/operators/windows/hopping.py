"""`hopping`: windows of one length that begin every so often, and so overlap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tidelog.errors import UsageError
from tidelog.pipelines.operators.aggregates import Aggregate
from tidelog.pipelines.operators.durations import Duration
from tidelog.pipelines.operators.windows.declared import Late, Policy, declare, grid_of, on_grid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def hopping(
    size: Duration,
    *,
    every: Duration,
    by: str | Sequence[str] = (),
    aggregates: Mapping[str, Aggregate],
    offset: Duration = "0 seconds",
    late: Late = "drop",
    allowed_lateness: Duration | None = None,
    beyond: Literal["drop", "side_output"] = "drop",
    early: bool | Duration = False,
    emit: Literal["filled", "always"] = "filled",
    keys: Sequence[Any] | None = None,
    questions: DataFrame | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """For `df.transform(hopping("5 minutes", every="1 minute", by="user", aggregates={"clicks": count()}))`.

    Windows [start, start + size) begin every `every` from `offset` on. `late`, `allowed_lateness`, `beyond` and `early`
    are as for `tumbling`, and decided for each row and each of its windows: a row may be late for one and not for the
    next.

    `emit="always"`: a result for every hop and each of `keys`, also where no row is in the window; keys are values of
    the column `by`, or tuples of several. It begins with the first row of all keys, and goes on as event time does:
    `event_time(..., idle_after=...)` lets it go on by the clock. Without `keys`, it is for those seen in the window.
    """
    if keys is not None and emit != "always":
        raise UsageError("keys says whose windows are put out without a row; write emit='always'")
    declared = declare("hopping", by, aggregates, Policy(late, allowed_lateness, beyond, early))
    return on_grid(declared, grid_of(size, every, offset), keys, questions)
