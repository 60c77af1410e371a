"""Rows that are dropped where no Python sees them: in front of Spark's own operators, and of an output without a key.

The plan counts them as it runs (Spark's observed metrics), and who runs the query reads the sums of a micro-batch when
its rows are staged (`pipelines/observed.py`). Nothing of it stands in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING

from tidelog.control.counts import WITHOUT_KEY, WITHOUT_TIME

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_declared: ContextVar[dict[str, str] | None] = ContextVar("counts in plans, by their names there", default=None)
_numbers = count(1)


@contextmanager
def counted_in(declared: dict[str, str] | None) -> Iterator[None]:
    """For operators that are declared inside of this: the names of their counts in the plan, and their own."""
    token = _declared.set(declared)
    try:
        yield
    finally:
        _declared.reset(token)


def counting_untimed(rows: DataFrame, operator: str, time: str) -> DataFrame:
    """The same rows, of which an operator drops those without a time."""
    return _counting(rows, operator, WITHOUT_TIME, rows[time].isNull())


def counting_keyless(rows: DataFrame, operator: str, key: Sequence[str]) -> DataFrame:
    from functools import reduce

    missing = [rows[f"`{name}`"].isNull() for name in key]
    return _counting(rows, operator, WITHOUT_KEY, reduce(lambda one, other: one | other, missing))


def _counting(rows: DataFrame, operator: str, reason: str, is_dropped: Column) -> DataFrame:
    from pyspark.sql import functions as F

    declared = _declared.get()
    if declared is None or not rows.isStreaming:
        return rows
    name = f"tidelog dropped {next(_numbers)}"  # a plan has each name once
    declared[name] = operator
    return rows.observe(name, F.count_if(is_dropped).alias(reason))
