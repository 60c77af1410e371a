"""A fold as Spark calls it: one group is one bucket, one call is one step.

Spark calls `handleInputRows` for a bucket that has rows in the micro-batch, and `handleExpiredTimer` for one whose
timer the watermark has reached and which had none: where there are rows, their step has done what was due as well, and
has moved the timer. The methods' names, and those of their arguments, are Spark's.

A bucket that has questions and no rows has no step, unless one is due: then it is answered from what that leaves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from tidelog.errors import UsageError
from tidelog.pipelines.operators.state.bucket import is_due, step_bucket
from tidelog.pipelines.operators.state.buckets import layout_of, partitions_here
from tidelog.pipelines.operators.state.fold import DUE, Clock, Fold
from tidelog.pipelines.operators.state.packing import unpack
from tidelog.pipelines.operators.state.questions import answers_of, with_answers
from tidelog.pipelines.operators.state.reading import HEADER, PAGES
from tidelog.pipelines.operators.state.steps import StepFunction

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle


class AskedBy(NamedTuple):
    """How questions come: packed with this schema. `timed` is the event time of what is put out."""

    schema: pa.Schema
    timed: str | None


class FoldProcessor(StatefulProcessor):
    """`timed`: the input has event time, without which Spark wakes nobody."""

    def __init__(
        self,
        fold: Fold,
        input_schema: pa.Schema,
        keys: tuple[str, ...],
        timed: bool,
        asked: AskedBy | None = None,
        step_by: StepFunction | None = None,
    ) -> None:
        self.fold = fold
        self.step_by = step_by
        self.input_schema = input_schema
        self.keys = keys
        self.timed = timed
        self.asked = asked

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.store = SparkStore(handle, None if self.timed else self.fold.name)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        packed = [row for frame in rows for row in zip(frame["task"], frame["part"], frame["rows"], strict=True)]
        asked = [row for row in packed if row[1] < 0]
        given = [row for row in packed if row[1] >= 0]
        output = self._stepped(given, clock(timerValues), only_asked=bool(asked) and not given)
        if self.asked is not None:
            output = self._answered(output, asked, clock(timerValues), self.asked)
        yield from _put_out(output)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        self.store.expired = expiredTimerInfo.getExpiryTimeInMs()
        output = self._stepped([], clock(timerValues))
        if self.asked is not None:
            output = self._answered(output, [], clock(timerValues), self.asked)
        yield from _put_out(output)

    def close(self) -> None:
        pass

    def _stepped(self, packed: list[Any], now: Clock, *, only_asked: bool = False) -> pa.Table:
        if only_asked and not is_due(self.store, now):
            return self.fold.output_schema.empty_table()
        rows = unpack(packed, self.input_schema)
        layout = layout_of(partitions_here())
        output = step_bucket(self.fold, self.store, layout, rows, now, self.step_by, self.keys)
        self.store.expired = None
        return output

    def _answered(self, output: pa.Table, packed: list[Any], now: Clock, by: AskedBy) -> pa.Table:
        asked = unpack(packed, by.schema)
        answers = answers_of(self.fold, self.store, layout_of(partitions_here()), asked, self.keys, now)
        return with_answers(output, answers, self.fold.output_schema, by.timed, now)


def _put_out(output: pa.Table) -> Iterator[pd.DataFrame]:
    if len(output):
        yield to_pandas(output)


class SparkStore:
    """The bytes of the bucket that Spark is calling for. `untimed` is the name of a fold that Spark never wakes."""

    def __init__(self, handle: StatefulProcessorHandle, untimed: str | None = None) -> None:
        self._handle = handle
        self._untimed = untimed
        self._header = handle.getValueState(HEADER, "header string, directory binary")
        self._pages = handle.getMapState(PAGES, "number bigint", "page binary")
        self.expired: int | None = None  # the timer that Spark itself takes away after this call

    def header(self) -> tuple[str, bytes] | None:
        found = self._header.get()
        return None if found is None else (found[0], bytes(found[1]))

    def set_header(self, header: str, directory: bytes) -> None:
        self._header.update((header, directory))

    def page(self, number: int) -> bytes:
        found = self._pages.getValue((number,))
        assert found is not None, f"page {number} stands in the directory and is not there"
        return bytes(found[0])

    def set_page(self, number: int, data: bytes) -> None:
        self._pages.updateValue((number,), (data,))

    def drop_page(self, number: int) -> None:
        self._pages.removeKey((number,))

    def set_timer(self, before: int | None, after: int | None) -> None:
        if after is not None and self._untimed is not None:
            raise UsageError(
                f"fold {self._untimed!r} kept a row with a {DUE!r}, and would never be woken: its input has no event "
                "time; declare it before: rows.transform(event_time(column, watermark_delay))"
            )
        if before is not None and before != self.expired:
            self._handle.deleteTimer(before)
        if after is not None:
            self._handle.registerTimer(after)


def clock(times: Any) -> Clock:
    """Spark says 0 while there is no watermark yet, and -1 where the input has none; then it tells no time of day."""
    watermark, now = times.getCurrentWatermarkInMs(), times.getCurrentProcessingTimeInMs()
    return Clock(watermark if watermark > 0 else None, now if now > 0 else int(time.time() * 1000))


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Arrow's own memory under pandas' clothes: Spark takes no other, and turns it back into Arrow at once."""
    import pandas as pd
    import pyarrow as pa

    def dressed(column: pa.ChunkedArray) -> pd.api.extensions.ExtensionArray:
        return _as_it_is()(column) if pa.types.is_nested(column.type) else pd.arrays.ArrowExtensionArray(column)

    whole = table.combine_chunks()
    return pd.DataFrame({name: dressed(whole[name]) for name in whole.column_names}, copy=False)


@cache
def _as_it_is() -> Callable[[pa.ChunkedArray], pd.api.extensions.ExtensionArray]:
    """A nested column that Spark does not look into: it is given the memory, and not a Python object for each value.

    As objects they are not the same: a map is a list of pairs, an integer beside a null is a float, a time has lost
    its zone, and a NaN is a null.
    """
    import pandas as pd

    class AsItIs(pd.arrays.ArrowExtensionArray):  # type: ignore[misc]
        def map(self, mapper: Any, na_action: Any = None) -> AsItIs:
            """Spark would put each value right for Arrow, which it is."""
            return self

        def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array:
            """Of the type that Spark asks for: with times in the zone of its session."""
            return self._pa_array.cast(self._pa_array.type if type is None else type).combine_chunks()

    return AsItIs
