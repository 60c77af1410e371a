"""Sliding windows of a minute by hand: one that ends with each row, and one that begins behind it, if it holds another.

A key keeps its rows for as long as they can be in a window that is not over, and the watermark of its last turn: what
was over by then has been put out. Both ends belong to a window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.pipelines.by_key.turns import OneTimer, Turn, at_millis, in_turns
from pyspark.sql import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def sliding(rows: DataFrame) -> DataFrame:
    windows = in_turns(at_millis(rows), Sliding())
    times = ["timestamp_millis(start) window_start", "timestamp_millis(until) window_end"]
    time = "timestamp_micros((until + 1) * 1000 - 1) window_time"
    return windows.selectExpr(*times, time, "key", "n", "last")


class Sliding(OneTimer):
    SIZE = 60_000
    KEPT = "rows array<struct<at bigint, value bigint>>, seen bigint"
    OUTPUT = "start bigint, until bigint, key bigint, n bigint, last bigint"

    def turn(self, key: int, held: tuple[Any, ...] | None, rows: list[Any], watermark: int) -> Turn:
        """A window that is over takes no more rows: it is put out before the new ones are looked at."""
        known: list[tuple[int, int]] = [(at, value) for at, value in held[0]] if held else []
        output = self._over(key, known, held[1], watermark) if held else []
        known += [(row.at, row.value) for row in rows if row.at + self.SIZE + 1 > watermark]
        kept = sorted((row for row in known if self._left(row[0]) > watermark), key=lambda row: row[0])
        if not kept:
            return Turn(None, None, output)
        due = min(at + 1 if at + 1 > watermark else self._left(at) for at, _ in kept)
        return Turn((kept, watermark), due, output)

    def _left(self, at: int) -> int:
        """When the window is over that begins behind a row: no later one needs it."""
        return at + 1 + self.SIZE + 1

    def _over(self, key: int, known: list[tuple[int, int]], seen: int, watermark: int) -> list[Row]:
        starts = {start for at, _ in known for start in (at - self.SIZE, at + 1)}
        output = []
        for start in starts:
            end = start + self.SIZE
            if seen < end + 1 <= watermark and (inside := [value for at, value in known if start <= at <= end]):
                output.append(Row(start=start, until=end, key=key, n=len(inside), last=inside[-1]))
        return output
