"""Records that are left out at the source: those that cannot be decoded, and those that somebody has passed.

    in a worker    `LeavingOut` takes them out of their Arrow batch, and notes their places and reasons
    in the driver  `LeftOut` has what all tasks of a query have noted, once a place

Notes go by an accumulator of Spark's: those of a task count when it has ended well, and before the job that it belongs
to ends. So when the rows of a micro-batch are staged, all of its notes are here, also behind an aggregate.

Rules:
- A record that is left out is nothing to who reads: no row, and no tombstone.
- While nothing is left out, nothing is done but to ask whether something was.
- Notes of one place count once, whatever Spark runs twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.client.metadata import TopicPartition
from tidelog.control.counts import PASSED
from tidelog.errors import PipelineFailed
from tidelog.spark.row_marks import kept_in_order
from tidelog.spark.typed_values import FAIL, Task, bytes_in, decoder_of, reader_for, typed_schema, undecodable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

NOTES_MAX = 1_000_000  # of a micro-batch: some 200 MB in the driver

Place = tuple[str, int, int]  # topic, partition, offset


class Note(NamedTuple):
    topic: str
    partition: int
    offset: int
    reason: str
    letter: bool  # whether the record is to be a dead letter

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def is_passed(self) -> bool:
        return self.reason == PASSED


# In a worker ----------------------------------------------------------------------------------------------------------


class LeavingOut:
    """What `mapInArrow` calls. `task` decodes; None where values stay bytes. Its `on_error` is FAIL, or anything else
    for leaving out; `letter`: what cannot be decoded is to be a letter. What is passed always is one.
    """

    def __init__(self, task: Task | None, passed: frozenset[Place], notes: Any, *, letter: bool) -> None:
        self.task = task
        self.passed = passed
        self.notes = notes
        self.letter = letter

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = self._without_passed(batch) if self.passed else batch
            yield kept if self.task is None else self._decoded(self.task, kept)

    def _without_passed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import numpy as np

        topic, partition, offset = (batch.column(name) for name in ("topic", "partition", "offset"))
        meant = np.isin(offset.to_numpy(zero_copy_only=False), [place[2] for place in self.passed])
        rows = np.flatnonzero(meant).tolist()
        found = [r for r in rows if (topic[r].as_py(), partition[r].as_py(), offset[r].as_py()) in self.passed]
        return self._without(batch, [(row, PASSED, True) for row in found]) if found else batch

    def _decoded(self, task: Task, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        at = batch.schema.get_field_index(task.column)
        made, failed = decoder_of(task).decode(bytes_in(batch, at))
        if failed and task.on_error == FAIL:
            raise undecodable(task, batch, failed)
        arrays = list(batch.columns)
        arrays[at] = made
        decoded = pa.RecordBatch.from_arrays(arrays, names=list(batch.schema.names))
        return self._without(decoded, [(row, reason, self.letter) for row, reason in failed]) if failed else decoded

    def _without(self, batch: pa.RecordBatch, rows: list[tuple[int, str, bool]]) -> pa.RecordBatch:
        import numpy as np
        import pyarrow as pa

        kept = np.ones(batch.num_rows, np.bool_)
        kept[[row for row, _, _ in rows]] = False
        topic, partition, offset = (batch.column(name) for name in ("topic", "partition", "offset"))
        if self.notes is not None:
            told = [(topic[r].as_py(), partition[r].as_py(), offset[r].as_py(), why, own) for r, why, own in rows]
            self.notes.add(told)
        return batch.filter(pa.array(kept))


# In the driver --------------------------------------------------------------------------------------------------------


class LeftOut:
    """Of one query. Its accumulators belong to the operators that are declared while it is asked for them."""

    def __init__(self) -> None:
        self._notes: list[Any] = []

    def notes_in(self, context: SparkContext) -> Any:
        made: Any = context.accumulator([], Listing())  # type: ignore[arg-type]
        self._notes.append(made)
        return made

    def take(self) -> list[Note]:
        """What was noted since this was last asked, in the order of the log, each place once."""
        found: dict[Place, Note] = {}
        for notes in self._notes:
            told, notes.value = notes.value, []
            if len(told) > NOTES_MAX:
                raise PipelineFailed(
                    f"{len(told)} records of one micro-batch are left out, and {NOTES_MAX} are the most; is the schema"
                    " of the input the right one?"
                )
            for one in told:
                note = Note(*one)
                found.setdefault((note.topic, note.partition, note.offset), note)
        return [found[place] for place in sorted(found)]


def leaving_out(
    frame: DataFrame, task: Task | None, passed: frozenset[Place], left_out: LeftOut | None, *, letter: bool
) -> DataFrame:
    """`left_out` is told; None where nobody wants to know."""
    schema = frame.schema if task is None else typed_schema(frame.schema, task, reader_for(task))
    notes = None if left_out is None else left_out.notes_in(frame.sparkSession.sparkContext)
    return kept_in_order(frame.mapInArrow(LeavingOut(task, passed, notes, letter=letter), schema))


class Listing:
    """What Spark wants of lists that are put together: an AccumulatorParam, but for the name."""

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:
        value1.extend(value2)
        return value1
