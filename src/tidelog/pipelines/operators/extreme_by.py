"""The value of one column where another one is largest, or smallest: what `max_by` and `min_by` keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import UsageError
from tidelog.pipelines.operators.grouping import Groups, earliest, latest

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True, slots=True)
class ExtremeBy:
    """`column` is what is told and what it goes by, and `kind` a struct of both. State: what it went by, the value."""

    column: tuple[str, str]
    largest: bool

    def output_type(self, kind: pa.DataType) -> pa.DataType:
        if pa.types.is_nested(kind.field(1).type):
            raise UsageError(f"{self.column[1]!r} is a {kind.field(1).type}, which has no order; name a field of it")
        return kind.field(0).type

    def state_types(self, kind: pa.DataType) -> tuple[pa.DataType, ...]:
        return (kind.field(1).type, kind.field(0).type)

    def lift(self, values: pa.Array, times: pa.Array) -> Sequence[pa.Array]:
        return (values.field(1), values.field(0))

    def reduce(self, state: Sequence[pa.Array], groups: Groups) -> Sequence[pa.Array]:
        order, values = state
        places = (latest if self.largest else earliest)(ranks(order), groups)
        return (order.take(places), values.take(places))

    def finish(self, state: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
        return state[1]

    def native(self, time: str) -> Column | None:
        from pyspark.sql import functions as F

        return (F.max_by if self.largest else F.min_by)(*self.column)


def ranks(values: pa.Array) -> pa.Array:
    """Integers in the order of the values, equal where they are; null for null. Not a number is the largest."""
    if pa.types.is_integer(values.type) or pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    ranks = pc.rank(values, sort_keys="ascending", tiebreaker="dense").cast(pa.int64())
    return pc.if_else(values.is_valid(), ranks, pa.scalar(None, pa.int64()))
