"""Tumbling and hopping windows by hand: a key keeps its open windows, each with a count and the value of the last row.

    tumbling   10 minutes, put out whenever they have changed
    hopping    1 minute, every 30 seconds: put out when they are over, and corrected for another minute

`told`: it has been put out. A row that is too late for a window is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.pipelines.by_key.turns import OneTimer, Turn, at_millis, in_turns
from pyspark.sql import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MINUTE = 60_000
INSERT, BEFORE, AFTER = "+I", "-U", "+U"
TIMES = (
    "timestamp_millis(start) window_start",
    "timestamp_millis(until) window_end",
    "timestamp_micros(until * 1000 - 1) window_time",
)


def tumbling(rows: DataFrame) -> DataFrame:
    return shown(in_turns(at_millis(rows), Tumbling()))


def hopping(rows: DataFrame) -> DataFrame:
    return shown(in_turns(at_millis(rows), Hopping()))


def shown(windows: DataFrame) -> DataFrame:
    return windows.selectExpr("op as _op", *TIMES, "key", "n", "last")


class Tumbling(OneTimer):
    SIZE = 10 * MINUTE
    KEPT = "windows array<struct<start bigint, n bigint, at bigint, last bigint>>"
    OUTPUT = "op string, start bigint, until bigint, key bigint, n bigint, last bigint"

    def turn(self, key: int, held: tuple[Any, ...] | None, rows: list[Any], watermark: int) -> Turn:
        before = {window[0]: tuple(window[1:]) for window in held[0]} if held else {}
        windows = dict(before)
        for row in rows:
            start = row.at - row.at % self.SIZE
            if start + self.SIZE > watermark:
                windows[start] = with_row(windows.get(start), row)
        output = []
        for start, window in windows.items():
            if start not in before:
                output.append(self._told(INSERT, key, start, window))
            elif window != before[start]:
                output.append(self._told(BEFORE, key, start, before[start]))
                output.append(self._told(AFTER, key, start, window))
        kept = [(start, *window) for start, window in windows.items() if start + self.SIZE > watermark]
        if not kept:
            return Turn(None, None, output)
        return Turn((kept,), min(window[0] for window in kept) + self.SIZE, output)

    def _told(self, op: str, key: int, start: int, window: tuple[int, int, int]) -> Row:
        n, _, last = window
        return Row(op=op, start=start, until=start + self.SIZE, key=key, n=n, last=last)


class Hopping(OneTimer):
    SIZE, EVERY, ALLOWED = MINUTE, MINUTE // 2, MINUTE
    KEPT = "windows array<struct<start bigint, told boolean, n bigint, at bigint, last bigint>>"
    OUTPUT = "op string, start bigint, until bigint, key bigint, n bigint, last bigint"

    def turn(self, key: int, held: tuple[Any, ...] | None, rows: list[Any], watermark: int) -> Turn:
        before = {window[0]: tuple(window[2:]) for window in held[0]} if held else {}
        told = {window[0] for window in held[0] if window[1]} if held else set()
        windows = dict(before)
        for row in rows:
            newest = row.at - row.at % self.EVERY
            for start in range(newest, row.at - self.SIZE, -self.EVERY):
                if start + self.SIZE + self.ALLOWED > watermark:
                    windows[start] = with_row(windows.get(start), row)
        output, kept = [], []
        for start, window in windows.items():
            end = start + self.SIZE
            if end <= watermark and start not in told:
                output.append(self._told(INSERT, key, start, window))
            elif end <= watermark and window != before[start]:
                output.append(self._told(BEFORE, key, start, before[start]))
                output.append(self._told(AFTER, key, start, window))
            if end + self.ALLOWED > watermark:
                kept.append((start, end <= watermark, *window))
        if not kept:
            return Turn(None, None, output)
        due = min(window[0] + self.SIZE + (self.ALLOWED if window[1] else 0) for window in kept)
        return Turn((kept,), due, output)

    def _told(self, op: str, key: int, start: int, window: tuple[int, int, int]) -> Row:
        n, _, last = window
        return Row(op=op, start=start, until=start + self.SIZE, key=key, n=n, last=last)


def with_row(window: tuple[int, int, int] | None, row: Any) -> tuple[int, int, int]:
    """How many rows, the time of the last one, and its value."""
    if window is None:
        return 1, row.at, row.value
    n, at, last = window
    return (n + 1, row.at, row.value) if row.at >= at else (n + 1, at, last)
