"""A key's turn: rows have come, or its time has. What programs by key have in common.

A program says what it keeps of a key (`KEPT`, columns of one value) and what a turn makes of that (`turn`). It does
whatever is due whenever it is called, and then takes the timer back: a timer that fires is three round trips more.
The names of the other methods, and those of their arguments, are Spark's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

by_time = attrgetter("at")


class Turn(NamedTuple):
    """`kept` is one value for each column of `KEPT`, or None: nothing. `due` is when to look again, in ms."""

    kept: tuple[Any, ...] | None
    due: int | None
    output: list[Row]


class OneTimer(StatefulProcessor):
    KEPT: str
    OUTPUT: str

    @abstractmethod
    def turn(self, key: int, held: tuple[Any, ...] | None, rows: list[Any], watermark: int) -> Turn:
        """Rows are by time; there are none where the time has come that was asked for."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.state = handle.getValueState("state", f"{self.KEPT}, timer bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        yield from self._taken(key[0], sorted(rows, key=by_time), timerValues.getCurrentWatermarkInMs(), None)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        expired = expiredTimerInfo.getExpiryTimeInMs()
        yield from self._taken(key[0], [], timerValues.getCurrentWatermarkInMs(), expired)

    def close(self) -> None:
        pass

    def _taken(self, key: int, rows: list[Any], watermark: int, expired: int | None) -> list[Row]:
        """Spark takes the timer that has just expired away by itself."""
        held = self.state.get()
        before = None if held is None else held[-1]
        kept, due, output = self.turn(key, None if held is None else held[:-1], rows, watermark)
        if kept is not None:
            self.state.update((*kept, due))
        elif held is not None:
            self.state.clear()
        if due != before:
            if before is not None and before != expired:
                self.handle.deleteTimer(before)
            if due is not None:
                self.handle.registerTimer(due)
        return output


def in_turns(rows: DataFrame, program: OneTimer) -> DataFrame:
    """By `key`. Rows have their time as a number, so that Spark does not drop the late ones before they are seen."""
    return rows.groupBy("key").transformWithState(program, program.OUTPUT, "Append", "EventTime")


def at_millis(rows: DataFrame) -> DataFrame:
    """Event time as the operators have it (a millisecond an offset, 10 seconds late at most), as a number."""
    timed = rows.selectExpr("key", "value", "timestamp_millis(1700000000000L + offset) as at")
    return timed.withWatermark("at", "10 seconds").selectExpr("key", "value", "unix_millis(at) as at")
