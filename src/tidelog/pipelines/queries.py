"""One query: a declared function's DataFrame, written to its topic micro-batch by micro-batch, exactly once.

`foreachBatch` runs in this process: rows become envelopes or upserts (`view_topic.py`), and the sink's own commit
writes them under the target's name; answers to questions go to the topic of replies in the same commit. What fails
there is kept as it was raised: Spark would make text of it, and of the JVM's own errors it gets that shortened, and the
log all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from tidelog.control.marks import topic_of
from tidelog.errors import ConfigError, LostCheckpoint, PipelineFailed, StateMismatch
from tidelog.pipelines.app import VIEW
from tidelog.pipelines.ordering import in_order
from tidelog.pipelines.placing import Target
from tidelog.pipelines.view_readers import command_of
from tidelog.pipelines.view_topic import (
    Source,
    envelopes,
    is_keyed,
    kind_of,
    mode_of,
    plain,
    replies,
    results,
    upserts,
)
from tidelog.spark.cluster_python import missing_in_a_worker
from tidelog.views.asking import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

OF_THE_JVM = "py4j.protocol.Py4JJavaError: "
HANDED_MAX = 500  # characters of such an error that Spark is handed; of about 1,500 its regular expression overflows


@dataclass(slots=True)
class Written:
    """What the writer of a query has seen."""

    rows: int = 0
    error: BaseException | None = None
    batch: int = -1  # the last that is committed
    stopping: bool = False  # whether the query is being stopped, so that its micro-batch may be cut off
    notes: dict[str, Any] = field(default_factory=dict)


def start_query(
    frame: DataFrame, target: Target, options: Mapping[str, str], *, trigger: Mapping[str, Any], written: Written
) -> StreamingQuery:
    """`options` say how the brokers are reached, as the source and the sink take them."""
    from tidelog.spark.providers import state_store

    frame = in_order(frame, target)
    _keep_to(frame, target)
    mode = mode_of(target.node.output, frame)
    with state_store(frame):
        stream: Any = frame.writeStream.foreachBatch(writer_of(frame, target, options, written))
        stream = stream.outputMode(mode).queryName(target.name).option("checkpointLocation", target.checkpoint)
        started: StreamingQuery = stream.trigger(**trigger).start()
    return started


def _keep_to(frame: DataFrame, target: Target) -> None:
    from tidelog.spark.native_operators import keep_to

    output = target.node.output
    try:
        keep_to(frame, target.checkpoint)
    except StateMismatch as error:
        raise StateMismatch(f"{output.place}: {output.kind} {output.name!r}: {error}") from None


def writer_of(frame: DataFrame, target: Target, options: Mapping[str, str], written: Written) -> Any:
    from tidelog.spark.foreach_batch import topic_writer

    given = dict(options)
    bootstrap = given.pop("kafka.bootstrap.servers")
    # A cluster of its own in this process: so that the sink's transactional id stays with its connection.
    given["kafka.client.id"] = f"tidelog-{target.sink}"
    given |= generation_option(target)
    topic, targets = (None, (target.topic,)) if target.node.asked else (target.topic, ())
    write = topic_writer(topic, bootstrap=bootstrap, sink_name=target.sink, options=given, targets=targets, marked=True)
    kind, keyed = kind_of(frame), is_keyed(target.node.output, frame)

    def each(rows: DataFrame, batch_id: int) -> None:
        with noting_errors(target, written):
            if target.node.asked:
                written.rows += _write_both(rows, batch_id, write, kind, target, keyed=keyed)
            else:
                written.rows += write(records(rows, kind, target, batch_id, keyed=keyed), batch_id) or 0
            written.batch = batch_id

    return each


@contextmanager
def noting_errors(target: Target, written: Written) -> Iterator[None]:
    """What is raised in here is kept, and goes on to Spark, which writes its text to the log: so it is said once."""
    try:
        yield
    except LostCheckpoint as lost:
        written.error = lost_checkpoint(target, lost)
        raise written.error from None
    except BaseException as error:
        written.error = error
        text = "".join(format_exception(error))
        if reason := missing_in_a_worker(text):
            written.error = ConfigError(reason)
            raise written.error from None
        if OF_THE_JVM in text:
            if not written.stopping:  # Spark's log has the short text alone; what a stop cuts off is no fault
                logging.getLogger(__name__).error("%s: %s", target.part, text)
            raise PipelineFailed(_shortened(text)) from None
        raise


def _shortened(text: str) -> str:
    """Of an error that the JVM raised: what it says, without where. A query that is being stopped asks of such a text,
    by a regular expression that goes one deeper for every character, whether an interruption is in it: of some
    kilobytes its thread died of a StackOverflowError.
    """
    said = text[text.index(OF_THE_JVM) :].split("\n")
    return "\n".join(line for line in said if not line.startswith(("\tat ", "\t...")))[:HANDED_MAX]


def _write_both(rows: DataFrame, batch_id: int, write: Any, kind: str, target: Target, *, keyed: bool) -> int:
    """Results and answers in one commit. Both are of the same rows, whose state must not be stepped twice: kept."""
    from pyspark.sql import functions as F

    kept = rows.persist()
    try:
        made = records(results(kept), kind, target, batch_id, keyed=keyed)
        own = made.withColumn("topic", F.lit(target.topic))
        if not target.answers:
            return int(write(own, batch_id) or 0)
        answers = replies(kept, Pipeline(target.app, target.node.name).replies)
        if "key" in own.columns:
            answers = answers.withColumn("key", F.col("key").cast(own.schema["key"].dataType))  # it may be bytes
        return int(write(own.unionByName(answers, allowMissingColumns=True), batch_id) or 0)
    finally:
        kept.unpersist()


def has_ended(query: StreamingQuery) -> bool:
    """Also if Spark says that it is active: its thread may have died before it could say otherwise."""
    if not query.isActive:
        return True
    thread: Any = query._jsq.streamingQuery().queryExecutionThread()
    return not thread.isAlive()


def lost_checkpoint(target: Target, lost: LostCheckpoint) -> LostCheckpoint:
    """As the app's user is told it: an app has neither the options of a sink nor names of queries to give."""
    if not lost.what:
        return LostCheckpoint(f"{lost} (it is in {target.checkpoint})")
    kind, name = target.node.output.kind, target.node.name
    return LostCheckpoint(
        f"{kind} {name}: its checkpoint in {target.checkpoint} {lost.what} (was the app started from another folder?"
        f" give --checkpoints); {_way_back(target)}",
        lost.what,
    )


def _way_back(target: Target) -> str:
    if target.generation:
        return f"`{command_of(target.node)}` makes it anew from the log, and this run then goes on"
    return (
        f"a topic is never made anew: call it otherwise, or delete topics {target.topic} and {topic_of(target.sink)}"
        " and that folder, and the next run writes it from the log"
    )


def generation_option(target: Target) -> dict[str, str]:
    """For the sink, whose marks tell it."""
    return {"generation": str(target.generation)} if target.generation else {}


def records(rows: DataFrame, kind: str, target: Target, batch_id: int, *, keyed: bool) -> DataFrame:
    """Columns key and value, as the topic is to have them."""
    output = target.node.output
    if output.kind == VIEW:
        assert target.declared is not None
        source = Source(output.name, target.generation, batch_id)
        return envelopes(rows, kind, target.declared, output.order, source)
    return upserts(rows, kind, output.key, output.order) if keyed else plain(rows, output.key)
