"""One query: a declared function's DataFrame, written to its topic micro-batch by micro-batch, exactly once.

`foreachBatch` runs in this process: rows become envelopes or upserts (`view_topic.py`), by tasks or, where they are few
texts, here (`view_texts.py`). The sink's own commit writes them under the target's name; answers to questions go to the
topic of replies in the same commit. What fails there is kept as it was raised: Spark would make text of it, and of the
JVM's own errors it gets that shortened. The log has all of it, unless one line says what happened (`faults.py`).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from tidelog.control.derived import FIRST
from tidelog.errors import ConfigError, LostCheckpoint, PipelineFailed, StateMismatch
from tidelog.pipelines.app import VIEW
from tidelog.pipelines.collisions import kind_written
from tidelog.pipelines.envelopes import Source, net_changelog, net_rows, records_of
from tidelog.pipelines.faults import fault_of, is_told_in_a_line
from tidelog.pipelines.operators.dropped import counting_keyless
from tidelog.pipelines.ordering import in_order
from tidelog.pipelines.placing import Target
from tidelog.pipelines.source_order import check_sources
from tidelog.pipelines.view_readers import command_of
from tidelog.pipelines.view_texts import (
    DRIVER,
    Texts,
    as_texts,
    envelopes_of_texts,
    offsets_to_read,
    road_of,
    texts_of,
)
from tidelog.pipelines.view_topic import (
    AS_READ,
    CHANGELOG,
    envelopes,
    held_by,
    holds_back,
    is_keyed,
    mode_of,
    of_generation,
    plain,
    replies,
    results,
    upserts,
)
from tidelog.spark.cluster_python import missing_in_a_worker
from tidelog.spark.foreach_batch import NOBODY, Observer
from tidelog.views.asking import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from tidelog.spark.text_rows import TextBatch

OF_THE_JVM = "py4j.protocol.Py4JJavaError: "
HANDED_MAX = 500  # characters of such an error that Spark is handed; of about 1,500 its regular expression overflows


@dataclass(slots=True)
class Written:
    """What the writer of a query has seen. Its rows count when Spark has told of what they were made of (`count`)."""

    rows: int = 0
    error: BaseException | None = None
    batch: int = -1  # the last that is committed
    stopping: bool = False  # whether the query is being stopped, so that its micro-batch may be cut off
    notes: dict[str, Any] = field(default_factory=dict)
    state_bytes: int | None = None  # which the query keeps, as Spark told last
    holding: tuple[str, ...] = ()  # how names of Spark's operators begin that hold rows for the watermark
    roads: dict[str, int] = field(default_factory=dict)  # micro-batches by the road that they took (`view_texts.py`)
    untold: dict[int, int] = field(default_factory=dict)  # rows of micro-batches that are committed, and not in `rows`

    def committed(self, batch: int, rows: int) -> None:
        self.untold[batch] = rows
        self.batch = batch

    def count(self, last: int) -> None:
        """Spark has told of this micro-batch. Those before are over, too, where its list of a hundred was too short."""
        self.rows += sum(self.untold.pop(batch) for batch in list(self.untold) if batch <= last)


def start_query(
    frame: DataFrame,
    target: Target,
    options: Mapping[str, str],
    *,
    trigger: Mapping[str, Any],
    written: Written,
    observed: Observer = NOBODY,
) -> StreamingQuery:
    """`options` say how the brokers are reached, as the source and the sink take them."""
    from tidelog.spark.providers import state_store
    from tidelog.spark.text_rows import for_each_batch

    frame = in_order(frame, target)
    output = target.node.output
    if output.key and (output.kind == VIEW or is_keyed(output, frame)):
        frame = counting_keyless(frame, output.kind, output.key)
    _keep_to(frame, target)
    observed.declared_as(holds=holds_back(frame))
    mode, texts = mode_of(output, frame), texts_of(frame, target)
    written.holding = held_by(frame, mode)
    if texts is None:
        rows, writer = frame, writer_of(frame, target, options, written, observed)
    else:
        rows, writer = as_texts(frame, texts), text_writer_of(texts, target, options, written, observed)
    with state_store(frame):
        stream: Any = rows.writeStream
        stream = stream.foreachBatch(writer) if texts is None else for_each_batch(stream, rows, writer)
        stream = stream.outputMode(mode).queryName(target.name).option("checkpointLocation", target.checkpoint)
        started: StreamingQuery = stream.trigger(**trigger).start()
    return started


def _keep_to(frame: DataFrame, target: Target) -> None:
    from tidelog.spark.moved_checkpoints import settle
    from tidelog.spark.native_operators import keep_to

    output = target.node.output
    settle(target.checkpoint)
    check_sources(frame, target)
    try:
        keep_to(frame, target.checkpoint)
    except StateMismatch as error:
        raise StateMismatch(f"{output.place}: {output.kind} {output.name!r}: {error}") from None


def writer_of(
    frame: DataFrame, target: Target, options: Mapping[str, str], written: Written, observed: Observer = NOBODY
) -> Any:
    from tidelog.spark.foreach_batch import topic_writer

    bootstrap, given = _sink_options(target, options)
    topic, targets = (None, (target.topic,)) if target.node.asked else (target.topic, ())
    how: dict[str, Any] = {"options": given, "targets": targets, "marked": True}
    write = partial(topic_writer(topic, bootstrap=bootstrap, sink_name=target.sink, **how), by=observed)
    kind, keyed = kind_written(target.node.output, frame), is_keyed(target.node.output, frame)

    def each(rows: DataFrame, batch_id: int) -> None:
        with noting_errors(target, written):
            if target.node.asked:
                count = _write_both(rows, batch_id, write, kind, target, keyed=keyed)
            else:
                count = write(records(rows, kind, target, batch_id, keyed=keyed), batch_id) or 0
            written.committed(batch_id, count)

    return each


def text_writer_of(
    texts: Texts, target: Target, options: Mapping[str, str], written: Written, observed: Observer = NOBODY
) -> Any:
    """For rows that are texts (`view_texts.py`)."""
    from tidelog.spark.foreach_batch import ViewWriter

    bootstrap, given = _sink_options(target, options)
    where = {"bootstrap": bootstrap, "sink_name": target.sink, "checkpoint": target.checkpoint}
    writer = ViewWriter(target.topic, options=given, by=observed, **where)

    def each(rows: TextBatch, batch_id: int) -> None:
        with noting_errors(target, written):
            offsets = offsets_to_read(target.checkpoint, batch_id)
            road = road_of(offsets, batch_id, written.state_bytes, is_bounded=texts.is_bounded)
            tail = Source(target.node.name, target.generation, batch_id).tail(int(time.time() * 1000))
            if road == DRIVER:
                found = records_here(rows.collect(), texts, tail)
                count = writer.write_here(rows, found, batch_id)
            else:
                count = writer.write(envelopes_of_texts(rows.frame, texts, tail), batch_id)
            written.roads[road] = written.roads.get(road, 0) + 1
            written.committed(batch_id, count)

    return each


def records_here(rows: Sequence[Any], texts: Texts, tail: str) -> list[tuple[str, str | None]]:
    if texts.kind == CHANGELOG:
        return list(records_of(net_changelog(rows, texts.declared.key), tail, is_changelog=True))
    return list(records_of(net_rows(rows, as_read=texts.kind == AS_READ), tail, is_changelog=False))


def _sink_options(target: Target, options: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Where the brokers are, and what else the sink takes."""
    given = dict(options)
    bootstrap = given.pop("kafka.bootstrap.servers")
    # A cluster of its own in this process: so that the sink's transactional id stays with its connection.
    given["kafka.client.id"] = f"tidelog-{target.sink}"
    return bootstrap, given | generation_option(target)


@contextmanager
def noting_errors(target: Target, written: Written) -> Iterator[None]:
    """What is raised in here is kept, and goes on to Spark. All of it is logged here, unless a line says it."""
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
        fault = fault_of(error, text, target.node.output.place.file)
        if not written.stopping and not is_told_in_a_line(fault):  # what a stop cuts off is not a fault
            logging.getLogger(__name__).error("%s: %s", target.part, text)
        if OF_THE_JVM in text:
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


def has_found_nothing(query: StreamingQuery) -> bool:
    """Whether a trigger has looked, and there was nothing to read. Spark's own word for it is not public; elsewhere it
    says between triggers that it waits.
    """
    try:
        return bool(query._jsq.streamingQuery().noNewData())
    except Exception:  # of a version that calls it otherwise
        how = query.status
        return not how["isTriggerActive"] and str(how["message"]).startswith("Waiting for ")


def told_since(query: StreamingQuery, last: str | None) -> list[dict[str, Any]]:
    """What Spark tells of its micro-batches after the one with the timestamp `last`, the oldest first. Of its list only
    those are fetched, from the end: each is a round trip.
    """
    entries: Any = query._jsq.recentProgress()
    found: list[dict[str, Any]] = []
    for place in reversed(range(len(entries))):
        one = entries[place]
        if one.timestamp() == last:
            break
        found.append(json.loads(one.json()))
    return found[::-1]


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
    return f"`{command_of(target.node)}` rebuilds it from the log, and this run then goes on"


def generation_option(target: Target) -> dict[str, str]:
    """For the sink, whose marks tell it."""
    return {"generation": str(target.generation)}


def records(rows: DataFrame, kind: str, target: Target, batch_id: int, *, keyed: bool) -> DataFrame:
    """Columns key and value, as the topic is to have them."""
    output = target.node.output
    if output.kind == VIEW:
        assert target.declared is not None
        source = Source(output.name, target.generation, batch_id)
        return envelopes(rows, kind, target.declared, output.order, source)
    made = upserts(rows, kind, output.key, output.order) if keyed else plain(rows, output.key)
    return made if target.generation == FIRST else of_generation(made, target.generation)
