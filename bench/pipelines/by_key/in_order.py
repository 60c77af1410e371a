"""Rows of a key in the order of event time, by hand: duplicates within a minute, and changes of the value.

A row waits until the watermark has reached it, since an earlier one may come until then. A row that comes later than
that is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.pipelines.by_key.turns import OneTimer, Turn, at_millis, in_turns
from pyspark.sql import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WITHIN = 60_000


def deduplicate(rows: DataFrame) -> DataFrame:
    return in_turns(at_millis(rows), Deduplicate()).selectExpr("key", "value", "timestamp_millis(at) at")


def changes(rows: DataFrame) -> DataFrame:
    found = in_turns(at_millis(rows), Changes())
    return found.selectExpr("key", "value", "timestamp_millis(at) at", "before as value_before")


class Deduplicate(OneTimer):
    KEPT = "waiting array<struct<at bigint, value bigint>>, last bigint"
    OUTPUT = "key bigint, value bigint, at bigint"

    def turn(self, key: int, held: tuple[Any, ...] | None, rows: list[Any], watermark: int) -> Turn:
        """`last` is when the last row went on; it is forgotten once it cannot matter any more."""
        waiting, last = held or ([], None)
        ready, waiting = split(waiting, rows, watermark)
        output = []
        for at, value in ready:
            if last is None or at - last > WITHIN:
                last = at
                output.append(Row(key=key, value=value, at=at))
        if last is not None and last + WITHIN < watermark:
            last = None
        dues = [at for at, _ in waiting[:1]] + ([] if last is None else [last + WITHIN + 1])
        return Turn((waiting, last) if dues else None, min(dues, default=None), output)


class Changes(OneTimer):
    KEPT = "waiting array<struct<at bigint, value bigint>>, known boolean, last bigint"
    OUTPUT = "key bigint, value bigint, at bigint, before bigint"

    def turn(self, key: int, held: tuple[Any, ...] | None, rows: list[Any], watermark: int) -> Turn:
        waiting, known, last = held or ([], False, None)
        ready, waiting = split(waiting, rows, watermark)
        output = []
        for at, value in ready:
            if not known or value != last:
                output.append(Row(key=key, value=value, at=at, before=last))
                known, last = True, value
        return Turn((waiting, known, last), waiting[0][0] if waiting else None, output)


Waiting = list[tuple[int, int]]


def split(waiting: Waiting, rows: list[Any], watermark: int) -> tuple[Waiting, Waiting]:
    """Times and values of rows that the watermark has reached, and of those that it has not; both by time."""
    every = [*((at, value) for at, value in waiting), *((row.at, row.value) for row in rows if row.at > watermark)]
    every.sort(key=lambda row: row[0])
    return [row for row in every if row[0] <= watermark], [row for row in every if row[0] > watermark]
