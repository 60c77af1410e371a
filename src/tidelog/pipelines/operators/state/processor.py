"""A fold as Spark calls it: one group is one bucket, one call is one step.

Spark calls `handleInputRows` for a bucket that has rows in the micro-batch, and `handleExpiredTimer` for one whose
timer the watermark has reached and which had none: where there are rows, their step has done what was due as well, and
has moved the timer. The methods' names, and those of their arguments, are Spark's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from tidelog.pipelines.operators.state.bucket import step_bucket
from tidelog.pipelines.operators.state.buckets import layout_of, partitions_here
from tidelog.pipelines.operators.state.fold import Clock, Fold
from tidelog.pipelines.operators.state.packing import unpack
from tidelog.pipelines.operators.state.reading import HEADER, PAGES

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle


class FoldProcessor(StatefulProcessor):
    def __init__(self, fold: Fold, input_schema: pa.Schema) -> None:
        self.fold = fold
        self.input_schema = input_schema

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.store = SparkStore(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        packed = (row for frame in rows for row in zip(frame["task"], frame["part"], frame["rows"], strict=True))
        yield from self._step(unpack(packed, self.input_schema), timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        self.store.expired = expiredTimerInfo.getExpiryTimeInMs()
        yield from self._step(unpack([], self.input_schema), timerValues)

    def close(self) -> None:
        pass

    def _step(self, rows: pa.Table, times: Any) -> Iterator[pd.DataFrame]:
        output = step_bucket(self.fold, self.store, layout_of(partitions_here()), rows, clock(times))
        self.store.expired = None
        if len(output):
            yield to_pandas(output)


class SparkStore:
    """The bytes of the bucket that Spark is calling for."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
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
        if before is not None and before != self.expired:
            self._handle.deleteTimer(before)
        if after is not None:
            self._handle.registerTimer(after)


def clock(times: Any) -> Clock:
    """Spark says 0 while there is no watermark yet, and -1 where the input has none; then it tells no time of day."""
    watermark, now = times.getCurrentWatermarkInMs(), times.getCurrentProcessingTimeInMs()
    return Clock(watermark if watermark > 0 else None, now if now > 0 else int(time.time() * 1000))


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Arrow's own memory under pandas' clothes: Spark takes no other, and turns it back into Arrow at once.

    Nested columns are Python's objects: Spark goes through them one by one, and knows no null but None.
    """
    import pandas as pd
    import pyarrow as pa

    def kind(found: pa.DataType) -> pd.ArrowDtype | None:
        return None if pa.types.is_nested(found) else pd.ArrowDtype(found)

    return table.combine_chunks().to_pandas(types_mapper=kind)
