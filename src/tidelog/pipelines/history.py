"""`tidelog run --batch`: the same functions over a stretch of history, as batch DataFrames.

What comes out is shown, or written to the output's topic in one transaction, under a write id made of the output, its
fingerprint and the stretch: the same command a second time writes nothing.

Rules:
- What a stream keeps up to date is not written by a batch: the two would undo each other's rows, or double them, and
  the stream would find another's mark, and end. `--show` shows it, `tidelog rebuild` builds a view anew. What no stream
  has written is begun, and is the batch's from then on.
- All of that is looked at before anything is placed: a command that is refused has changed nothing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tidelog.client.cluster import Cluster
from tidelog.client.offsets import LATEST, READ_COMMITTED, list_offsets
from tidelog.control import marks
from tidelog.control.catalog import Catalog, View, read_catalog
from tidelog.errors import UsageError
from tidelog.pipelines.app import VIEW
from tidelog.pipelines.collisions import kind_written, latest_rows
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.inputs import Reader, Span
from tidelog.pipelines.observed import Observed
from tidelog.pipelines.operators.changelog import DELETED, OP, SEQ
from tidelog.pipelines.placing import Target, topic_target
from tidelog.pipelines.placing_topics import own_entry
from tidelog.pipelines.queries import generation_option, records
from tidelog.pipelines.running import Settings, prepare
from tidelog.pipelines.view_topic import is_keyed
from tidelog.spark.foreach_batch import write_batch
from tidelog.spark.sink_options import read_sink_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRITE_PREFIX = "batch-"
DIGEST_LENGTH = 16
SHOWN_EVERY_S = 0.02


def rows_of(reader: Reader, node: Node) -> DataFrame:
    """The rows of an output, as a reader of its topic would have them in the end."""
    from pyspark.sql import functions as F

    frame = reader.result(node)
    output = node.output
    frame = latest_rows(output, frame)
    gone = F.coalesce(F.col(DELETED), F.lit(False)) if DELETED in frame.columns else F.lit(False)
    return frame.where(~gone).drop(OP, SEQ, DELETED)


def write_id(node: Node, span: Span) -> str:
    text = f"{node.name}\n{node.fingerprint}\n{span.begin_ms}\n{span.end_ms}"
    return WRITE_PREFIX + hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def write_all(cluster: Cluster, reader: Reader, settings: Settings) -> Iterator[tuple[Target, str]]:
    """Every output, and each write's id once it is done."""
    check_owners(cluster, reader.graph)
    for target in prepare(cluster, reader, settings):
        yield target, write(cluster, reader, target, settings.options)


def check_owners(cluster: Cluster, graph: Graph) -> None:
    """That no query keeps up to date what is to be written. It can be told before Spark starts."""
    known = read_catalog(cluster)
    for node in graph.nodes:
        if (sink := _sink_of(known, graph, node)) is not None:
            _check_owner(cluster, node, sink)


def write(cluster: Cluster, reader: Reader, target: Target, options: dict[str, str]) -> str:
    """Returns the write's id."""
    assert reader.span is not None
    _check_owner(cluster, target.node, target.sink)
    observed = Observed(target.topic)
    with observed.declared():
        frame = reader.result(target.node)
    keyed = is_keyed(target.node.output, frame)
    made = records(frame, kind_written(target.node.output, frame), target, 0, keyed=keyed)
    name = write_id(target.node, reader.span)
    given = {**options, **generation_option(target), "topic": target.topic, "sinkName": target.sink, "writeId": name}
    write_batch(read_sink_options(given, streaming=False), made, observed)
    _wait_until_shown(cluster, target.sink)
    return name


def _wait_until_shown(cluster: Cluster, sink: str) -> None:
    """A commit is answered before it can be read, and who is told that it is written may read at once."""
    mark = marks.read_mark(cluster, sink, marks.end_of_marks(cluster, sink))
    deadline = time.monotonic() + cluster.timeout_s
    ends = {} if mark is None else mark.ends
    while time.monotonic() < deadline:
        now = list_offsets(cluster, dict.fromkeys(ends, LATEST), isolation=READ_COMMITTED)
        if all(now[at].offset >= end for at, end in ends.items()):
            return
        time.sleep(SHOWN_EVERY_S)


def _sink_of(known: Catalog, graph: Graph, node: Node) -> str | None:
    """Where it was written until now; None for a view that was not."""
    if node.output.kind != VIEW:
        entry = own_entry(known, graph, node)
        return topic_target(graph, node, "", None if entry is None else entry.current).sink
    found = known.get((VIEW, node.name))
    return found.current.sink if isinstance(found, View) and found.current is not None else None


def _check_owner(cluster: Cluster, node: Node, sink: str) -> None:
    mark = marks.read_mark(cluster, sink)
    if mark is None or mark.query_id.startswith(WRITE_PREFIX):
        return
    raise UsageError(
        f"{node.output.kind} {node.name} is kept up to date by a query; --show shows what the batch gives, and `tidelog"
        f" rebuild {node.name}` builds it again"
    )


def shown(frame: DataFrame, key: Sequence[str], limit: int) -> list[dict[str, Any]]:
    by = [f"`{name}`" for name in key]
    ordered = frame.orderBy(*by) if by else frame
    return [row.asDict(recursive=True) for row in ordered.limit(limit).collect()]
