"""Rows that came too late, apart from results: windows with a side output put out both, in one DataFrame.

results = clicks.transform(tumbling("1 minute", by="user", aggregates={...}, late="side_output"))
results.transform(on_time)       the windows' results
results.transform(late_rows)     the rows that were too late, as they came, with `_late`: for which window, and why
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import UsageError
from tidelog.pipelines.operators.windows.spec import END, LATE, START

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def on_time(results: DataFrame) -> DataFrame:
    _check(results)
    return results.where(results[LATE].isNull()).drop(LATE)


def late_rows(results: DataFrame) -> DataFrame:
    """A row that was too late for several windows is there once for each."""
    from pyspark.sql import functions as F

    _check(results)
    told = F.struct(*(F.col(f"{LATE}.{name}") for name in (START, END, "why", "watermark"))).alias(LATE)
    return results.where(results[LATE].isNotNull()).select(f"{LATE}.row.*", told)


def _check(results: DataFrame) -> None:
    if LATE not in results.columns:
        have = ", ".join(results.columns)
        raise UsageError(f"column {LATE} does not exist; columns are {have}. Windows have it with late='side_output'")
