"""Where the rows of a run go: Spark's own MemorySink, and, for one micro-batch, a sink that crashes at a named point.

    after offsets       the offset log has the micro-batch; no task has run
    between tasks       all tasks but the last have finished and have written their state; the last has not begun
    before the sink     all tasks have finished and all state is written; the sink has got nothing
    before the commit   the sink has got the rows too; the commit log does not have the micro-batch

In each case the micro-batch is run again when the query is started again: that is Spark's own recovery.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tidelog.spark.callbacks import answer_calls
from tidelog.testing.pipeline_rows import RowsOut

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

CrashPoint = Literal["after offsets", "between tasks", "before the sink", "before the commit"]
CRASH_POINTS: tuple[CrashPoint, ...] = ("after offsets", "between tasks", "before the sink", "before the commit")


class MicroBatchOutput(NamedTuple):
    """What a micro-batch put out. One that is run again has the same number again."""

    number: int
    rows: list[Row]


class MemorySink:
    def __init__(self, frame: DataFrame) -> None:
        jvm: Any = frame.sparkSession._jvm
        self.table = jvm.org.apache.spark.sql.execution.streaming.sources.MemorySink()
        self._rows_out = RowsOut(frame.sparkSession, frame.schema)
        self._taken = -1

    def take(self) -> MicroBatchOutput:
        """The one that was written last."""
        written = self.table.dataSinceBatch(self._taken)
        self._taken = self.table.latestBatchId().get()
        return MicroBatchOutput(self._taken, self._rows_out.to_python(written))


class CrashingSink:
    """It crashes in its first micro-batch; `written` is what it got before."""

    def __init__(self, frame: DataFrame, point: CrashPoint) -> None:
        jvm: Any = frame.sparkSession._jvm
        answer_calls(frame.sparkSession)
        kind = jvm.org.apache.spark.sql.execution.streaming.sources.ForeachBatchSink
        self.table = kind(self, frame._jdf.exprEnc())
        self._session = frame.sparkSession
        self._point = point
        self.reached = False
        self.written: MicroBatchOutput | None = None

    def apply(self, frame: Any, number: int) -> None:
        """Called by Spark with the rows of a micro-batch, when its offsets are logged and no task has run."""
        from pyspark.sql import DataFrame as Frame

        rows = Frame(frame, self._session)
        self.reached = True
        if self._point == "between tasks":
            _run_all_but_the_last(rows)
        elif self._point != "after offsets":
            collected = rows.collect()
            if self._point == "before the commit":
                self.written = MicroBatchOutput(number, collected)
        raise Crash(self._point)

    class Java:
        implements = ("scala.Function2",)


class Crash(Exception):
    """Not an error: asked for by a test."""


def _run_all_but_the_last(rows: DataFrame) -> None:
    context: Any = rows.sparkSession.sparkContext
    partitions: Any = rows._jdf.toJavaRDD()
    first = partitions.getNumPartitions() - 1
    chosen = context._gateway.new_array(context._jvm.int, first)
    for number in range(first):
        chosen[number] = number
    partitions.collectPartitions(chosen)


@contextmanager
def unlogged_crash() -> Iterator[None]:
    """py4j would tell of an exception that is not news."""
    logger = logging.getLogger("py4j.clientserver")
    logger.addFilter(_is_no_crash)
    try:
        yield
    finally:
        logger.removeFilter(_is_no_crash)


def _is_no_crash(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], Crash)
