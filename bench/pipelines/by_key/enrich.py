"""Rows of a stream with what a table said of their key at their time, by hand: both are one stream, with a `side`.

A row waits until the watermark has reached it; a version of the table is kept while a row can still ask for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.pipelines.by_key.in_order import split
from bench.pipelines.by_key.turns import OneTimer, Turn, at_millis, in_turns
from pyspark.sql import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STREAM, TABLE = 0, 1


def enrich(rows: DataFrame) -> DataFrame:
    stream, table = (at_millis(rows).selectExpr("key", "value", "at", f"{side} as side") for side in (STREAM, TABLE))
    joined = in_turns(stream.unionByName(table), Enrich())
    return joined.selectExpr("key", "value", "timestamp_millis(at) at", "known", "timestamp_millis(since) since")


class Enrich(OneTimer):
    KEPT = "waiting array<struct<at bigint, value bigint>>, versions array<struct<at bigint, value bigint>>"
    OUTPUT = "key bigint, value bigint, at bigint, known bigint, since bigint"

    def turn(self, key: int, held: tuple[Any, ...] | None, rows: list[Any], watermark: int) -> Turn:
        waiting, versions = held or ([], [])
        versions = [*versions, *((row.at, row.value) for row in rows if row.side == TABLE)]
        versions = sorted(dict(versions).items())  # of two at the same time, the one that came last
        ready, waiting = split(waiting, [row for row in rows if row.side == STREAM], watermark)
        output = []
        for at, value in ready:
            since, known = max((one for one in versions if one[0] <= at), default=(None, None))
            output.append(Row(key=key, value=value, at=at, known=known, since=since))
        reached = [one for one in versions if one[0] <= watermark]
        versions = reached[-1:] + versions[len(reached) :]
        if not waiting and not versions:
            return Turn(None, None, output)
        return Turn((waiting, versions), waiting[0][0] if waiting else None, output)
