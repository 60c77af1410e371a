"""Outputs with `order=`: rows that are behind a later one of their key are left out, over all micro-batches.

Rules:
- That takes state, and a checkpoint that has begun without it has no place for it. So it holds for what begins anew: a
  view, its next generation, a derived topic. What is there goes on as it was: it compares the rows of one micro-batch
  (`view_topic.py`), and a log line says so at every start.
- The checkpoint says which it is, by what stands beside it (`spark/native_operators.py`).
- Only plain rows go through it. A changelog tells what replaces what itself, an aggregate has one row a key. So do
  answers to questions, which no order holds back; and columns of a type that Python workers are not given. They are
  compared within a micro-batch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidelog.pipelines.app import UPDATE, VIEW, Output
from tidelog.pipelines.operators.changelog import DELETED
from tidelog.pipelines.operators.state.questions import BESIDE
from tidelog.pipelines.placing import Target
from tidelog.pipelines.view_readers import command_of
from tidelog.pipelines.view_topic import ROWS, kind_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

MOVED, WITHOUT_PLACE = "moved", "without_place"  # as `operators/joins/upserts.py` counts
OPERATOR = "order by key"  # as it stands beside a checkpoint
NOT_IN_PYTHON = ("variant", "interval", "geography", "geometry", "udt")  # in names of types
NO_ORDER = ("struct", "array", "map", "void")


def in_order(frame: DataFrame, target: Target, checkpoint: str | None = None) -> DataFrame:
    """The rows that count. `checkpoint`: the query's own, where that is a copy of the target's."""
    from tidelog.spark.native_operators import declared_with

    output = target.node.output
    if not can_be_in_order(output, frame):
        return frame
    if not _keeps_order(frame, checkpoint or target.checkpoint):
        logging.getLogger(__name__).warning("%s: %s", target.part, as_it_was(target))
        return frame
    assert output.order is not None
    said = {"by": str(list(output.key)), "order": repr(output.order)}
    return declared_with(_newest(frame, output), OPERATOR, said)


def can_be_in_order(output: Output, frame: DataFrame) -> bool:
    if output.order is None or not output.key or output.mode == UPDATE:
        return False
    if kind_of(frame) != ROWS or any(name in frame.columns for name in BESIDE):
        return False
    if frame.schema[output.order].dataType.typeName() in NO_ORDER:
        return False
    return not any(_is_strange(field.dataType) for field in frame.schema.fields)


def as_it_was(target: Target) -> str:
    order = target.node.output.order
    said = f"order={order!r} compares rows of one micro-batch alone, as when its checkpoint was made"
    if target.node.output.kind == VIEW:
        return f"{said}; `{command_of(target.node)}` builds a generation that compares all rows"
    return f"{said}; a topic of another name compares all rows"


def notices_of(target: Target, counts: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """What a run tells once, by name, of what its operators have counted."""
    sums = {name: sum(one.get(name, 0) for one in counts.values()) for name in (MOVED, WITHOUT_PLACE)}
    anew = f"`{command_of(target.node)}` builds it" if target.node.output.kind == VIEW else "a topic of another name is"
    texts = {
        MOVED: "keys of a table have moved between partitions; of their records the last counts by time, partition and"
        " offset, and what compaction takes out can change which that is in a rebuild",
        WITHOUT_PLACE: "rows of its checkpoint are from a version that did not know their partitions; where a key had"
        f" moved before, its row may be stale until its next record comes; {anew} without them",
    }
    return {name: text for name, text in texts.items() if sums[name]}


def _newest(frame: DataFrame, output: Output) -> DataFrame:
    from tidelog.pipelines.operators.changelog import arrow_schema
    from tidelog.pipelines.operators.joins.newest import Newest
    from tidelog.pipelines.operators.state.operator import run_fold

    assert output.order is not None
    rows = frame
    deleted = DELETED if DELETED in frame.columns else None
    if deleted is not None:
        rows = frame.withColumn(DELETED, frame[DELETED].cast("boolean"))
    return run_fold(rows, output.key, Newest(arrow_schema(rows), output.key, output.order, deleted))


def _keeps_order(frame: DataFrame, checkpoint: str) -> bool:
    from tidelog.spark.native_operators import Kept

    kept = Kept(frame.sparkSession, checkpoint)
    if not kept.has_begun():
        return True
    return any(one.operator == OPERATOR for one in kept.read() or ())


def _is_strange(kind: DataType) -> bool:
    """Also within others."""
    inner: list[Any] = [getattr(kind, name) for name in ("elementType", "keyType", "valueType") if hasattr(kind, name)]
    inner += [field.dataType for field in getattr(kind, "fields", ())]
    return any(name in kind.typeName() for name in NOT_IN_PYTHON) or any(map(_is_strange, inner))
