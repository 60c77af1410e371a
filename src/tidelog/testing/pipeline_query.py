"""A query of Spark that runs one micro-batch when it is told to, and nothing otherwise.

It is Spark's own MicroBatchExecution with its own checkpoint, state and recovery; only the clock that triggers it is
ours. PySpark has no way to give a query a clock, so the query is started through py4j.

    the query's thread                       this side
    runs a trigger, signals its end
    waits until the clock has moved          feeds inputs, moves the clock, waits for the signal
    ...

Rules:
- A trigger runs at most one micro-batch. The clock moves once for each trigger, and never otherwise: a query runs its
  next trigger as soon as it has moved.
- A query that was just started runs its first trigger at once: that is where an unfinished micro-batch is run again.
- The clock is also what Spark takes for the time of day: for `current_timestamp()`, timers and expiry of state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.spark.native_operators import keep_to
from tidelog.spark.providers import state_store
from tidelog.testing.pipeline_failures import failure_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INTERVAL_MS = 1  # between two triggers, by the query's own clock
WAIT_MS = 50  # for a signal, before a look at whether the query still lives

SETTINGS = {
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    "spark.sql.streaming.pollingDelay": "1ms",
}


class RestartPoint(NamedTuple):
    """What a query goes on from when it is started again."""

    checkpoint: Path
    output_mode: str
    clock: Any  # Spark's ManualClock


class Query:
    """Started and through its first trigger; `ran` says whether that one was a micro-batch run again."""

    def __init__(self, frame: DataFrame, sink: Any, place: RestartPoint) -> None:
        jvm: Any = frame.sparkSession._jvm
        self._clock = place.clock
        keep_to(frame, str(place.checkpoint))
        with _settings(frame, SETTINGS), state_store(frame):
            self._query = _started(jvm, frame, sink, place)
        self._execution = self._query.streamingQuery()
        self._lock = self._execution.awaitProgressLock()
        self._signal = getattr(self._execution.awaitProgressLockCondition(), "await")
        self._unit = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        self.ran = self._finished()

    def trigger(self, after_ms: int = 0) -> bool:
        """Whether there was a micro-batch to run, when so much time had passed. It is committed when this returns."""
        getattr(self._execution, "noNewData_$eq")(False)
        self._clock.advance(INTERVAL_MS + after_ms)
        return self._finished()

    def _finished(self) -> bool:
        """When the trigger that was asked for has ended: whether it ran a micro-batch."""
        self._lock.lock()
        try:
            while not (self._found_nothing() or self._has_progressed()):
                self.check()
                self._signal(WAIT_MS, self._unit)
        finally:
            self._lock.unlock()
        return not self._found_nothing()

    def _found_nothing(self) -> bool:
        return bool(self._execution.noNewData())

    def _has_progressed(self) -> bool:
        """There is a report of this very trigger. The signal alone would not do: some triggers signal twice."""
        last = self._query.lastProgress()
        if last is None:
            return False
        began = datetime.fromisoformat(last.timestamp())
        return bool(round(began.timestamp() * 1000) == self._clock.getTimeMillis())

    def check(self) -> None:
        if not self._query.isActive():
            raise failure_of(self._query)

    @property
    def input_rows(self) -> int:
        """Of the last micro-batch."""
        return int(self._query.lastProgress().numInputRows())

    @property
    def watermark_ms(self) -> int:
        return int(self._execution.watermarkTracker().currentWatermark())

    def raise_watermark(self, to_ms: int) -> None:
        """For the next micro-batch. A trigger that found nothing to run has noted the old one down for it."""
        if to_ms > self.watermark_ms:
            self._execution.watermarkTracker().setWatermark(to_ms)
            if (last := self._execution.lastExecution()) is not None:
                last.watermarkPropagator().purge(last.currentBatchId() + 1)

    @property
    def progress(self) -> dict[str, Any] | None:
        last = self._query.lastProgress()
        return None if last is None else json.loads(last.json())

    def stop(self) -> None:
        self._query.stop()


def _started(jvm: Any, frame: DataFrame, sink: Any, place: RestartPoint) -> Any:
    none, some = jvm.scala.Option.empty(), jvm.scala.Option.apply
    streaming = jvm.org.apache.spark.sql.streaming
    mode = getattr(streaming.OutputMode, place.output_mode.capitalize())()
    trigger = streaming.Trigger.ProcessingTime(INTERVAL_MS)
    options = jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap())
    manager: Any = frame.sparkSession._jsparkSession.streams()
    checkpoint = some(str(place.checkpoint))
    # name, owner, where, what, options, sink, mode, temporary, recover, trigger, clock, table, table
    return manager.startQuery(
        none, none, checkpoint, frame._jdf, options, sink, mode, False, True, trigger, place.clock, none, none
    )


@contextmanager
def _settings(frame: DataFrame, wanted: Mapping[str, str]) -> Iterator[None]:
    """A query takes the session's settings when it is started; the session has its own back afterwards."""
    settings = frame.sparkSession.conf
    before = {name: settings.get(name, None) for name in wanted}
    for name, value in wanted.items():
        settings.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                settings.unset(name)
            else:
                settings.set(name, old)
