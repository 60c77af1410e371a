"""What Spark calls to write: `writeStream.format("tidelog")` and `write.format("tidelog")`. Thin shells.

Where it runs:
- `write` in Python workers of the executors, from a copy that Spark pickled: it encodes its rows and stages them
  (`staging.py`), or, at least once, sends them;
- `commit` in a process of the driver, with the messages of all tasks: it writes them in one transaction (`commit.py`).
  At least once it only reports the query's source offsets.

Spark calls `commit` once all tasks are done, with one message of each: of a task that ran twice, one counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.client.admin import groups
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.control.counts import Counts
from tidelog.control.marks import Sources, topic_of
from tidelog.errors import PeerError, TidelogError, UsageError
from tidelog.spark.commit import Kept, Writing, commit, commit_once, commit_unmarked
from tidelog.spark.query_log import default_name, planned_of, query_id_of, sources_of, watermark_of
from tidelog.spark.reach import Reach, borrow, connect, give_back
from tidelog.spark.reporting import PREFIX
from tidelog.spark.routing import Routed, Router, check_columns
from tidelog.spark.sink_options import AUTO, NO_GROUP, SinkOptions, read_sink_options
from tidelog.spark.stage_files import Driver, beside, driver_here, remove
from tidelog.spark.staging import Stage, drop, files_of, stage
from tidelog.spark.worker_memory import keep_buffers

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"  # local properties of the query's tasks
WRITES = "batch writes"  # instead of a checkpoint, in the name of a sink


class Staged(WriterCommitMessage):
    def __init__(self, stage: Stage) -> None:
        self.stage = stage


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """`overwrite` is Spark's word for complete mode, where each micro-batch is the whole result: it is written whole,
    as Kafka's sink does.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self.options = read_sink_options(options, streaming=True)
        check_columns(types_of(schema), self.options.topic)
        self.sink = sink_of(self.options)
        self.driver = driver_of(self.options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Staged(write_rows(self.options, self.sink, self.driver, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        stages = stages_in(messages)
        if not self.options.exactly_once:
            report(self.options, self.sink, batchId)
            return
        assert self.options.checkpoint is not None
        query_id = query_id_of(self.options.checkpoint)
        check_query(query_id, stages, self.options.checkpoint)
        planned = planned_of(self.options.checkpoint, batchId)
        writing = writing_of(self.options, self.sink, query_id, batchId, planned.sources)
        writing = writing._replace(watermark_ms=watermark_of(planned, holds=None))
        keep_buffers()  # here, since this process is Spark's; that of `foreachBatch` is the user's
        commit_micro_batch(self.options, writing, stages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing was written that counts; what was staged in the topic goes with the next cut."""
        remove(files_of(stages_in(messages, all_done=False)))


class TopicWriter(DataSourceArrowWriter):
    """One transaction. With a `writeId` a second write under it does nothing."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise UsageError('a topic is not overwritten; use .mode("append")')
        self.options = read_sink_options(options, streaming=False)
        check_columns(types_of(schema), self.options.topic)
        self.sink = self.options.sink or default_name(self.options.topic, WRITES)
        self.write_id = self.options.write_id or uuid.uuid4().hex
        # Of its own: what another write has staged is not to be cut.
        self.staging = default_name(self.options.topic, f"{self.sink}/{self.write_id}")
        self.driver = driver_of(self.options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Staged(write_rows(self.options, self.staging, self.driver, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if not self.options.exactly_once:
            return
        writing = writing_of(self.options, self.sink, self.write_id, 0, Sources())
        commit_batch_write(self.options, writing, stages_in(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with lent(self.options.reach) as cluster:
            drop(cluster, stages_in(messages, all_done=False))


# In a task ------------------------------------------------------------------------------------------------------------


def write_rows(options: SinkOptions, staging: str, driver: Driver | None, rows: Iterable[pa.RecordBatch]) -> Stage:
    """Stages a task's rows under the name `staging`, or sends them, where once is not asked for."""
    keep_buffers()
    context = TaskContext.get()
    query_id = (context.getLocalProperty(QUERY_ID) if context is not None else None) or ""
    batch_id = int((context.getLocalProperty(BATCH_ID) if context is not None else None) or 0)
    task = context.partitionId() if context is not None else 0
    with lent(options.reach) as cluster:
        cluster.forget()  # a topic may have more partitions than it had
        routed = Router(cluster, options.topic, options.compression, options.made).route(rows)
        if options.exactly_once:
            near = beside(driver, batch_id)
            return stage(cluster, routed, sink=staging, query_id=query_id, task=task, near=near)
        return send(cluster, routed, query_id)


def send(cluster: Cluster, batches: Iterable[Routed], query_id: str) -> Stage:
    rows = 0
    with Producer(cluster) as producer:
        for batch in batches:
            rows += batch.rows
            producer.send_batch(batch.at, batch.data)
    return Stage(query_id, rows)


# In the driver --------------------------------------------------------------------------------------------------------


def stages_in(messages: Sequence[WriterCommitMessage | None], *, all_done: bool = True) -> list[Stage]:
    """`all_done` where each task has finished: then none of their messages may be missing."""
    found = [message.stage for message in messages if isinstance(message, Staged)]
    if all_done and len(found) != len(messages):
        raise PeerError("Spark committed without the messages of all tasks; nothing was written")
    return found


def driver_of(options: SinkOptions) -> Driver | None:
    """None where nothing is to be staged in files."""
    return driver_here() if options.exactly_once and options.staging == AUTO else None


def types_of(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def sink_of(options: SinkOptions) -> str:
    if options.sink is not None:
        topic_of(options.sink)  # refuses a name that no topic can have
        return options.sink
    return default_name(options.topic, options.checkpoint or "")


def group_of(options: SinkOptions, sink: str) -> str | None:
    if options.group is not None:
        return None if options.group == NO_GROUP else options.group
    return PREFIX + (options.query_name or sink)


def writing_of(options: SinkOptions, sink: str, query_id: str, batch_id: int, sources: Sources) -> Writing:
    return Writing(
        sink=sink,
        query_id=query_id,
        batch_id=batch_id,
        sources=sources,
        topics=options.targets if options.topic is None else (options.topic,),
        group=group_of(options, sink) if sources.offsets else None,
        take_over=options.take_over,
        timeout_ms=options.timeout_ms,
        generation=options.generation,
        marked=options.marked,
    )


def check_query(query_id: str, stages: Sequence[Stage], checkpoint: str) -> None:
    for other in {each.query_id for each in stages} - {query_id, ""}:
        raise UsageError(
            f"checkpointLocation {checkpoint} is that of query {query_id}, and this is query {other}; give the sink the"
            " checkpoint of its own query"
        )


_kept: dict[Reach, Kept] = {}


def commit_micro_batch(options: SinkOptions, writing: Writing, stages: Sequence[Stage]) -> bool:
    kept = _kept.setdefault(options.reach, {})
    if writing.sink not in kept:
        writing = writing._replace(begun=begun_of(options.checkpoint, writing.batch_id))
    with lent(options.reach) as cluster:
        return commit(cluster, writing, stages, partial(connect, options.reach, patient=True), kept)


def begun_of(checkpoint: str | None, batch_id: int) -> Sources | None:
    """Where the micro-batch begins to read; None where the checkpoint does not say so."""
    if checkpoint is None or not batch_id:
        return None
    try:
        return sources_of(checkpoint, batch_id - 1)
    except UsageError:
        return None


def commit_batch_write(options: SinkOptions, writing: Writing, stages: Sequence[Stage]) -> None:
    act = commit_unmarked if options.write_id is None else commit_once
    with lent(options.reach) as cluster:
        act(cluster, writing, stages, partial(connect, options.reach, patient=True))
        drop(cluster, stages)


def counts_of(options: SinkOptions, sink: str) -> Counts | None:
    """As the sink's last mark has them, as far as this process knows it."""
    owned = _kept.get(options.reach, {}).get(sink)
    return None if owned is None or owned.mark is None else owned.mark.counts


def report(options: SinkOptions, sink: str, batch_id: int) -> None:
    """Without a transaction: for tools alone, so a fault is only said."""
    group = group_of(options, sink)
    if options.checkpoint is None or group is None:
        return
    try:
        offsets = sources_of(options.checkpoint, batch_id).offsets
        with lent(options.reach) as cluster:
            groups.commit(cluster, group, offsets)
    except TidelogError as error:
        import logging

        logging.getLogger(__name__).warning("source offsets were not reported as group %s: %s", group, error)


@contextmanager
def lent(reach: Reach) -> Iterator[Cluster]:
    """This process's cluster; after a fault the next one is new."""
    cluster = borrow(reach)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    give_back(reach, cluster)
