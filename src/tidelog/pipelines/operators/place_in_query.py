"""Where in a query an operator may stand that takes rows for late: not behind one that holds rows back.

    rows -> event time -> windows -> fold          refused: what the windows put out at a watermark is late by then
    rows -> event time -> windows -> Spark's own   Spark has the watermark of the micro-batch before for it
    rows -> event time -> windows -> topic         and from there on: any operator, with an event time of its own

A micro-batch has two watermarks: by the older one Spark tells what is late, by the newer one what is over. To a Python
worker it tells the newer one alone (`getCurrentWatermarkInMs`), in a chain of operators too. An operator that holds
rows back puts them out when the newer one has reached them, so to a fold behind it every one of them would be late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WATERMARK = "EventTimeWatermark"  # where event time is declared: nothing below it has held rows back
HOLDS_BACK = ("Aggregate", "TransformWithState", "FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState")
MAKES_CHANGES = ("TransformWithState", "FlatMapGroupsInArrow")  # as `run_fold` does, in a stream and in a batch
DROPS_LATE = ("DeduplicateWithinWatermark",)
JOIN = "Join"  # of two streams: a row comes when its match does, whenever that is


def check_place(rows: DataFrame, where: str, instead: str = "") -> None:
    """`instead` is another way out than a topic, for the message."""
    if rows.isStreaming and _holds_back(rows._jdf.queryExecution().analyzed()):
        raise UsageError(
            f"{where} would take results of an operator before it for late; {instead}write those results to a topic "
            "and go on from there"
        )


def warn_of_less_lateness(rows: DataFrame, where: str, allowed_ms: int) -> None:
    """Of an operator in front that drops rows which the one behind it would still take."""
    if not rows.isStreaming or not _stands_before(rows._jdf.queryExecution().analyzed(), DROPS_LATE):
        return
    import logging

    logging.getLogger(__name__).warning(
        "deduplicate drops rows that are behind the watermark, and %s behind it would take them for %g s more: it never"
        " sees them; raise watermark_delay by as much, or deduplicate the windows' rows by an aggregate that does not"
        " count twice",
        *(where, allowed_ms / 1000),
    )


def _stands_before(plan: Any, names: tuple[str, ...]) -> bool:
    if not plan.isStreaming():
        return False
    return str(plan.nodeName()).startswith(names) or any(_stands_before(child, names) for child in below(plan))


def makes_changes(rows: DataFrame) -> bool:
    """Whether an operator with state, or in a batch one over groups, has made the rows, wherever in the query."""
    plans = [rows._jdf.queryExecution().analyzed()]
    while plans:
        plan = plans.pop()
        if str(plan.nodeName()).startswith(MAKES_CHANGES):
            return True
        plans += below(plan)
    return False


def takes_results(rows: DataFrame, where: str) -> bool:
    """Whether rows are results that were held back: they are beyond the older watermark, and may be behind the newer.

    Those of a join may be behind either, and Spark ends a query whose operator puts out such rows: it is refused. So
    are results among rows as they were read: of one behind the newer watermark nobody could say which of both it is.
    """
    if not rows.isStreaming:
        return False
    plan = rows._jdf.queryExecution().analyzed()
    if _stands_behind(plan, _is_join):
        raise UsageError(
            f"{where} would be given rows from behind the watermark by the join before it; write that one's results to "
            "a topic and go on from there"
        )
    ways = _held_back(plan)
    if len(ways) > 1:
        raise UsageError(
            f"{where} is given results that were held back, and other rows among them, and cannot know which of them"
            " are late; take it for each of both, before they are united"
        )
    return True in ways


def _held_back(plan: Any) -> set[bool]:
    """Whether rows were, for each way that they come by."""
    if not plan.isStreaming():
        return set()
    if str(plan.nodeName()) == WATERMARK:
        return {False}
    if _holds_rows(plan):
        return {True}
    return {way for child in below(plan) for way in _held_back(child)} or {False}


def _holds_back(plan: Any) -> bool:
    return _stands_behind(plan, lambda node: _holds_rows(node) or _is_join(node))


def _stands_behind(plan: Any, is_meant: Callable[[Any], bool]) -> bool:
    if str(plan.nodeName()) == WATERMARK or not plan.isStreaming():
        return False
    return is_meant(plan) or any(_stands_behind(child, is_meant) for child in below(plan))


def _holds_rows(plan: Any) -> bool:
    return str(plan.nodeName()).startswith(HOLDS_BACK)


def _is_join(plan: Any) -> bool:
    return str(plan.nodeName()) == JOIN and all(child.isStreaming() for child in below(plan))


def below(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(place) for place in range(children.size())]
