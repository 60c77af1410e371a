"""What only Spark can tell of an app: each function is called, and its plan is looked at. No query is started.

    columns    of each output, and that its key and its `order` are among them; of a view, that a store can have them
    order      which of two rows of a key counts (`collisions.py`), and what `order=` compares (`ordering.py`)
    lateness   what operators say of their place in the query: one in front that drops what another would still take

Nothing is made. An output that nobody has run yet is read by its name: only its columns count here. Without a
broker a captured table must say its columns.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tidelog.control.catalog import Catalog, View
from tidelog.pipelines.app import VIEW, Output
from tidelog.pipelines.collisions import LAST_READ, check_settled, is_replaced, settlement_of
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.inputs import Reader
from tidelog.pipelines.observed import Observed, Prepared, unobserved
from tidelog.pipelines.ordering import can_be_in_order
from tidelog.pipelines.view_topic import AGGREGATE, CHANGELOG, check_result, declaration_of, keeps_state, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

OURS = "tidelog"  # how names of our loggers begin


class Analysed(NamedTuple):
    node: Node
    columns: tuple[tuple[str, str], ...]
    rows: str  # what they are, in words
    state: bool  # whether its query keeps any
    warnings: tuple[str, ...] = ()


def analyse(reader: Reader, known: Catalog) -> list[Analysed]:
    """Every output, or the error of the first that cannot be run. `known`: what is built goes on as it was."""
    found = []
    for node in reader.graph.nodes:
        with _warnings() as told:
            frame = checked_frame(reader, node, known)
        columns = tuple((field.name, field.dataType.simpleString()) for field in frame.schema.fields)
        state = keeps_state(frame) or can_be_in_order(node.output, frame)
        found.append(Analysed(node, columns, _said(node.output, frame), state, tuple(told)))
    return found


def frames_of(reader: Reader, known: Catalog) -> Mapping[str, DataFrame]:
    """All outputs looked at before any is placed: one mistake, and nothing is made. Those that read what is there are
    given, to be gone on with; of these, views are as their queries will have them, and the reader keeps them for that.
    """
    frames = {}
    for node in reader.graph.nodes:
        observed = Observed() if _can_be_started(node, known) else None
        frame = checked_frame(reader, node, known, observed)
        if all(_is_entered(known, one) for one in node.reads if isinstance(one, Output)):
            frames[node.name] = frame
        if observed is not None:
            reader.prepared[node.name] = Prepared(frame, observed)
    return frames


def _can_be_started(node: Node, known: Catalog) -> bool:
    """As it is looked at. Of a derived topic the plan is compared with that of others, which nobody observes; what
    starts from a store depends on its sink.
    """
    read = [_is_entered(known, one) if isinstance(one, Output) else one.start_from is None for one in node.reads]
    return node.output.kind == VIEW and all(read)


def _is_entered(known: Catalog, output: Output) -> bool:
    found = known.get((output.kind, output.name))
    return found is not None and (not isinstance(found, View) or found.current is not None)


def checked_frame(reader: Reader, node: Node, known: Catalog, observed: Observed | None = None) -> DataFrame:
    """`observed`: by whom, where it will be run."""

    def topic_of(output: Output) -> str:
        return reader.topic_of(output) if _is_entered(known, output) else output.name

    with unobserved() if observed is None else observed.declared():
        frame = replace(reader, topic_of=topic_of).result(node)
    check_result(node.output, frame)
    check_settled(node.output, frame, is_built=is_built(known, node))
    if node.output.kind == VIEW:
        declaration_of(node.output, frame.schema)
    return frame


def without_broker(spark: SparkSession, graph: Graph) -> Reader:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1"}  # which is not asked for columns
    return Reader(spark, options, graph, lambda output: output.name)


def is_built(known: Catalog, node: Node) -> bool:
    """Whether this code has written it until now."""
    found = known.get((node.output.kind, node.name))
    built = None if found is None else found.current
    return built is not None and (not built.fingerprint or node.is_code_of(built))  # of an old version nothing is known


def _said(output: Output, frame: DataFrame) -> str:
    kind = kind_of(frame)
    if kind == CHANGELOG:
        return "a changelog"
    if kind == AGGREGATE:
        return "an aggregate: each row replaces the one before of its key"
    if output.order is not None and output.key:
        compared = "all rows" if can_be_in_order(output, frame) else "those of one micro-batch"
        return f"plain rows: of a key's the one with the largest {output.order} counts, of {compared}"
    if not is_replaced(output, frame):
        return "plain rows, each written as it is"
    if settlement_of(frame, output.key).how == LAST_READ:
        return "plain rows: of a key's the one that was read last counts"
    return "plain rows: a key comes once in a micro-batch"


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """What is logged meanwhile, and is said by who asks instead."""
    found: list[str] = []

    class Taking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    logger, taking = logging.getLogger(OURS), Taking(logging.WARNING)
    before = logger.propagate
    logger.addHandler(taking)
    logger.propagate = False
    try:
        yield found
    finally:
        logger.removeHandler(taking)
        logger.propagate = before
