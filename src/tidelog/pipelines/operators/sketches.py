"""Aggregates that are nearly right and stay small: distinct counts, percentiles, the most frequent values.

    aggregates={"users": distinct("user"), "ms": percentiles("ms", [0.5, 0.99]), "pages": top_k("page", 10)}

Each is one of Spark's own sketches (Apache DataSketches'), so they run in the JVM, in windows and in plain `agg`.

    aggregate     sketch            what is stated of the error
    distinct      HyperLogLog       `error` is the relative standard error of the count: two of three counts are within
                                    it, 95 of 100 within twice as much
    percentiles   KLL               `error` is that of the rank, with 99 % confidence: the value that is given for 0.5
                                    is one between the ranks 0.5 - error and 0.5 + error
    top_k         frequent items    exact while a group has no more than `tracked` different values; beyond, a count
                                    may be short by 3.5 / tracked of all rows at most

Sketches merge: with `sketch=True` an aggregate gives bytes, and with `merge=True` it takes them, so that a day is made
of 24 hours, and a month of 30 days, with the error of one sketch. The distinct counts of hours do not add up to the
one of a day.

Rules:
- Nulls are left out. Of no value, a distinct count is 0, percentiles are null and the most frequent values are none.
- Sketches that are merged must be of the same kind and precision: give the same `error`, and the same `tracked`.
- They are Spark's alone: a window that must be a fold (with `late="correct"`, `early`) refuses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from tidelog.errors import UsageError
from tidelog.pipelines.operators.aggregates import State
from tidelog.pipelines.operators.grouping import Groups

if TYPE_CHECKING:
    from pyspark.sql import Column

# Of DataSketches: the relative standard error of a HyperLogLog of K buckets that may have been merged is this over the
# root of K; the error of a rank in a KLL sketch of k values is RANK_FACTOR over k to the power RANK_POWER.
HLL_FACTOR = 1.04
HLL_LEAST, HLL_MOST = 4, 21
RANK_FACTOR, RANK_POWER = 2.296, 0.9021
KLL_LEAST, KLL_MOST = 8, 65_535
TRACKED = 10_000
TRACKED_MOST = 1_000_000
BYTES = pa.binary()


def distinct(column: str, *, error: float = 0.01, sketch: bool = False, merge: bool = False) -> Distinct:
    """How many different values: of numbers, text or bytes."""
    check_forms("distinct", sketch, merge)
    return Distinct(column, hll_bits(error), sketch, merge)


def percentiles(
    column: str, ranks: float | Sequence[float], *, error: float = 0.01, sketch: bool = False, merge: bool = False
) -> Percentiles:
    """The values at these ranks, from 0 to 1: a list of doubles, or one where one rank is given."""
    check_forms("percentiles", sketch, merge)
    given = (float(ranks),) if isinstance(ranks, int | float) else tuple(map(float, ranks))
    if not given or any(not 0 <= rank <= 1 for rank in given):
        raise UsageError(f"percentiles are at ranks from 0 to 1, such as 0.5 and 0.99, not at {ranks!r}")
    return Percentiles(column, given, isinstance(ranks, int | float), kll_size(error), sketch, merge)


def top_k(column: str, k: int, *, tracked: int = TRACKED, sketch: bool = False, merge: bool = False) -> TopK:
    """The most frequent values, a list of {item, count}, the most frequent first."""
    check_forms("top_k", sketch, merge)
    if not 1 <= k <= tracked <= TRACKED_MOST:
        raise UsageError(f"top_k has k={k} and tracked={tracked}; it takes 1 <= k <= tracked <= {TRACKED_MOST}")
    return TopK(column, k, tracked, sketch, merge)


def hll_bits(error: float) -> int:
    """The least precision that has the error, as the logarithm of the number of buckets; each is a byte."""
    bits = ceil(2 * log2(HLL_FACTOR / error)) if 0 < error < 1 else 0
    if not 0 < error < 1 or bits > HLL_MOST:
        least = HLL_FACTOR / 2 ** (HLL_MOST / 2)
        raise UsageError(f"the error of a distinct count is {error}; it can be from {least:.5f} to below 1")
    return max(bits, HLL_LEAST)


def kll_size(error: float) -> int:
    size = ceil((RANK_FACTOR / error) ** (1 / RANK_POWER)) if 0 < error < 1 else 0
    if not 0 < error < 1 or size > KLL_MOST:
        least = RANK_FACTOR / KLL_MOST**RANK_POWER
        raise UsageError(f"the error of percentiles is {error}; it can be from {least:.5f} to below 1")
    return max(size, KLL_LEAST)


def check_forms(name: str, sketch: bool, merge: bool) -> None:
    """Merged sketches may be given as a sketch again."""
    if not (isinstance(sketch, bool) and isinstance(merge, bool)):
        raise UsageError(f"{name} takes sketch and merge as True or False, not {sketch!r} and {merge!r}")


@dataclass(frozen=True, slots=True)
class Distinct:
    column: str
    bits: int
    sketch: bool
    merge: bool

    def output_type(self, kind: pa.DataType) -> pa.DataType:
        check_merged("distinct", self.column, kind, self.merge, BYTES)
        return BYTES if self.sketch else pa.int64()

    def native(self, time: str) -> Column:
        from pyspark.sql import functions as F

        made = F.hll_union_agg(self.column) if self.merge else F.hll_sketch_agg(self.column, self.bits)
        return made if self.sketch else F.coalesce(F.hll_sketch_estimate(made), F.lit(0))

    def state_types(self, kind: pa.DataType) -> tuple[pa.DataType, ...]:
        refuse("distinct")

    def lift(self, values: pa.Array, times: pa.Array) -> State:
        refuse("distinct")

    def reduce(self, state: State, groups: Groups) -> State:
        refuse("distinct")

    def finish(self, state: State, kind: pa.DataType) -> pa.Array:
        refuse("distinct")


@dataclass(frozen=True, slots=True)
class Percentiles:
    column: str
    ranks: tuple[float, ...]
    single: bool
    size: int
    sketch: bool
    merge: bool

    def output_type(self, kind: pa.DataType) -> pa.DataType:
        check_merged("percentiles", self.column, kind, self.merge, BYTES)
        if not self.merge and not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise UsageError(f"percentiles are of numbers, and {self.column!r} is a {kind}; cast it to double")
        return BYTES if self.sketch else pa.float64() if self.single else pa.list_(pa.float64())

    def native(self, time: str) -> Column:
        from pyspark.sql import functions as F

        if self.merge:
            made = F.kll_merge_agg_double(self.column, self.size)
        else:
            made = F.kll_sketch_agg_double(F.col(self.column).cast("double"), self.size)
        if self.sketch:
            return made
        ranks = F.lit(self.ranks[0]) if self.single else F.array(*map(F.lit, self.ranks))
        some = F.kll_sketch_get_n_double(made) > 0
        return F.when(some, F.kll_sketch_get_quantile_double(made, ranks))

    def state_types(self, kind: pa.DataType) -> tuple[pa.DataType, ...]:
        refuse("percentiles")

    def lift(self, values: pa.Array, times: pa.Array) -> State:
        refuse("percentiles")

    def reduce(self, state: State, groups: Groups) -> State:
        refuse("percentiles")

    def finish(self, state: State, kind: pa.DataType) -> pa.Array:
        refuse("percentiles")


@dataclass(frozen=True, slots=True)
class TopK:
    column: str
    k: int
    tracked: int
    sketch: bool
    merge: bool

    def output_type(self, kind: pa.DataType) -> pa.DataType:
        """A sketch is a struct of Spark's, whose fields are Spark's affair: here it stands for bytes."""
        return BYTES if self.sketch else pa.list_(pa.struct([("item", kind), ("count", pa.int64())]))

    def native(self, time: str) -> Column:
        from pyspark.sql import functions as F

        column = f"`{self.column}`"
        if self.merge:
            made = f"approx_top_k_combine({column}, {self.tracked})"
        else:
            made = f"approx_top_k_accumulate({column}, {self.tracked}) FILTER (WHERE {column} IS NOT NULL)"
        return F.expr(made if self.sketch else f"approx_top_k_estimate({made}, {self.k})")

    def state_types(self, kind: pa.DataType) -> tuple[pa.DataType, ...]:
        refuse("top_k")

    def lift(self, values: pa.Array, times: pa.Array) -> State:
        refuse("top_k")

    def reduce(self, state: State, groups: Groups) -> State:
        refuse("top_k")

    def finish(self, state: State, kind: pa.DataType) -> pa.Array:
        refuse("top_k")


def check_merged(name: str, column: str, kind: pa.DataType, merge: bool, wanted: Any) -> None:
    if merge and kind != wanted:
        raise UsageError(f"{name} with merge=True takes sketches, and {column!r} is a {kind}; make them by sketch=True")


def refuse(name: str) -> NoReturn:
    raise UsageError(
        f"{name} is a sketch of Spark's, which only Spark's own windows have; leave out late='correct',"
        " late='side_output' and early, or the aggregate"
    )
