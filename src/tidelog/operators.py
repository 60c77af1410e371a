"""Every operator on DataFrames, and what they are made of: `from tidelog.operators import event_time, tumbling, count`.

    rows.transform(event_time("at", "10 seconds")).transform(tumbling("1 minute", by="page", aggregates={"n": count()}))

An operator is a function from DataFrame to DataFrame, in any PySpark program. The last block is for operators of one's
own. Names that Python has too (`sum`, `min`, `max`) read best as `from tidelog import operators as op`, `op.sum("x")`.
"""

from __future__ import annotations

from tidelog.pipelines.operators import aggregates
from tidelog.pipelines.operators.aggregates import (
    Aggregate,
    collect_list,
    count,
    first,
    last,
    max,
    max_by,
    mean,
    min,
    min_by,
    stddev,
    sum,
    variance,
)
from tidelog.pipelines.operators.analytics import compare_with_earlier, rate
from tidelog.pipelines.operators.changelog import PLACE, Table, as_changelog, as_upserts, latest_by_key
from tidelog.pipelines.operators.changes import changes
from tidelog.pipelines.operators.clocks import clock_verdict, corrected_time
from tidelog.pipelines.operators.dedup import deduplicate
from tidelog.pipelines.operators.joins.enrich import enrich
from tidelog.pipelines.operators.joins.join_tables import join_tables
from tidelog.pipelines.operators.joins.stream_join import stream_join
from tidelog.pipelines.operators.place_in_query import check_place
from tidelog.pipelines.operators.sketches import distinct, percentiles, top_k
from tidelog.pipelines.operators.state.checking import checked_step
from tidelog.pipelines.operators.state.fold import DUE, END_OF_TIME, HASH, Clock, Step
from tidelog.pipelines.operators.state.operator import run_fold
from tidelog.pipelines.operators.state.questions import Asking
from tidelog.pipelines.operators.state.reading import read_states
from tidelog.pipelines.operators.time import event_time
from tidelog.pipelines.operators.windows.hopping import hopping
from tidelog.pipelines.operators.windows.late import late_rows, on_time
from tidelog.pipelines.operators.windows.session import session
from tidelog.pipelines.operators.windows.sliding import sliding
from tidelog.pipelines.operators.windows.tumbling import tumbling

__all__ = [
    "DUE",
    "END_OF_TIME",
    "HASH",
    "PLACE",
    "Aggregate",
    "Asking",
    "Clock",
    "Step",
    "Table",
    "aggregates",
    "as_changelog",
    "as_upserts",
    "changes",
    "check_place",
    "checked_step",
    "clock_verdict",
    "collect_list",
    "compare_with_earlier",
    "corrected_time",
    "count",
    "deduplicate",
    "distinct",
    "enrich",
    "event_time",
    "first",
    "hopping",
    "join_tables",
    "last",
    "late_rows",
    "latest_by_key",
    "max",
    "max_by",
    "mean",
    "min",
    "min_by",
    "on_time",
    "percentiles",
    "rate",
    "read_states",
    "run_fold",
    "session",
    "sliding",
    "stddev",
    "stream_join",
    "sum",
    "top_k",
    "tumbling",
    "variance",
]
