"""`sliding`: windows that change whenever a record enters or leaves, as Kafka Streams has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from tidelog.pipelines.operators.aggregates import Aggregate
from tidelog.pipelines.operators.durations import Duration
from tidelog.pipelines.operators.windows.declared import Late, Policy, by_fold, checked, declare, microseconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def sliding(
    size: Duration,
    *,
    by: str | Sequence[str] = (),
    aggregates: Mapping[str, Aggregate],
    late: Late = "drop",
    allowed_lateness: Duration | None = None,
    beyond: Literal["drop", "side_output"] = "drop",
    early: bool | Duration = False,
    questions: DataFrame | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """For `df.transform(sliding("30 minutes", by="user", aggregates={"actions": count()}))`.

    A window holds the rows of a key that are no further apart than `size`: one ends with each row, one begins a
    millisecond behind it if another row is in it. `window_end` is the last instant that belongs to the window. `late`,
    `allowed_lateness`, `beyond` and `early` are as for `tumbling`; a row is late when the window that ends with it
    is over.
    """
    declared = declare("sliding", by, aggregates, Policy(late, allowed_lateness, beyond, early))
    span = microseconds(size, "size")

    def windows(frame: DataFrame) -> DataFrame:
        from tidelog.pipelines.operators.windows.sliding_fold import SlidingFold

        spec = checked(declared, frame)
        return by_fold(frame, SlidingFold(spec, span), spec, questions=questions)

    return windows
