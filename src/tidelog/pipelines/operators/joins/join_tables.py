"""`join_tables`: two tables that change, and the table that their join is: a view that is kept up to date.

It takes two changelogs and gives one. After every micro-batch it adds up to the join of both tables as they are then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog.errors import UsageError
from tidelog.pipelines.operators.changelog import (
    ADDITIONS,
    COUNT,
    HEAD,
    OP,
    RETRACTIONS,
    must_be_changelog,
)
from tidelog.pipelines.operators.joins.sides import as_one, columns_of, sides_of
from tidelog.pipelines.operators.joins.tables import KINDS, LEFT_ONLY, TableJoin
from tidelog.pipelines.operators.keyed import asking_of
from tidelog.pipelines.operators.state.questions import BESIDE, refuse_answers

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def join_tables(
    right: DataFrame,
    on: str | Sequence[str] | None = None,
    *,
    foreign_key: Mapping[str, str] | None = None,
    how: str = "inner",
    questions: DataFrame | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """The changelog of the join of two changelogs.

    `on` names columns that both have; `foreign_key` is `{"column of the left": "column of the right"}`, and both are in
    the result. `how` is "inner", "left", "right", "full", "semi" or "anti". `questions` are by the columns of the left
    that it is joined by, and are answered with the rows of the join that have them.
    """
    if how not in KINDS:
        raise UsageError(f"how is {how!r}; it is one of {', '.join(map(repr, KINDS))}")
    if (on is None) == (foreign_key is None):
        raise UsageError("join_tables takes either on=... or foreign_key=...")
    pairs = (
        list(foreign_key.items())
        if foreign_key
        else [(name, name) for name in ([on] if isinstance(on, str) else on or ())]
    )

    def joined(left: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        from tidelog.pipelines.operators.state.operator import run_fold

        _check_inputs(left, right)
        sides = sides_of(left, right, pairs)
        both = as_one(sides, left, right, {COUNT: (_count(), _count())})
        fold = TableJoin(columns_of(sides, left, right), how, sides.pairs)
        asking = asking_of("join_tables", questions, [name for name, _ in pairs])
        output = run_fold(both, sides.keys, fold, asking=asking)
        names = {name: at for name, at in sides.columns.items() if how not in LEFT_ONLY or name not in sides.right}
        return output.select(
            *(field.name for field in HEAD),
            *(F.col(f"`{at}`").alias(name) for name, at in names.items()),
            *(BESIDE if asking is not None else ()),
        )

    return joined


def _count() -> Column:
    """+1 or -1: what a row of a changelog adds to its table."""
    from pyspark.sql import functions as F

    wrong = F.raise_error(F.concat(F.lit(f"{OP} of a changelog is "), F.coalesce(F.col(OP), F.lit("null"))))
    adds, takes = F.col(OP).isin(*ADDITIONS), F.col(OP).isin(*RETRACTIONS)
    return F.when(adds, F.lit(1)).when(takes, F.lit(-1)).otherwise(wrong.cast("int")).cast("bigint")


def _check_inputs(left: DataFrame, right: DataFrame) -> None:
    for frame in (left, right):
        refuse_answers("join_tables", frame)
        must_be_changelog(frame, "join_tables")
        for field in frame.schema.fields:
            if field.dataType.typeName() in ("array", "map", "struct", "variant"):
                raise UsageError(
                    f"column {field.name!r} is of type {field.dataType.simpleString()}, by which rows cannot be "
                    "compared; take its parts as columns, or to_json of it"
                )
    if left.isStreaming != right.isStreaming:
        raise UsageError("one of the two tables is a stream and the other a batch; read both in the same way")
