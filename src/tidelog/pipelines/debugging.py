"""`tidelog debug`: one micro-batch of a query again, here, into a sink that only shows.

The checkpoint is copied aside as it was before the micro-batch (`micro_batches.py`), and Spark runs it: the same
offsets, the same watermark and `current_timestamp()`, the state before it. The code is the user's as it is now.

Rules:
- Nothing is written but the copy, which goes: no topic, no catalog, no mark, no offsets of a group (the query has no
  name, by which it would report them).
- One micro-batch runs: the trigger's next time is in centuries.
- Records that a topic no longer has are refused before Spark starts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, READ_COMMITTED, list_offsets
from tidelog.control import catalog
from tidelog.control.reading import read
from tidelog.errors import UsageError
from tidelog.pipelines.app import VIEW, Output
from tidelog.pipelines.collisions import kind_written
from tidelog.pipelines.faults import fault_of
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.micro_batches import CheckpointHistory, MicroBatch, Read, folder_of, not_a_checkpoint
from tidelog.pipelines.ordering import in_order
from tidelog.pipelines.placing import Target, live_topic, topic_target, view_target
from tidelog.pipelines.placing_topics import own_entry
from tidelog.pipelines.queries import records
from tidelog.pipelines.view_topic import check_result, declaration_of, is_keyed, mode_of, results

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidelog.pipelines.operators.state.reading import FoldState

ONCE = {"processingTime": "100000 days"}  # after the first trigger
LOOK_S = 0.05
RECORDS_MAX = 100_000  # that are read into this process


class TopicRecord(NamedTuple):
    """Of a topic, as it lies there."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class Replayed:
    """What came of a micro-batch: rows of the function, and records as its topic would get them."""

    rows: list[Row] = field(default_factory=list)
    records: list[Row] = field(default_factory=list)
    progress: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    error: str | None = None  # in place of all that


class StateChange(NamedTuple):
    """Of one operator; of Tidelog's own by the fold's rows and counts, of Spark's by its report."""

    operator: int
    name: str
    before: int | None
    after: int
    updated: int | None
    removed: int | None
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Case:
    """The micro-batch in question, all of it found before Spark starts."""

    cluster: Cluster
    graph: Graph
    target: Target
    history: CheckpointHistory
    batch: MicroBatch
    ranges: Mapping[TopicPartition, tuple[int, int]]
    records: list[TopicRecord]

    @property
    def unknown_beginnings(self) -> list[TopicPartition]:
        """Partitions that are read for the first time, and no longer begin at 0."""
        new = {at for one in self.batch.reads for at in one.end if at not in one.begin}
        return [at for at, (begin, _) in self.ranges.items() if at in new and begin]


def find(cluster: Cluster, graph: Graph, query: str, number: int | None, checkpoints: str) -> Case:
    """Without a number, the last that was begun."""
    target = find_target(cluster, graph, query, checkpoints)
    history = CheckpointHistory(target.checkpoint)
    number = (history.planned or [0])[-1] if number is None else number
    history.check(number)
    batch = history.micro_batch(number)
    ranges = ranges_of(cluster, batch.reads)
    check_there(cluster, number, ranges)
    return Case(cluster, graph, target, history, batch, ranges, records_of(cluster, ranges))


# Where it ran ---------------------------------------------------------------------------------------------------------


def find_target(cluster: Cluster, graph: Graph, query: str, checkpoints: str) -> Target:
    """Of an output by its name, or, for a generation that is not live, by that of its topic: `revenue.v2`."""
    name, _, number = query.rpartition(".v")
    is_generation = bool(name) and number.isdigit() and any(one.name == name for one in graph.nodes)
    node = graph.node(name if is_generation else query)
    if not folder_of(checkpoints).is_dir():  # before the catalog is asked which generation it is
        raise not_a_checkpoint(folder_of(checkpoints))
    if node.output.kind != VIEW:
        return _topic_target(cluster, graph, node, checkpoints, int(number) if is_generation else None)
    view = catalog.find_view(cluster, node.name)
    built = {one.sink: one for one in view.generations}
    generation = built.get(query) if is_generation else view.current
    if generation is None:
        raise UsageError(f"view {node.name} has no generation {query}; generations are {', '.join(built) or 'none'}")
    return view_target(graph, node, view, generation, checkpoints)


def _topic_target(cluster: Cluster, graph: Graph, node: Node, checkpoints: str, number: int | None) -> Target:
    entry = own_entry(catalog.read_catalog(cluster), graph, node)
    if entry is None:
        return topic_target(graph, node, checkpoints)
    built = {one.number: one for one in (*entry.generations, entry.current)}
    if number is not None and number not in built:
        said = ", ".join(map(str, sorted(built)))
        raise UsageError(f"topic {node.name} has no generation {number}; generations are {said}")
    return topic_target(graph, node, checkpoints, entry.current if number is None else built[number])


def with_code_of_now(target: Target, frame: DataFrame) -> Target:
    """The view as the function declares it now, which may have been changed since, to see what that does."""
    check_result(target.node.output, frame)
    if target.node.output.kind != VIEW:
        return target
    return replace(target, declared=declaration_of(target.node.output, frame.schema))


# What it read ---------------------------------------------------------------------------------------------------------


def check_there(cluster: Cluster, number: int, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """Refuses what topics no longer have."""
    earliest = list_offsets(cluster, dict.fromkeys(ranges, EARLIEST)) if ranges else {}
    latest = list_offsets(cluster, dict.fromkeys(ranges, LATEST), isolation=READ_COMMITTED) if ranges else {}
    for at, (begin, end) in ranges.items():
        if begin < (first := earliest[at].offset):
            raise UsageError(
                f"micro-batch {number} reads {at} from {begin} to {end}, and the topic begins at {first} now: its"
                " records are gone; take a later micro-batch"
            )
        if end > (last := latest[at].offset):
            raise UsageError(
                f"micro-batch {number} reads {at} from {begin} to {end}, and the topic ends at {last} now: it was"
                " deleted and created again, and its records are gone"
            )


def ranges_of(cluster: Cluster, reads: Sequence[Read]) -> dict[TopicPartition, tuple[int, int]]:
    """Where each partition is read from and to; empty ones are left out."""
    found: dict[TopicPartition, tuple[int, int]] = {}
    for one in reads:
        new = {at: EARLIEST for at in one.end if at not in one.begin}
        begins = one.begin | {at: found.offset for at, found in (list_offsets(cluster, new) if new else {}).items()}
        found |= {at: (begins[at], end) for at, end in sorted(one.end.items()) if begins[at] < end}
    return found


def records_of(cluster: Cluster, ranges: Mapping[TopicPartition, tuple[int, int]]) -> list[TopicRecord]:
    """By partition, in the order of their offsets; what a transaction did not commit is left out."""
    _check_size(sum(end - begin for begin, end in ranges.values()))
    begins, ends = ({at: places[side] for at, places in ranges.items()} for side in (0, 1))
    found = [_record(at, row) for at, row in read(cluster, begins, ends)]
    return sorted(found, key=lambda one: one[:3])


def _record(at: TopicPartition, row: Any) -> TopicRecord:
    key, value = (None if data is None else bytes(data) for data in (row.key, row.value))
    return TopicRecord(at.topic, at.partition, row.offset, row.timestamp, key, value)


# Run again ------------------------------------------------------------------------------------------------------------


def run_again(frame: DataFrame, target: Target, checkpoint: Path, number: int) -> Replayed:
    """`checkpoint` is the copy, whose next micro-batch this is."""
    from tidelog.spark.native_operators import keep_to
    from tidelog.spark.providers import state_store

    frame = in_order(frame, target, str(checkpoint))
    keep_to(frame, str(checkpoint))
    made = Replayed()
    caught: list[BaseException] = []
    began = time.monotonic()
    with state_store(frame):
        stream: Any = frame.writeStream.foreachBatch(_showing(frame, target, made, caught))
        stream = stream.outputMode(mode_of(target.node.output, frame)).option("checkpointLocation", str(checkpoint))
        query: StreamingQuery = stream.trigger(**ONCE).start()
    try:
        while query.isActive and _progress(query).get("batchId") != number:
            time.sleep(LOOK_S)
        made.seconds = time.monotonic() - began
        made.progress = _progress(query)
        if (error := query.exception()) is not None or caught:
            fault = fault_of(caught[0] if caught else None, str(error), target.node.output.place.file)
            where = "" if fault.line is None else f"{fault.file}:{fault.line}: "
            made.error = f"{where}{fault.message}"
    finally:
        query.stop()
    return made


def _progress(query: StreamingQuery) -> dict[str, Any]:
    last: Any = query.lastProgress
    return {} if last is None else json.loads(last.json)


def _showing(frame: DataFrame, target: Target, made: Replayed, caught: list[BaseException]) -> Any:
    kind, keyed = kind_written(target.node.output, frame), is_keyed(target.node.output, frame)

    def each(rows: DataFrame, batch_id: int) -> None:
        kept = rows.persist()  # or its state would be stepped twice
        try:
            made.rows = kept.collect()
            own = results(kept) if target.node.asked else kept
            made.records = records(own, kind, target, batch_id, keyed=keyed).collect()
        except BaseException as error:
            caught.append(error)
            raise
        finally:
            kept.unpersist()

    return each


# State ----------------------------------------------------------------------------------------------------------------


def state_changes(before: Sequence[FoldState], after: Sequence[FoldState], made: Replayed) -> list[StateChange]:
    earlier = {one.operator: one for one in before}
    folds = {one.operator: one for one in after}
    found = []
    for operator, told in enumerate(made.progress.get("stateOperators", ())):
        fold = folds.get(operator)
        if fold is None:
            total, updated = int(told["numRowsTotal"]), int(told["numRowsUpdated"])
            removed = int(told.get("numRowsRemoved", 0))
            counts = {"dropped by the watermark": int(told.get("numRowsDroppedByWatermark", 0))}
            told_by = (None, total, updated, removed, {name: count for name, count in counts.items() if count})
            found.append(StateChange(operator, str(told["operatorName"]), *told_by))
        else:
            old = earlier.get(operator)
            was = {} if old is None else old.counts
            counts = {name: count - was.get(name, 0) for name, count in fold.counts.items()}
            counts = {name: count for name, count in counts.items() if count}
            rows = 0 if old is None else len(old.rows)
            found.append(StateChange(operator, fold.fold, rows, len(fold.rows), None, None, counts))
    return found


# To look at -----------------------------------------------------------------------------------------------------------


def frames_of(spark: SparkSession, found: Sequence[TopicRecord], topics: Sequence[str]) -> dict[str, DataFrame]:
    """Records as batch DataFrames with the source's columns, by topic."""
    from datetime import datetime

    from tidelog.spark.source import topic_schema

    schema = topic_schema(False)
    by_topic: dict[str, list[tuple[Any, ...]]] = {topic: [] for topic in topics}
    for one in found:
        at = datetime.fromtimestamp(one.timestamp_ms / 1000)
        by_topic[one.topic].append((one.key, one.value, one.topic, one.partition, one.offset, at, 0))
    return {topic: spark.createDataFrame(rows, schema) for topic, rows in by_topic.items()}


# As a test ------------------------------------------------------------------------------------------------------------


def steps_of(case: Case) -> tuple[int, list[list[TopicRecord]]]:
    """What makes the micro-batch what it was: the number of the first one needed, and the records of each.

    Without state that is itself alone. Of micro-batches whose offsets are gone, all records are in the first one.
    """
    number, history = case.batch.number, case.history
    own = _renamed(case, case.records)
    if not number or not history.has_state:
        return number, [own]
    first = next(one for one in history.planned if all(n in history.planned for n in range(one, number)))
    ranges = [ranges_of(case.cluster, _from_the_beginning(history.micro_batch(first).reads))]
    ranges += [ranges_of(case.cluster, history.micro_batch(one).reads) for one in range(first + 1, number)]
    _check_size(sum(end - begin for one in ranges for begin, end in one.values()))
    return first, [*(_renamed(case, records_of(case.cluster, one)) for one in ranges), own]


def _from_the_beginning(reads: Sequence[Read]) -> list[Read]:
    return [read._replace(begin={}) for read in reads]


def _renamed(case: Case, found: Sequence[TopicRecord]) -> list[TopicRecord]:
    """A test knows an output by its name, whichever generation was read."""
    outputs = [read for read in case.target.node.reads if isinstance(read, Output)]
    names = {live_topic(case.cluster, one): one.name for one in outputs}
    return [one._replace(topic=names.get(one.topic, one.topic)) for one in found]


def partitions_of(steps: Sequence[Sequence[TopicRecord]]) -> dict[str, int]:
    """Of topics that have more than one."""
    found: dict[str, int] = {}
    for one in (record for step in steps for record in step):
        found[one.topic] = max(found.get(one.topic, 0), one.partition + 1)
    return {topic: count for topic, count in sorted(found.items()) if count > 1}


def _check_size(size: int) -> None:
    if size > RECORDS_MAX:
        raise UsageError(f"there are {size} records to read, and at most {RECORDS_MAX} are; take a smaller micro-batch")
