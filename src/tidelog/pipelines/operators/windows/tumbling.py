"""`tumbling`: windows of one length, side by side; every row is in exactly one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from tidelog.pipelines.operators.aggregates import Aggregate
from tidelog.pipelines.operators.durations import Duration
from tidelog.pipelines.operators.windows.declared import Late, Policy, declare, grid_of, on_grid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def tumbling(
    size: Duration,
    *,
    by: str | Sequence[str] = (),
    aggregates: Mapping[str, Aggregate],
    offset: Duration = "0 seconds",
    late: Late = "drop",
    allowed_lateness: Duration | None = None,
    beyond: Literal["drop", "side_output"] = "drop",
    early: bool | Duration = False,
    questions: DataFrame | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """For `df.transform(tumbling("1 minute", by="user", aggregates={"clicks": count()}))`.

    Windows [start, start + size) begin at `offset` from 1970, UTC. A row that comes when its window is over is dropped
    (and counted), or goes to a side output (`late.py`), or corrects the window for as long as `allowed_lateness`;
    `beyond` says whether it is dropped or goes to the side output after that. `early`: windows are put out while they
    are open, whenever they have changed; `early="1 minute"`: once in every minute of event time at most
    (`throttled.py`). `questions`: what is put to the windows of a key.
    """
    declared = declare("tumbling", by, aggregates, Policy(late, allowed_lateness, beyond, early))
    return on_grid(declared, grid_of(size, size, offset), questions=questions)
