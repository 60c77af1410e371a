"""Tidelog's stateful operators, each over the same keyed rows, so that all of it goes through the one mechanism.

Options are such that Spark has no plan of its own for it. Event time is a millisecond an offset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.pipelines.changing import DELETES, changes_sql

from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.changelog import OP, SEQ, as_changelog
from tidelog.pipelines.operators.changes import changes
from tidelog.pipelines.operators.dedup import deduplicate
from tidelog.pipelines.operators.joins.enrich import enrich
from tidelog.pipelines.operators.joins.join_tables import join_tables
from tidelog.pipelines.operators.time import event_time
from tidelog.pipelines.operators.windows.hopping import hopping
from tidelog.pipelines.operators.windows.session import session
from tidelog.pipelines.operators.windows.sliding import sliding
from tidelog.pipelines.operators.windows.tumbling import tumbling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COUNTED = {"n": agg.count(), "last": agg.last("value")}


def timed(rows: DataFrame) -> DataFrame:
    """The topic's partitions are as long as each other, and reach the same time together."""
    at = rows.selectExpr("key", "value", "timestamp_millis(1700000000000L + offset) as at")
    return at.transform(event_time("at", "10 seconds"))


def tables(rows: DataFrame) -> DataFrame:
    """Of changelogs: rows of both tables come and go (`changing.py`)."""
    seq = f"if({DELETES}, -1 - offset, offset) as {SEQ}"
    left, right = (rows.selectExpr(*changes_sql(table), seq) for table in range(2))
    left, right = left.withColumnRenamed("op", OP), right.withColumnsRenamed({"op": OP, "value": "other"})
    return left.transform(join_tables(right, on="key"))


def tables_of_upserts(rows: DataFrame) -> DataFrame:
    left = rows.transform(as_changelog(["key"], order="offset"))
    right = rows.selectExpr("key", "value as other", "offset").transform(as_changelog(["key"], order="offset"))
    return left.transform(join_tables(right, on="key"))


def enriched(rows: DataFrame) -> DataFrame:
    table = timed(rows).withColumnsRenamed({"value": "known", "at": "since"})
    return timed(rows).transform(enrich(table, "key", horizon="1 minute"))


OPERATORS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "tumbling, early": lambda rows: timed(rows).transform(
        tumbling("10 minutes", by="key", aggregates=COUNTED, early=True)
    ),
    "hopping, corrected": lambda rows: timed(rows).transform(
        hopping(
            "1 minute", every="30 seconds", by="key", aggregates=COUNTED, late="correct", allowed_lateness="1 minute"
        )
    ),
    "sliding": lambda rows: timed(rows).transform(sliding("1 minute", by="key", aggregates=COUNTED)),
    "session, corrected": lambda rows: timed(rows).transform(
        session("10 seconds", by="key", aggregates=COUNTED, late="correct", allowed_lateness="1 minute")
    ),
    "deduplicate": lambda rows: timed(rows).transform(deduplicate("key", within="1 minute")),
    "changes": lambda rows: timed(rows).transform(changes("value", by="key")),
    "as_changelog": lambda rows: rows.transform(as_changelog(["key"], order="offset")),
    "enrich": enriched,
    "join_tables": tables,
    "join_tables, of upserts": tables_of_upserts,
}
