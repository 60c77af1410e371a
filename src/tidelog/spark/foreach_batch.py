"""`foreachBatch(tidelog.spark.topic_writer(...))`: the sink's commit where Spark has no sink to give: in update mode,
and where one micro-batch is written to several places.

It runs in the driver's own process: tasks stage their rows by mapInArrow, and the same commit writes them. Rows that
the driver has already, as those of a small micro-batch of a view, are encoded by it: the same bytes, without tasks.

Rules:
- Query id, checkpoint and name are Spark's to tell: local properties, and the running query itself.
- The first micro-batch of a run is written only if the query goes on with the operators that its checkpoint was made
  with (`native_operators.py`).
- A sink is written once a micro-batch: a second writer of one name would find the first one's mark and write nothing.
  So it is refused, by run of the query, since a new run may well write a micro-batch again. Spark Connect does not tell
  the run; there a run has its own process and session, and without that, it is another writer that is refused.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tidelog.control.counts import NOTHING, Counts
from tidelog.control.marks import Sources
from tidelog.errors import UsageError
from tidelog.spark.native_operators import keep_plan_to
from tidelog.spark.query_log import default_name, planned_of, query_id_of, watermark_of
from tidelog.spark.reporting import REPORT_EVERY_S
from tidelog.spark.routing import COLUMNS, Router, check_columns
from tidelog.spark.session import has_our_jar
from tidelog.spark.sink_options import SinkOptions, read_sink_options
from tidelog.spark.stage_files import Driver
from tidelog.spark.staging import Stage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.spark.left_out import Note

QUERY_ID, RUN_ID = "sql.streaming.queryId", "spark.jobGroup.id"
MESSAGE = "message"
UNKNOWN_YET = "unknown until a micro-batch runs"


class TaskNotes(NamedTuple):
    """What the tasks of a micro-batch have told beside its rows: records that were left out, and counts."""

    notes: Sequence[Note] = ()
    letters: str = ""  # the topic for those that are letters
    counts: Counts = NOTHING
    watermarks: Mapping[str, int] = {}  # that inputs lead to, each alone, by what was read since the query began


Metrics = Callable[[], Mapping[str, Mapping[str, int]]]


class Observer:
    """Who knows what was noted, and whether the query holds rows back for its watermark. This one knows nothing."""

    holds: bool | None = None

    def declared_as(self, *, holds: bool) -> None:
        """What the plan says, before the query is started."""

    def noted(self, metrics: Metrics = dict) -> TaskNotes:
        """Asked when all rows are staged; `metrics` gives what the plan of the micro-batch has observed."""
        return TaskNotes()

    def committed(self, counts: Counts) -> None:
        """The sums that the sink's last mark has now."""


NOBODY = Observer()
Writer = Callable[..., int]  # of rows, the micro-batch, and its observer: how many rows there were


class Written(NamedTuple):
    """What a sink has last, of this process."""

    run_id: str | None
    batch_id: int
    writer: object


_written: dict[str, Written] = {}  # by sink


def topic_writer(
    topic: str | None = None,
    *,
    bootstrap: str,
    sink_name: str | None = None,
    checkpoint: str | None = None,
    at_least_once: bool = False,
    options: Mapping[str, str] | None = None,
    targets: Sequence[str] = (),
    marked: bool = False,
) -> Writer:
    """A function for `foreachBatch`. `topic` is where all rows go; without it each row says so in its column `topic`.

    `sink_name` is needed where one micro-batch is written by several writers. `options` are those of the sink, such as
    `securityFile`. `checkpoint` is the query's, where Spark does not tell it (Spark Connect). `targets`, without a
    `topic`, are topics whose ends each mark tells, whether a row went there or not. `marked` says that the query has
    had this sink from its first micro-batch on: if there is no mark later, the sink was lost, and that is refused.
    """
    given = {"kafka.bootstrap.servers": bootstrap, **(options or {})}
    given |= {"topic": topic} if topic is not None else {}
    given |= {"sinkName": sink_name} if sink_name is not None else {}
    given |= {"deliveryGuarantee": "at-least-once"} if at_least_once else {}
    read = read_sink_options({**given, "checkpointLocation": checkpoint or UNKNOWN_YET}, streaming=True)
    read = replace(read, checkpoint=checkpoint, targets=tuple(targets), marked=marked)
    itself = object()  # two writers are two, also once Spark has pickled them

    def write(rows: DataFrame, batch_id: int, by: Observer = NOBODY) -> int:
        return write_micro_batch(read, rows, batch_id, itself, by)

    return write


class OfSession(Protocol):
    """A micro-batch, which may have to make its session first."""

    @property
    def sparkSession(self) -> SparkSession: ...


class ViewWriter:
    """Of one run of one query with one topic: what Spark says of it is asked once. `write` has tasks stage the rows;
    `write_here` is given them.
    """

    def __init__(
        self,
        topic: str,
        *,
        bootstrap: str,
        sink_name: str,
        checkpoint: str,
        options: Mapping[str, str],
        by: Observer = NOBODY,
    ) -> None:
        given = {"kafka.bootstrap.servers": bootstrap, **options, "topic": topic, "sinkName": sink_name}
        read = read_sink_options({**given, "checkpointLocation": checkpoint}, streaming=True)
        self.options = replace(read, marked=True)
        self._by = by
        self._query: Running | None = None
        self._router: Router | None = None

    def write(self, rows: DataFrame, batch_id: int) -> int:
        from tidelog.spark.sink import types_of

        check_columns(types_of(rows.schema), self.options.topic)
        return self._write(rows, batch_id, lambda options, sink: _staged(options, sink, rows))

    def write_here(self, batch: OfSession, records: Sequence[tuple[str, str | None]], batch_id: int) -> int:
        """`batch` is what Spark gave, of which only the session is looked at."""
        return self._write(batch, batch_id, lambda options, sink: [self._encoded(records)])

    def _write(self, rows: OfSession, batch_id: int, stages: Callable[[SinkOptions, str], list[Stage]]) -> int:
        query = self._query = self._query or Running.of(rows.sparkSession)
        return _write(self.options, rows, query, batch_id, self, stages, self._by)

    def _encoded(self, records: Sequence[tuple[str, str | None]]) -> Stage:
        import pyarrow as pa

        from tidelog.spark.sink import lent

        keys, values = zip(*records, strict=True) if records else ((), ())
        batch = pa.record_batch([pa.array(keys, pa.string()), pa.array(values, pa.string())], names=["key", "value"])
        options = self.options
        with lent(options.reach) as cluster:
            if self._router is None or not self._router.is_of(cluster):
                self._router = Router(cluster, options.topic, options.compression, options.made)
            routed = tuple(self._router.route([batch]))
        return Stage("", len(records), routed)


def write_micro_batch(options: SinkOptions, rows: DataFrame, batch_id: int, writer: object, by: Observer) -> int:
    """How many rows the micro-batch has, whether or not they were written before."""
    from tidelog.spark.sink import types_of

    check_columns(types_of(rows.schema), options.topic)
    query = Running.of(rows.sparkSession)
    staged = partial(_staged, rows=rows)
    return _write(options, rows, query, batch_id, writer, staged, by)


def _write(
    options: SinkOptions,
    rows: OfSession,
    query: Running,
    batch_id: int,
    writer: object,
    staged: Callable[[SinkOptions, str], list[Stage]],
    by: Observer,
) -> int:
    from tidelog.spark.sink import check_query, commit_micro_batch, counts_of, report, sink_of, writing_of

    options = replace(options, checkpoint=options.checkpoint or query.checkpoint, query_name=query.name)
    if options.checkpoint is None:
        raise UsageError("Spark does not say where the query's checkpoint is; give topic_writer its `checkpoint`")
    sink = sink_of(options)
    writes, before = Written(query.run_id, batch_id, writer), _written.get(sink)
    _refuse_twice(sink, before, writes)
    if query.plan is not None and (before is None or before.run_id != query.run_id):
        keep_plan_to(rows.sparkSession, query.plan, query.checkpoint or options.checkpoint)
    stages = staged(options, sink)
    noted = by.noted(query.metrics)
    if options.exactly_once:
        query_id = query_id_of(options.checkpoint)
        check_query(query_id, stages, options.checkpoint)
        planned = planned_of(options.checkpoint, batch_id)
        writing = writing_of(options, sink, query_id, batch_id, planned.sources)
        watermark_ms = watermark_of(planned, holds=by.holds)
        alone = {topic: max(at, planned.watermark_ms) for topic, at in noted.watermarks.items()}
        writing = writing._replace(counts=noted.counts, watermark_ms=watermark_ms, watermarks=alone)
        writing = writing._replace(report_every_s=REPORT_EVERY_S)
        beside = _letters(options, sink, noted, batch_id, len(stages))
        commit_micro_batch(options, writing, [*stages, *beside])
        if (counts := counts_of(options, sink)) is not None:
            by.committed(counts)
    else:
        report(options, sink, batch_id)
    _written[sink] = writes
    return sum(stage.rows for stage in stages)


def write_batch(options: SinkOptions, rows: DataFrame, by: Observer = NOBODY) -> int:
    """A batch write under the `writeId` of the options, by this process: with what is noted beside the rows."""
    from tidelog.spark.sink import commit_batch_write, sink_of, types_of, writing_of

    assert options.write_id is not None and options.exactly_once
    check_columns(types_of(rows.schema), options.topic)
    sink = sink_of(options)
    staging = default_name(options.topic, f"{sink}/{options.write_id}")  # what another write has staged is not cut
    stages = _staged(options, staging, rows)
    noted = by.noted()
    beside = _letters(options, staging, noted, 0, len(stages))
    writing = writing_of(options, sink, options.write_id, 0, Sources())._replace(counts=noted.counts)
    commit_batch_write(options, writing, [*stages, *beside])
    return sum(stage.rows for stage in stages)


def _letters(options: SinkOptions, staging: str, noted: TaskNotes, batch_id: int, task: int) -> list[Stage]:
    """Staged as the rows of one more task are."""
    wanted = [note for note in noted.notes if note.letter]
    if not wanted:
        return []
    from tidelog.spark.letters import letters
    from tidelog.spark.sink import driver_of, lent, sink_of
    from tidelog.spark.stage_files import beside
    from tidelog.spark.staging import stage

    with lent(options.reach) as cluster:
        batches = letters(cluster, noted.letters, sink_of(options), wanted)
        return [stage(cluster, batches, sink=staging, task=task, near=beside(driver_of(options), batch_id))]


def _refuse_twice(sink: str, before: Written | None, now: Written) -> None:
    if before is None or (before.run_id, before.batch_id) != (now.run_id, now.batch_id):
        return
    if now.run_id is not None or before.writer is not now.writer:
        raise UsageError(
            f"micro-batch {now.batch_id} was written to sink {sink!r} already, by another writer or another call: its"
            " mark is there, so these rows would be left out; give each topic_writer a sink_name of its own"
        )


def _staged(options: SinkOptions, sink: str, rows: DataFrame) -> list[Stage]:
    from tidelog.spark.sink import driver_of

    kept = [name for name in COLUMNS if name in rows.columns]
    task = _task(options, sink, driver_of(options))
    messages = rows.select(*kept).mapInArrow(task, f"{MESSAGE} binary").collect()
    return [pickle.loads(row[MESSAGE]) for row in messages]


def _task(
    options: SinkOptions, sink: str, driver: Driver | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from tidelog.spark.sink import write_rows

        message = pickle.dumps(write_rows(options, sink, driver, batches), protocol=pickle.HIGHEST_PROTOCOL)
        yield pa.record_batch([pa.array([message], pa.binary())], names=[MESSAGE])

    return write


class Running:
    """What Spark says of the query whose micro-batch this is."""

    def __init__(
        self,
        run_id: str | None,
        checkpoint: str | None,
        name: str | None,
        execution: Any = None,
        metrics_of: Callable[[Any], str] | None = None,
    ) -> None:
        """`metrics_of` is that of our jar; None where that is not there."""
        self.run_id = run_id
        self.checkpoint = checkpoint
        self.name = name
        self.plan = None if execution is None else execution.analyzedPlan()
        self._execution = execution
        self._metrics_of = metrics_of

    def metrics(self) -> dict[str, dict[str, int]]:
        """What the plan of this micro-batch has observed, by name; it has run by now."""
        if self._execution is None:
            return {}
        if self._metrics_of is not None:
            return metrics_in(self._metrics_of(self._execution.lastExecution()))
        found, made = self._execution.lastExecution().observedMetrics(), {}
        rows = found.iterator()
        while rows.hasNext():
            pair = rows.next()
            row = pair._2()
            made[str(pair._1())] = {name: int(row.get(n)) for n, name in enumerate(row.schema().fieldNames())}
        return made

    @classmethod
    def of(cls, spark: SparkSession) -> Running:
        """A session of Spark Connect tells only which it is."""
        try:
            context = spark.sparkContext
            shared: Any = spark._jsparkSession.sharedState()  # the session of a micro-batch has no queries of its own
        except Exception:
            return cls(getattr(spark, "session_id", None), None, None)
        query_id, jvm = context.getLocalProperty(QUERY_ID), context._jvm
        if query_id is None or jvm is None:
            raise UsageError("this is not a micro-batch of a streaming query; give topic_writer to foreachBatch")
        found = shared.activeStreamingQueries().get(jvm.java.util.UUID.fromString(query_id))
        run_id, checkpoint = context.getLocalProperty(RUN_ID), found.resolvedCheckpointRoot()
        ours: Any = jvm.tidelog.checkpoint.ObservedMetrics.of if has_our_jar(spark) else None
        return cls(run_id, checkpoint, found.name(), found, ours)


def metrics_in(said: str) -> dict[str, dict[str, int]]:
    """As our jar tells them: a line for each, with tabs between its name, its field and its number."""
    made: dict[str, dict[str, int]] = {}
    for line in said.splitlines():
        name, field, number = line.split("\t")
        made.setdefault(name, {})[field] = int(number)
    return made
