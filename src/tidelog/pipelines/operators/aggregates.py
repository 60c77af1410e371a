"""What a window says of its rows: `count()`, `sum("price")`, `mean`, `max`, `last`, `max_by("shop", "price")`, ...

    from tidelog.pipelines.operators import aggregates as agg
    {"bids": agg.count(), "best": agg.max("price")}

Rules:
- Names, types and nulls are those of `pyspark.sql.functions`: nulls are left out, and of no value the aggregate is
  null, but for `count`, which is 0. A sum that leaves its type's range is an error, as it is to Spark (ANSI mode).
- `first` and `last` go by event time; of rows at the same time, the one that arrived first, or last. Spark, which does
  not know the order of arrival, takes any of those. Null is a value to them, unless they are told to ignore it.
- `max_by` and `min_by` go by another column, of rows with the same in it by arrival, as `last` and `first`. Rows in
  which that is null are left out; null in the column itself is a value.
- An aggregate is a value: frozen, and the same wherever it is written. It is either Spark's own (`native`), or a
  *fold*: a row is a small state of its own (`lift`), states are put together group by group (`reduce`), and the state
  is turned into the result (`finish`). `reduce` is associative: it does not matter how rows came to be together, but
  for the last bits of sums of floats.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import UsageError
from tidelog.pipelines.operators.grouping import (
    Groups,
    by_arrow,
    earliest,
    latest,
    sum_decimals,
    sum_floats,
    sum_integers,
    valid_of,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

State = Sequence[pa.Array]  # one array for each of `state_types`

DECIMAL_DIGITS = 38  # the most that Spark has
SUM_DIGITS = 10  # how many more digits than its column Spark gives a sum
MEAN_DIGITS = 4  # and a mean, behind the point


class Aggregate(Protocol):
    """What windows ask of an aggregate. `kind` is the type of its column; null where it takes none.

    One that takes two columns is given a struct of them.
    """

    @property
    def column(self) -> str | tuple[str, str] | None: ...

    def output_type(self, kind: pa.DataType) -> pa.DataType: ...

    def state_types(self, kind: pa.DataType) -> tuple[pa.DataType, ...]: ...

    def lift(self, values: pa.Array, times: pa.Array) -> State:
        """The state of each row by itself. `times` is int64, in microseconds."""
        ...

    def reduce(self, state: State, groups: Groups) -> State:
        """States put together by group; they stand in the order of arrival. Of none, it is the state of no rows."""
        ...

    def finish(self, state: State, kind: pa.DataType) -> pa.Array: ...

    def native(self, time: str) -> Column | None:
        """The same as Spark's own expression, where it has one."""
        ...


def count(column: str | None = None) -> Aggregate:
    """How many rows, or how many in which the column is not null."""
    return Count(column)


def sum(column: str) -> Aggregate:
    return Sum(column)


def mean(column: str) -> Aggregate:
    return Mean(column)


avg = mean


def min(column: str) -> Aggregate:
    return Extreme(column, largest=False)


def max(column: str) -> Aggregate:
    return Extreme(column, largest=True)


def first(column: str, *, ignore_nulls: bool = False) -> Aggregate:
    """The value at the earliest event time."""
    return Edge(column, last=False, ignore_nulls=ignore_nulls)


def last(column: str, *, ignore_nulls: bool = False) -> Aggregate:
    """The value at the latest event time."""
    return Edge(column, last=True, ignore_nulls=ignore_nulls)


def max_by(column: str, by: str) -> Aggregate:
    """The value of the row in which `by` is largest: `max_by("status", "version")` is the newest status."""
    from tidelog.pipelines.operators.extreme_by import ExtremeBy

    return ExtremeBy((column, by), largest=True)


def min_by(column: str, by: str) -> Aggregate:
    """The value of the row in which `by` is smallest."""
    from tidelog.pipelines.operators.extreme_by import ExtremeBy

    return ExtremeBy((column, by), largest=False)


def variance(column: str) -> Aggregate:
    """Of a sample: null for one value."""
    return Spread(column, root=False)


def stddev(column: str) -> Aggregate:
    """Of a sample: null for one value."""
    return Spread(column, root=True)


def collect_list(column: str, *, limit: int) -> Aggregate:
    """The values in the order of event time, without nulls, and no more than the first `limit` of them."""
    if limit < 1:
        raise UsageError(f"collect_list has limit={limit}, and has to keep one value at least")
    from tidelog.pipelines.operators.collected import Collected

    return Collected(column, limit)


@dataclass(frozen=True, slots=True)
class Count:
    column: str | None

    def output_type(self, kind: pa.DataType) -> pa.DataType:
        return pa.int64()

    def state_types(self, kind: pa.DataType) -> tuple[pa.DataType, ...]:
        return (pa.int64(),)

    def lift(self, values: pa.Array, times: pa.Array) -> State:
        if self.column is None or not values.null_count:
            return (pa.array(np.ones(len(times), np.int64)),)
        return (values.is_valid().cast(pa.int64()),)

    def reduce(self, state: State, groups: Groups) -> State:
        totals = np.zeros(groups.size, np.int64)
        np.add.at(totals, groups.ids, state[0].to_numpy())
        return (pa.array(totals),)

    def finish(self, state: State, kind: pa.DataType) -> pa.Array:
        return state[0]

    def native(self, time: str) -> Column | None:
        from pyspark.sql import functions as F

        return F.count("*" if self.column is None else self.column)


@dataclass(frozen=True, slots=True)
class Sum:
    column: str

    def output_type(self, kind: pa.DataType) -> pa.DataType:
        if pa.types.is_decimal(kind):
            return pa.decimal128(_digits(kind.precision + SUM_DIGITS), kind.scale)
        if pa.types.is_integer(kind):
            return pa.int64()
        if pa.types.is_floating(kind):
            return pa.float64()
        raise _no_number("sum", self.column, kind)

    def state_types(self, kind: pa.DataType) -> tuple[pa.DataType, ...]:
        return (self.output_type(kind),)

    def lift(self, values: pa.Array, times: pa.Array) -> State:
        return (values.cast(self.output_type(values.type)),)

    def reduce(self, state: State, groups: Groups) -> State:
        (values,) = state
        what = f"sum({self.column!r})"
        if pa.types.is_floating(values.type):
            return (sum_floats(values, groups),)
        return ((sum_decimals if pa.types.is_decimal(values.type) else sum_integers)(values, groups, what),)

    def finish(self, state: State, kind: pa.DataType) -> pa.Array:
        return state[0]

    def native(self, time: str) -> Column | None:
        from pyspark.sql import functions as F

        return F.sum(self.column)


@dataclass(frozen=True, slots=True)
class Mean:
    """The sum, as Spark has it (of integers too it is one of floats), and how many."""

    column: str

    def output_type(self, kind: pa.DataType) -> pa.DataType:
        if pa.types.is_decimal(kind):
            return pa.decimal128(_digits(kind.precision + MEAN_DIGITS), _digits(kind.scale + MEAN_DIGITS))
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return pa.float64()
        raise _no_number("mean", self.column, kind)

    def state_types(self, kind: pa.DataType) -> tuple[pa.DataType, ...]:
        self.output_type(kind)
        return (Sum(self.column).output_type(kind) if pa.types.is_decimal(kind) else pa.float64(), pa.int64())

    def lift(self, values: pa.Array, times: pa.Array) -> State:
        return (values.cast(self.state_types(values.type)[0], safe=False), *Count(self.column).lift(values, times))

    def reduce(self, state: State, groups: Groups) -> State:
        total, number = state
        return (*Sum(self.column).reduce((total,), groups), *Count(self.column).reduce((number,), groups))

    def finish(self, state: State, kind: pa.DataType) -> pa.Array:
        total, number = state
        if pa.types.is_decimal(kind):
            return _decimal_means(total, number, self.output_type(kind))
        return pc.divide(total, pc.if_else(pc.equal(number, 0), pa.scalar(None, pa.float64()), number))

    def native(self, time: str) -> Column | None:
        from pyspark.sql import functions as F

        return F.avg(self.column)


@dataclass(frozen=True, slots=True)
class Extreme:
    """Not a number is larger than any number, as it is to Spark."""

    column: str
    largest: bool

    def output_type(self, kind: pa.DataType) -> pa.DataType:
        if pa.types.is_nested(kind):
            raise UsageError(f"{self.column!r} is a {kind}, which has no order; name a field of it")
        return kind

    def state_types(self, kind: pa.DataType) -> tuple[pa.DataType, ...]:
        return (self.output_type(kind),)

    def lift(self, values: pa.Array, times: pa.Array) -> State:
        return (values,)

    def reduce(self, state: State, groups: Groups) -> State:
        (values,) = state
        if pa.types.is_floating(values.type):
            return (self._of_numbers(values, groups, np.nan, np.maximum if self.largest else np.fmin),)
        if pa.types.is_integer(values.type) or pa.types.is_timestamp(values.type):
            bounds = np.iinfo(np.int64)
            start = bounds.min if self.largest else bounds.max
            whole = values.cast(pa.int64())
            least = self._of_numbers(whole, groups, start, np.maximum if self.largest else np.minimum)
            return (least.cast(values.type),)
        return (by_arrow(values, groups, "max" if self.largest else "min"),)

    def _of_numbers(self, values: pa.Array, groups: Groups, start: Any, better: np.ufunc) -> pa.Array:
        kept, ids, seen = valid_of(values, groups)
        numbers = kept.to_numpy(zero_copy_only=False)
        found = np.full(groups.size, start, numbers.dtype)
        if better is np.maximum and numbers.dtype.kind == "f":
            found[ids] = numbers  # any of them: what there is to begin with may not be larger than all
        with np.errstate(invalid="ignore"):
            better.at(found, ids, numbers)
        return pa.array(found, type=values.type, mask=~seen, from_pandas=False)

    def finish(self, state: State, kind: pa.DataType) -> pa.Array:
        return state[0]

    def native(self, time: str) -> Column | None:
        from pyspark.sql import functions as F

        return F.max(self.column) if self.largest else F.min(self.column)


@dataclass(frozen=True, slots=True)
class Edge:
    """The value, and the time at which it was: null while there is none."""

    column: str
    last: bool
    ignore_nulls: bool

    def output_type(self, kind: pa.DataType) -> pa.DataType:
        return kind

    def state_types(self, kind: pa.DataType) -> tuple[pa.DataType, ...]:
        return (pa.int64(), kind)

    def lift(self, values: pa.Array, times: pa.Array) -> State:
        if self.ignore_nulls and values.null_count:
            return (pc.if_else(values.is_valid(), times, pa.scalar(None, pa.int64())), values)
        return (times, values)

    def reduce(self, state: State, groups: Groups) -> State:
        times, values = state
        places = (latest if self.last else earliest)(times, groups)
        return (times.take(places), values.take(places))

    def finish(self, state: State, kind: pa.DataType) -> pa.Array:
        return state[1]

    def native(self, time: str) -> Column | None:
        from pyspark.sql import functions as F

        order = F.col(time)
        if self.ignore_nulls:
            order = F.when(F.col(self.column).isNotNull(), order)
        return (F.max_by if self.last else F.min_by)(self.column, order)


@dataclass(frozen=True, slots=True)
class Spread:
    """How many, their mean, and the sum of the squares of their distances from it: states add up without loss."""

    column: str
    root: bool

    def output_type(self, kind: pa.DataType) -> pa.DataType:
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise _no_number("stddev" if self.root else "variance", self.column, kind)
        return pa.float64()

    def state_types(self, kind: pa.DataType) -> tuple[pa.DataType, ...]:
        self.output_type(kind)
        return (pa.int64(), pa.float64(), pa.float64())

    def lift(self, values: pa.Array, times: pa.Array) -> State:
        (number,) = Count(self.column).lift(values, times)
        return (number, values.cast(pa.float64(), safe=False).fill_null(0.0), pa.array(np.zeros(len(values))))

    def reduce(self, state: State, groups: Groups) -> State:
        number, middle, squares = (part.to_numpy() for part in state)
        total = np.bincount(groups.ids, weights=number, minlength=groups.size)
        weighted = np.bincount(groups.ids, weights=number * middle, minlength=groups.size)
        means = np.divide(weighted, total, out=np.zeros(groups.size), where=total > 0)
        apart = number * (middle - means[groups.ids]) ** 2
        around = np.bincount(groups.ids, weights=squares + apart, minlength=groups.size)
        return (pa.array(total.astype(np.int64)), pa.array(means), pa.array(around.astype(np.float64)))

    def finish(self, state: State, kind: pa.DataType) -> pa.Array:
        number, _, squares = (part.to_numpy() for part in state)
        found = np.divide(squares, number - 1, out=np.zeros(len(number)), where=number > 1)
        return pa.array(np.sqrt(found) if self.root else found, mask=number <= 1)

    def native(self, time: str) -> Column | None:
        from pyspark.sql import functions as F

        return F.stddev(self.column) if self.root else F.variance(self.column)


def _digits(number: int) -> int:
    return number if number < DECIMAL_DIGITS else DECIMAL_DIGITS


def _decimal_means(total: pa.Array, number: pa.Array, kind: pa.DataType) -> pa.Array:
    with decimal.localcontext(prec=2 * DECIMAL_DIGITS, rounding=decimal.ROUND_HALF_UP) as context:
        unit = decimal.Decimal(1).scaleb(-kind.scale)
        found = [
            None if whole is None else context.divide(whole, decimal.Decimal(parts)).quantize(unit)
            for whole, parts in zip(total.to_pylist(), number.to_pylist(), strict=True)
        ]
    return pa.array(found, kind)


def _no_number(name: str, column: str, kind: pa.DataType) -> UsageError:
    return UsageError(f"{name} is of numbers, and {column!r} is a {kind}; cast it")
