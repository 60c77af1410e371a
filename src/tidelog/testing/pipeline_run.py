"""A pipeline that runs, one step at a time.

Rules:
- A step is: feed what was added since the last one, run a micro-batch, and go on until there is nothing more to run.
  Spark runs micro-batches without rows where the watermark has moved and state waits for it: they belong to the step
  that moved it. With `settle=False` a step is exactly one micro-batch, and they wait for the next step.
- A micro-batch without rows that puts out nothing and leaves the watermark where it was is the last of a step: where
  timers of processing time are used, Spark always has another one to run.
- Between steps nothing runs and no time passes: clock and watermark move when a step or the test moves them.
- `restart` goes on from the checkpoint with a new query, as a process that was started again. A micro-batch that was
  not committed is run again first.
- `crash` runs a micro-batch as a step does, and ends the query at a named point of it.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidelog.errors import PipelineFailed, UsageError
from tidelog.pipelines.operators.durations import Duration, milliseconds
from tidelog.pipelines.operators.state.operator import has_watermark
from tidelog.testing.pipeline_input import InputStream, PipelineInput
from tidelog.testing.pipeline_query import Query, RestartPoint
from tidelog.testing.pipeline_sinks import (
    CRASH_POINTS,
    CrashingSink,
    CrashPoint,
    MemorySink,
    MicroBatchOutput,
    unlogged_crash,
)
from tidelog.testing.pipeline_state import StateRow, state_rows
from tidelog.testing.pipeline_times import Moment, epoch_ms, from_epoch_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from tidelog.pipelines.operators.state.reading import FoldState

Pipeline = Callable[..., "DataFrame"]

END_OF_TIME = "9999-01-01"


class PipelineRun:
    """Made by `driver.run(...)`.

    `micro_batches` is all that was put out, in order, a micro-batch that was run again a second time too: what a sink
    without memory gets. `output` is what one has that knows the number of the micro-batch.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        inputs: Sequence[PipelineInput],
        streams: Sequence[InputStream],
        place: RestartPoint,
    ) -> None:
        self.micro_batches: list[MicroBatchOutput] = []
        self._spark = spark
        self._pipeline = pipeline
        self._inputs = inputs
        self._streams = streams
        self._place = place
        self._watermark: int | None = None
        self._passing_ms = 0
        self._query: Query | None = None
        self._start()

    # --- running ------------------------------------------------------------------------------------------------------

    def step(self, *, settle: bool = True) -> list[Row]:
        """The rows that came out of it, in order."""
        query = self._running()
        began = len(self.micro_batches)
        self._feed(query)
        while self._micro_batch(query) and settle:
            pass
        return self._since(began)

    def _micro_batch(self, query: Query) -> bool:
        """Run one, if there is one to run; whether there may be another."""
        before = query.watermark_ms
        if not query.trigger(self._passed()):
            return False
        batch = self._sink.take()
        self.micro_batches.append(batch)
        return bool(batch.rows) or query.input_rows > 0 or query.watermark_ms > before

    def restart(self, pipeline: Pipeline | None = None) -> list[Row]:
        """Stop, and go on from the checkpoint; with another pipeline, as after a deployment of new code.

        The rows are those of the micro-batch that had to be run again, if there was one.
        """
        self.stop()
        self._pipeline = pipeline or self._pipeline
        began = len(self.micro_batches)
        self._start()
        return self._since(began)

    def crash(self, point: CrashPoint) -> None:
        """Run the next micro-batch only as far as this point. Go on by `restart()`."""
        if point not in CRASH_POINTS:
            raise UsageError(f"crash point {point!r} does not exist; choose one of {', '.join(CRASH_POINTS)}")
        self._running()
        self.stop()
        frame = self._frame()
        sink = CrashingSink(frame, point)
        query = Query(frame, sink.table, self._place)
        try:
            self._feed(query)
            with unlogged_crash():
                query.trigger(self._passed())
        except PipelineFailed:
            if not sink.reached:
                raise
        finally:
            query.stop()
        if not sink.reached:
            raise UsageError("no micro-batch ran to crash in; add rows or advance the watermark first")
        if sink.written is not None:
            self.micro_batches.append(sink.written)

    def finish(self) -> list[Row]:
        """A step at the end of all time: windows close, joins give up waiting, timers fire."""
        if not self.micro_batches and any(stream.has_more for stream in self._streams) and has_watermark(self._frame()):
            raise UsageError(
                "finish() is the first step of this run, at the end of all time: all rows that were added would be"
                " late, and none would be used; call step() before it"
            )
        self.advance_watermark(END_OF_TIME)
        return self.step()

    def stop(self) -> None:
        """Nothing runs any more; `restart()` goes on."""
        if self._query is not None:
            self._query.stop()
            self._query = None

    def close(self) -> None:
        """It is over, and its checkpoint is gone: `with driver.run(...) as run` does this."""
        self.stop()
        shutil.rmtree(self._place.checkpoint, ignore_errors=True)

    def __enter__(self) -> PipelineRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _running(self) -> Query:
        if self._query is None:
            raise UsageError("the query has ended; go on by restart()")
        return self._query

    def _frame(self) -> DataFrame:
        frame = self._pipeline(*(stream.frame for stream in self._streams))
        if not frame.isStreaming:
            raise UsageError("the pipeline gives a batch DataFrame; make it from the inputs that it is called with")
        return frame

    def _start(self) -> None:
        frame = self._frame()
        self._sink = MemorySink(frame)
        query = Query(frame, self._sink.table, self._place)
        self._query = query
        if query.ran:
            self.micro_batches.append(self._sink.take())

    def _feed(self, query: Query) -> None:
        """A watermark comes with a micro-batch even if there are no rows: Spark itself runs none after a restart."""
        fed = [stream.feed() for stream in self._streams]
        if self._watermark is not None:
            query.raise_watermark(self._watermark)
            self._watermark = None
            if not any(fed):
                self._streams[0].feed_nothing()

    def _since(self, began: int) -> list[Row]:
        return [row for batch in self.micro_batches[began:] for row in batch.rows]

    # --- time ---------------------------------------------------------------------------------------------------------

    @property
    def watermark(self) -> datetime | None:
        """Up to where event time has come; None before there is one."""
        ms = self._running().watermark_ms
        return from_epoch_ms(ms) if ms > 0 else None

    def advance_watermark(self, to: Moment) -> None:
        """In the next step the watermark is at least this, as if rows of all inputs had come so far."""
        self._watermark = epoch_ms(to)

    @property
    def now(self) -> datetime:
        """The time of day, for this run. A trigger takes a millisecond of it."""
        return from_epoch_ms(self._place.clock.getTimeMillis() + self._passing_ms)

    def advance_clock(self, by: Duration) -> None:
        """Let time pass: for `current_timestamp()`, timers of processing time, and state that expires."""
        self._passing_ms += milliseconds(by, what="time that passes")

    def _passed(self) -> int:
        passed, self._passing_ms = self._passing_ms, 0
        return passed

    # --- looking ------------------------------------------------------------------------------------------------------

    @property
    def output(self) -> list[Row]:
        """All that was put out, each micro-batch once."""
        latest = {batch.number: batch for batch in self.micro_batches}
        batches = [latest[number] for number in sorted(latest)]
        if self._place.output_mode == "complete":
            batches = batches[-1:]
        return [row for batch in batches for row in batch.rows]

    @property
    def progress(self) -> dict[str, Any] | None:
        """Spark's own report on the last micro-batch."""
        return self._running().progress

    def state(self, operator: int | None = None) -> list[StateRow]:
        """What an operator has kept, as of the last micro-batch; with several that keep state, say which."""
        return state_rows(self._spark, self._place.checkpoint, operator)

    def fold_states(self) -> list[FoldState]:
        """What Tidelog's operators have kept, with their counts of rows that were late, dropped and so on."""
        from tidelog.pipelines.operators.state.reading import read_states

        return read_states(self._spark, self._place.checkpoint)

    @property
    def checkpoint(self) -> Path:
        return self._place.checkpoint

    # --- the batch answer ---------------------------------------------------------------------------------------------

    def batch(self) -> list[Row]:
        """What the same pipeline gives on all rows added so far, as a batch."""
        return self._pipeline(*(one.batch() for one in self._inputs)).collect()

    def assert_equal_to_batch(self, table: Callable[[list[Row]], Iterable[Any]] = list) -> None:
        """All that came out so far is what comes out of a batch, in any order.

        `table` makes comparable what is not: it is called with the rows of each, to fold a changelog, say, or to round.
        """
        ours, theirs = (Counter(map(repr, table(rows))) for rows in (self.output, self.batch()))
        missing, extra = sorted((theirs - ours).elements()), sorted((ours - theirs).elements())
        assert not missing, f"in a batch there would be {', '.join(missing)} too"
        assert not extra, f"in a batch there would not be {', '.join(extra)}"
