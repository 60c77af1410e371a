"""`enrich`: rows of a stream with what a table says of their key, as of the time of each row.

It takes plain rows, and gives plain rows that are never revised. The table's rows are upserts by key, with an event
time from which on each counts: rows of a topic, captured changes, or a changelog that tells every change with the time
of it. One that operators make, `as_changelog` first of all, is none such: of the changes of a micro-batch it tells what
they come to, and a `-D` is the row as it was, with the time when it came. As of event time it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import UsageError
from tidelog.pipelines.operators.changelog import BEFORE, DELETE, OP, SEQ, OrderBy
from tidelog.pipelines.operators.durations import Duration, milliseconds
from tidelog.pipelines.operators.joins.as_of import LATE, MATCHED, TIME, AsOf
from tidelog.pipelines.operators.joins.compaction import check_table
from tidelog.pipelines.operators.joins.latest import Latest
from tidelog.pipelines.operators.joins.sides import GONE, Sides, as_one, columns_of, order_of, sides_of, unplaced
from tidelog.pipelines.operators.keyed import asking_of
from tidelog.pipelines.operators.place_in_query import check_place, makes_changes
from tidelog.pipelines.operators.state.fold import Fold
from tidelog.pipelines.operators.state.questions import BESIDE, QUESTION, Asking, refuse_answers

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

AT_EVENT_TIME, LATEST = AS_OF = ("event time", "latest")
KINDS = ("left", "inner")
LATE_ROWS = ("drop", "side_output")

On = str | Sequence[str] | Mapping[str, str]


class Ask(NamedTuple):
    """How a table is to be joined, checked; durations and times in ms."""

    as_of: str
    how: str
    where: str | None
    deleted: str | None
    order: OrderBy
    late: str
    deletes_kept: int
    load_until: int | None


def enrich(
    table: DataFrame,
    on: On,
    *,
    as_of: str = AT_EVENT_TIME,
    how: str = "left",
    where: str | None = None,
    deleted: str | None = None,
    order: OrderBy = None,
    late: str = "drop",
    deletes_kept: Duration = "1 day",
    load_until: datetime | None = None,
    horizon: Duration | None = None,
    topic: str | None = None,
    bootstrap: str | None = None,
    questions: DataFrame | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """Each row with the newest version of its key in `table` at or before the row's event time.

    `on`: the columns that both have, or `{"left": "right"}`. `how`: a row without a match has nulls ("left") or is left
    out ("inner"). `where`: a condition on both, asked after the version is picked; no older version is fallen back on.
    `deleted`: what is true for a row of the table that ends its key. `order` says which of two versions with the same
    time is the later one: a column (a whole number, timestamp or date), or the place of its record (`PLACE`), as for
    `as_changelog`; it is not part of the table, unless it is event time. Tables of an app have their places, and need
    no `order`.
    `late`: rows behind the watermark, and those without a time, are dropped, or put out with `_late` true instead of
    null ("side_output"). `deletes_kept`: how long a deletion is remembered, lest a version from before it comes later.

    `as_of="latest"` waits for nothing and joins with what the table is when a row comes: with another order of arrival,
    as in a replay, the answer is another one. `load_until` holds rows back until the watermark has reached that time.

    `horizon`: how far back rows may ask: by default the lateness of the two. The table's topics have to keep versions
    for as long; they are found in its plan, or named by `topic` and `bootstrap`.

    `questions` are by the columns of the left in `on`, and are answered with what the table has of that key.
    """
    ask = Ask(
        _one_of(as_of, AS_OF, "as_of"),
        _one_of(how, KINDS, "how"),
        where,
        deleted,
        order,
        _one_of(late, LATE_ROWS, "late"),
        milliseconds(deletes_kept, what="deletes_kept"),
        None if load_until is None else int(load_until.timestamp() * 1000),
    )
    far = None if horizon is None else milliseconds(horizon, what="horizon")

    def enriched(rows: DataFrame) -> DataFrame:
        frame = unplaced(rows)
        _check_inputs(frame, table)
        if as_of == AT_EVENT_TIME:
            _check_versions(table)
            for side in (frame, table):
                check_place(side, "enrich as of event time")
            check_table(table, _lateness(frame, table) if far is None else far, topic, bootstrap)
        asking = asking_of("enrich", questions, [name for name, _ in _pairs(on)])
        return _joined(frame, table, _pairs(on), ask, asking)

    return enriched


def _joined(
    frame: DataFrame, table: DataFrame, pairs: list[tuple[str, str]], ask: Ask, asking: Asking | None
) -> DataFrame:
    from pyspark.sql import functions as F

    from tidelog.pipelines.operators.state.operator import run_fold

    changes = table.where(f"{OP} != '{BEFORE}'") if OP in table.columns else table
    order = order_of(table, ask.order or (SEQ if SEQ in table.columns else None))
    rows = changes.drop(*(name for name in order.dropped if name not in _staying(table, ask)))
    sides = sides_of(frame, rows, pairs)
    nothing = F.lit(None).cast("bigint")
    more = {GONE: _gone(table, ask)} | {name: (nothing, column) for name, column in order.columns.items()}
    if ask.as_of == AT_EVENT_TIME:
        more[TIME] = _times(frame, table)
    elif ask.load_until is not None:
        _times(frame, table)
    both = as_one(sides, frame, changes, more)
    columns = columns_of(sides, frame, rows)
    said = (order.name, order.unit) if ask.order else (None, None)  # one within a micro-batch is none
    fold: Fold = Latest(columns, ask.load_until, sides.pairs, *said, order.across, ask.deletes_kept)
    if ask.as_of == AT_EVENT_TIME:
        fold = AsOf(columns, ask.deletes_kept, ask.late == "side_output", sides.pairs, *said, order.across)
    return _chosen(run_fold(both, sides.keys, fold, asking=asking), sides, ask)


def _chosen(output: DataFrame, sides: Sides, ask: Ask) -> DataFrame:
    """The columns by the names that users know, and what the condition says of what was found."""
    from pyspark.sql import functions as F

    beside = [name for name in BESIDE if name in output.columns]
    own = (F.col(f"`{at}`").alias(name) for name, at in sides.columns.items())
    named = output.select(LATE, MATCHED, *own, *beside)
    fits = F.col(MATCHED) & (F.coalesce(F.expr(ask.where), F.lit(False)) if ask.where else F.lit(True))
    if ask.how == "inner":
        named = named.where(fits | F.col(LATE) | (F.col(QUESTION).isNotNull() if beside else F.lit(False)))
    elif ask.where:
        named = named.select(
            *(F.when(fits, F.col(f"`{n}`")).alias(n) if n in sides.right else F.col(f"`{n}`") for n in named.columns)
        )
    if ask.late == "drop":
        return named.drop(MATCHED, LATE)
    return named.drop(MATCHED).withColumn(LATE, F.when(F.col(LATE), F.lit(True)))  # null where not: `on_time` takes it


def _gone(table: DataFrame, ask: Ask) -> tuple[Column, Column]:
    from pyspark.sql import functions as F

    ended = F.expr(ask.deleted) if ask.deleted else F.col(OP) == DELETE if OP in table.columns else F.lit(False)
    return F.lit(False), F.coalesce(ended, F.lit(False))


def _times(frame: DataFrame, table: DataFrame) -> tuple[Column, Column]:
    from pyspark.sql import functions as F

    from tidelog.pipelines.operators.time import event_time_column

    return F.col(event_time_column(frame)), F.col(event_time_column(table))


def _staying(table: DataFrame, ask: Ask) -> set[str]:
    """Columns that are part of the table also where they are part of its order."""
    from tidelog.pipelines.operators.time import event_time_column

    return {SEQ} | ({event_time_column(table)} if ask.as_of == AT_EVENT_TIME else set())


def _lateness(frame: DataFrame, table: DataFrame) -> int:
    from tidelog.pipelines.operators.time import EVENT_TIME, WATERMARK, event_time_column

    found = [one.schema[event_time_column(one)].metadata for one in (frame, table)]
    return max(int(metadata.get(WATERMARK, metadata.get(EVENT_TIME, 0))) for metadata in found)


def _check_inputs(frame: DataFrame, table: DataFrame) -> None:
    for side in (frame, table):
        refuse_answers("enrich", side)
    if OP in frame.columns:
        raise UsageError("enrich takes plain rows on the left, and this is a changelog; use join_tables for two tables")
    if frame.isStreaming != table.isStreaming:
        one, other = ("stream", "batch") if frame.isStreaming else ("batch", "stream")
        raise UsageError(
            f"the left is a {one} and the table a {other}; read both by readStream, or join with a table that does not "
            "change by Spark's own df.join(...)"
        )


def _check_versions(table: DataFrame) -> None:
    if OP in table.columns and makes_changes(table):
        raise UsageError(
            "enrich as of event time needs every version of a row, and this changelog has only the net changes of "
            "each micro-batch; give enrich the upserts themselves, as they are before as_changelog (deleted=... "
            "says which of them end a key), or take as_of='latest'"
        )


def _pairs(on: On) -> list[tuple[str, str]]:
    if isinstance(on, Mapping):
        return list(on.items())
    return [(name, name) for name in ([on] if isinstance(on, str) else on)]


def _one_of(value: str, choices: Sequence[str], what: str) -> str:
    if value not in choices:
        raise UsageError(f"{what} is {value!r}; it is one of {', '.join(map(repr, choices))}")
    return value
