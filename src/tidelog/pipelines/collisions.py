"""Two plain rows of one key in one micro-batch: which of them counts, as far as the plan can tell.

    plan, from the result down                           of two rows of a key
    projections, filters, explode, over one input        the one that was read later: LAST_READ. Tasks read pieces of
                                                         partitions in the order of partition and offset, and what
                                                         is narrow keeps that order
    an operator that gives one row a key                 there are no two: ONE_ROW. Spark's own deduplication, and
                                                         operators of ours that say so (`spark/row_marks.py`)
    a join, a union, a shuffle, a Python stage           nobody can tell: refused before anything runs, unless `order=`
                                                         says it, or the rows are a changelog

Rules:
- The same holds for a view, and for a derived topic whose rows replace each other because they have `_deleted`.
- A batch is not refused before it runs: of its aggregates the plan does not tell what a stream's tells. It fails where
  two such rows are there.
- What was begun before there was this rule, by the same code, goes on as it was: it fails when two such rows come.
- Rows that come out of one record (explode) come in the order in which it has them.
- A key whose records are in two partitions has no order in the log: of two rows of one micro-batch the one of the
  partition with the larger number counts, and between micro-batches the later one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import UsageError
from tidelog.pipelines.app import VIEW, Output
from tidelog.pipelines.operators.changelog import DELETED, OP, SEQ, latest_by_key
from tidelog.pipelines.view_topic import AS_READ, ROWS, id_of, items_of, kind_of, origin_of
from tidelog.spark.row_marks import IN_ORDER, ONE_ROW_BY, text_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LAST_READ, ONE_ROW = "last read", "one row"
NARROW = ("Project", "Filter", "SubqueryAlias", "EventTimeWatermark", "CollectMetrics")
EXPLODES = "Generate"
DEDUPLICATES = "Deduplicate"
KINDS = {  # how names of nodes begin, and what users know them as
    "Join": "a join",
    "AsOfJoin": "a join",
    "Union": "a union",
    "Repartition": "a shuffle",
    "RebalancePartitions": "a shuffle",
    DEDUPLICATES: "a deduplication by other columns than its key",
    "Aggregate": "an aggregate",
    "Distinct": "a deduplication by other columns than its key",
    "TransformWithState": "an operator with state",
}
PYTHON, BY_PYTHON = "a Python stage", ("Python", "Pandas", "Arrow")  # and what names of such nodes have


class Settlement(NamedTuple):
    """`how` is LAST_READ or ONE_ROW; None where nobody can tell, because of `behind`."""

    how: str | None
    behind: str = ""


def kind_written(output: Output, frame: DataFrame) -> str:
    """What the rows are to who writes them: as `kind_of`, but AS_READ where the one that was read later counts."""
    kind = kind_of(frame)
    if kind != ROWS or not is_replaced(output, frame) or output.order is not None:
        return kind
    return AS_READ if settlement_of(frame, output.key).how == LAST_READ else kind


def is_replaced(output: Output, frame: DataFrame) -> bool:
    """Whether a row takes the place of an earlier one of its key."""
    return bool(output.key) and (output.kind == VIEW or DELETED in frame.columns)


def check_settled(output: Output, frame: DataFrame, *, is_built: bool = False) -> None:
    """`is_built`: by the same code, maybe before there was this rule. That goes on as it was, with a word."""
    why = why_unsettled(output, frame)
    if why is None:
        return
    if not is_built:
        raise UsageError(why)
    logging.getLogger(__name__).warning("%s; it goes on as it was, and fails when two such rows come", why)


def why_unsettled(output: Output, frame: DataFrame) -> str | None:
    """Why nobody could tell which of two rows of one key counts; None where it can be told."""
    if output.order is not None or not is_replaced(output, frame) or not frame.isStreaming or kind_of(frame) != ROWS:
        return None
    settled = settlement_of(frame, output.key)
    if settled.how is not None:
        return None
    return (
        f"{output.place}: {output.kind} {output.name!r} has rows from behind {settled.behind}: if two rows of a key"
        " come in one micro-batch, nobody can tell which is the later one; name the column that tells it by order=, or"
        " return a changelog: as_changelog(by=..., order=...)"
    )


def latest_rows(output: Output, frame: DataFrame) -> DataFrame:
    """Of a batch result: the row of each key that counts in the end, where there is an order that tells it."""
    from pyspark.sql import functions as F

    deleted = DELETED if DELETED in frame.columns else None
    if output.order is not None and output.key and OP not in frame.columns:
        return frame.transform(latest_by_key(output.key, order=output.order, deleted=deleted))
    if kind_written(output, frame) != AS_READ:
        return frame
    read = frame.withColumn(SEQ, F.monotonically_increasing_id())
    return read.transform(latest_by_key(output.key, order=SEQ, deleted=deleted)).drop(SEQ)


# The plan -------------------------------------------------------------------------------------------------------------


def settlement_of(frame: DataFrame, key: Sequence[str]) -> Settlement:
    plan: Any = frame._jdf.queryExecution().analyzed()
    jvm: Any = frame.sparkSession._jvm
    udf = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
    ids = {id_of(plan.output().apply(frame.columns.index(name))) for name in key}
    return _walked(plan, ids, udf if plan.containsPattern(udf) else None)


def _walked(plan: Any, ids: set[str], udf: Any) -> Settlement:
    """`ids` are the columns of the key, as they are called at each node; what is computed is called nothing below.
    `udf` is what Spark knows Python functions by, if there are any.
    """
    exploded = in_order = False
    while plan.children().size():
        name = str(plan.nodeName())
        said = text_of(plan) if name == "Filter" else ""
        unique = _unique_by(plan, name, said)
        if unique is not None and unique <= ids and not exploded:
            return Settlement(ONE_ROW)
        if name == "Project":
            ids = {origin for one in items_of(plan.projectList()) if id_of(one) in ids and (origin := origin_of(one))}
        exploded = exploded or name == EXPLODES
        if name not in (*NARROW, EXPLODES) and not in_order:
            return Settlement(None, _named(name))
        if udf is not None and not in_order and any(one.containsPattern(udf) for one in items_of(plan.expressions())):
            return Settlement(None, f"{PYTHON} (a UDF)")
        in_order = said == IN_ORDER
        if plan.children().size() > 1:
            return Settlement(None, _named(name))
        plan = plan.children().apply(0)
    return Settlement(LAST_READ)


def _unique_by(plan: Any, name: str, said: str) -> set[str] | None:
    """The columns in which no two rows are the same; None where the node does not say."""
    if name.startswith(DEDUPLICATES):
        return {id_of(one) for one in items_of(plan.keys())}
    if said.startswith(ONE_ROW_BY):
        wanted = json.loads(said.removeprefix(ONE_ROW_BY))
        found = {id_of(one) for one in items_of(plan.output()) if str(one.name()) in wanted}
        return found if len(found) == len(wanted) else None
    return None


def _named(name: str) -> str:
    told = next((told for begin, told in KINDS.items() if name.startswith(begin)), None)
    return told or (PYTHON if any(word in name for word in BY_PYTHON) else f"{name}, an operator of Spark's")
