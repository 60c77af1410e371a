"""Aggregates, as folds, against plain Python: any split, any grouping, nulls, and the edges of their types."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.errors import UsageError
from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.aggregates import Aggregate
from tidelog.pipelines.operators.grouping import Groups, encode_keys, expand, pairs

Row = tuple[int, Any]  # time and value, in the order of arrival


def groups_of(ids: Sequence[int], size: int) -> Groups:
    return Groups(np.array(ids, np.int64), size)


def lifted(aggregate: Aggregate, rows: Sequence[Row], kind: pa.DataType) -> Sequence[pa.Array]:
    times, values = [time for time, _ in rows], [value for _, value in rows]
    return aggregate.lift(pa.array(values, kind), pa.array(times, pa.int64()))


def together(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Sequence[pa.Array]:
    return [pa.concat_arrays([a, b]) for a, b in zip(left, right, strict=True)]


def folded(aggregate: Aggregate, rows: Sequence[tuple[int, Row]], kind: pa.DataType, cuts: Sequence[int]) -> list[Any]:
    """Rows as (group, row), in three groups of which the last stays empty, taken in as they are cut."""
    state = aggregate.reduce(lifted(aggregate, [], kind), groups_of([], 3))
    assert tuple(part.type for part in state) == aggregate.state_types(kind)
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for start, end in pairwise(bounds):
        part = rows[start:end]
        more = lifted(aggregate, [row for _, row in part], kind)
        state = aggregate.reduce(together(state, more), groups_of([0, 1, 2, *(group for group, _ in part)], 3))
    result = aggregate.finish(state, kind)
    assert result.type == aggregate.output_type(kind)
    found: list[Any] = result.to_pylist()
    return found


def there(rows: Sequence[Row]) -> list[Any]:
    return [value for _, value in rows if value is not None]


def edge(rows: Sequence[Row], last: bool, ignore_nulls: bool = False) -> Any:
    kept = [row for row in rows if row[1] is not None or not ignore_nulls]
    if not kept:
        return None
    return max(reversed(kept), key=lambda row: row[0])[1] if last else min(kept, key=lambda row: row[0])[1]


def spread(rows: Sequence[Row], of: Callable[[list[Any]], float]) -> float | None:
    values = there(rows)
    return of(values) if len(values) > 1 else None


ORACLES: dict[str, tuple[Aggregate, Callable[[Sequence[Row]], Any]]] = {
    "count": (agg.count(), len),
    "count of values": (agg.count("x"), lambda rows: len(there(rows))),
    "sum": (agg.sum("x"), lambda rows: sum(there(rows)) if there(rows) else None),
    "mean": (agg.mean("x"), lambda rows: sum(map(float, there(rows))) / len(there(rows)) if there(rows) else None),
    "min": (agg.min("x"), lambda rows: min(there(rows), default=None)),
    "max": (agg.max("x"), lambda rows: max(there(rows), default=None)),
    "first": (agg.first("x"), lambda rows: edge(rows, False)),
    "last": (agg.last("x"), lambda rows: edge(rows, True)),
    "first value": (agg.first("x", ignore_nulls=True), lambda rows: edge(rows, False, True)),
    "last value": (agg.last("x", ignore_nulls=True), lambda rows: edge(rows, True, True)),
    "variance": (agg.variance("x"), lambda rows: spread(rows, statistics.variance)),
    "stddev": (agg.stddev("x"), lambda rows: spread(rows, statistics.stdev)),
    "list": (
        agg.collect_list("x", limit=3),
        lambda rows: [value for _, value in sorted(rows, key=lambda row: row[0]) if value is not None][:3],
    ),
}
ROWS = st.lists(
    st.tuples(st.integers(0, 1), st.tuples(st.integers(0, 5), st.none() | st.integers(-(2**40), 2**40))), max_size=20
)


@proves("P8")
@pytest.mark.parametrize("name", ORACLES)
@given(rows=ROWS, cuts=st.lists(st.integers(0, 20), max_size=4))
def test_an_aggregate_is_that_of_all_rows_however_they_came(
    name: str, rows: list[tuple[int, Row]], cuts: list[int]
) -> None:
    aggregate, oracle = ORACLES[name]
    found = folded(aggregate, rows, pa.int64(), cuts)
    expected = [oracle([row for group, row in rows if group == wanted]) for wanted in range(3)]
    if name in ("mean", "variance", "stddev"):
        expected = [value if value is None else pytest.approx(value, rel=1e-9, abs=1e-9) for value in expected]
    assert found == expected


BY = st.none() | st.integers(-2, 2) | st.sampled_from([math.inf, math.nan])


@proves("P8")
@given(
    rows=st.lists(st.tuples(st.integers(0, 1), st.none() | st.integers(0, 9), BY), max_size=20),
    cuts=st.lists(st.integers(0, 20), max_size=4),
)
def test_the_value_by_another_column_is_that_of_all_rows_however_they_came(
    rows: list[tuple[int, int | None, float | None]], cuts: list[int]
) -> None:
    """Not a number is the largest, as it is to Spark; of equals the first is the least, and the last is the most."""
    kind = pa.struct([("0", pa.int64()), ("1", pa.float64())])
    given = [(group, (0, {"0": value, "1": by})) for group, value, by in rows]

    def place(row: tuple[int, int | None, float | None]) -> tuple[bool, float]:
        assert row[2] is not None
        return (math.isnan(row[2]), 0.0 if math.isnan(row[2]) else row[2])

    for aggregate, pick in (
        (agg.min_by("x", "y"), min),
        (agg.max_by("x", "y"), lambda of, key: max(of[::-1], key=key)),
    ):
        expected = []
        for wanted in range(3):
            known = [row for row in rows if row[0] == wanted and row[2] is not None]
            expected.append(pick(known, key=place)[1] if known else None)
        assert folded(aggregate, given, kind, cuts) == expected


@proves("P8")
@pytest.mark.parametrize(
    ("kind", "small", "large"),
    [
        (pa.string(), "a", "ä"),
        (pa.binary(), b"", b"\xff"),
        (pa.bool_(), False, True),
        (pa.int64(), -(2**63), 2**63 - 1),
        (pa.decimal128(5, 2), Decimal("-3.00"), Decimal("1.10")),
        (pa.date32(), date(1969, 12, 31), date(2026, 1, 1)),
        (pa.timestamp("us", "UTC"), datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_value_goes_by_a_column_of_any_type_with_an_order(kind: pa.DataType, small: Any, large: Any) -> None:
    both = pa.struct([("0", pa.string()), ("1", kind)])
    rows = [(0, (0, {"0": name, "1": by})) for name, by in (("large", large), ("none", None), ("small", small))]
    assert folded(agg.max_by("x", "y"), rows, both, [1]) == ["large", None, None]
    assert folded(agg.min_by("x", "y"), rows, both, [2]) == ["small", None, None]


@proves("P8")
@pytest.mark.parametrize(
    ("kind", "values", "least", "most"),
    [
        (pa.string(), ["b", None, "ä", "a"], "a", "ä"),
        (pa.binary(), [b"b", b"\xff", None], b"b", b"\xff"),
        (pa.bool_(), [True, None, False], False, True),
        (pa.int8(), [-128, 127, 3], -128, 127),
        (pa.float32(), [0.5, None, -0.5], -0.5, 0.5),
        (pa.decimal128(5, 2), [Decimal("1.10"), Decimal("-3.00")], Decimal("-3.00"), Decimal("1.10")),
        (pa.int64(), [-(2**63), 2**63 - 1], -(2**63), 2**63 - 1),
        (pa.float64(), [-math.inf, math.inf], -math.inf, math.inf),
        (pa.string(), [None, None], None, None),
    ],
)
def test_the_least_and_the_most_are_of_any_type_with_an_order(
    kind: pa.DataType, values: list[Any], least: Any, most: Any
) -> None:
    rows = [(0, (0, value)) for value in values]
    assert folded(agg.min("x"), rows, kind, [1]) == [least, None, None]
    assert folded(agg.max("x"), rows, kind, [1]) == [most, None, None]


@proves("P8")
def test_not_a_number_is_the_most_as_it_is_to_spark() -> None:
    rows = [(0, (0, math.nan)), (0, (0, 1.0)), (1, (0, math.nan))]
    least, only, _ = folded(agg.min("x"), rows, pa.float64(), [1])
    most, _, _ = folded(agg.max("x"), rows, pa.float64(), [1])
    assert least == 1.0
    assert math.isnan(only)
    assert math.isnan(most)


@proves("P8")
@pytest.mark.parametrize(
    ("values", "fits"),
    [
        ([2**63 - 1, 1], False),
        ([-(2**63), -1], False),
        ([2**62, 2**62, -1], None),  # in one step it fits; cut behind the second, the state would have left the range
        ([2**63 - 2, 1], True),
        ([-(2**62), -(2**62)], True),
        ([2**63 - 1, -(2**63), 2**63 - 1], True),
        ([2**62] * 9, False),
    ],
)
def test_a_sum_that_leaves_its_range_is_an_error_and_no_wrong_number(values: list[int], fits: bool | None) -> None:
    rows = [(0, (0, value)) for value in values]
    if fits is False:
        with pytest.raises(UsageError, match=r"sum\('x'\) has left the range of a 64-bit integer"):
            folded(agg.sum("x"), rows, pa.int64(), [])
    else:
        assert folded(agg.sum("x"), rows, pa.int64(), [])[0] == sum(values)


@proves("P8")
@given(st.lists(st.decimals(-999, 999, places=2), min_size=1, max_size=20), st.lists(st.integers(0, 20), max_size=3))
def test_decimals_add_up_to_the_last_digit_and_have_the_types_that_spark_gives(
    values: list[Decimal], cuts: list[int]
) -> None:
    kind, rows = pa.decimal128(5, 2), [(0, (0, value)) for value in values]
    assert agg.sum("x").output_type(kind) == pa.decimal128(15, 2)
    assert agg.mean("x").output_type(kind) == pa.decimal128(9, 6)
    assert folded(agg.sum("x"), rows, kind, cuts)[0] == sum(values)
    mean = (sum(values, Decimal(0)) / len(values)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
    assert folded(agg.mean("x"), rows, kind, cuts)[0] == mean


@proves("P8")
@pytest.mark.parametrize("sign", [1, -1])
def test_decimals_of_all_digits_are_added_where_they_fit(sign: int) -> None:
    kind, largest = pa.decimal128(38, 0), sign * (10**38 - 1)

    def total(*values: int) -> int:
        return int(folded(agg.sum("x"), [(0, (0, Decimal(value))) for value in values], kind, [])[0])

    assert total(largest, -sign) == largest - sign
    for more in ([sign], [largest], [largest] * 3):
        with pytest.raises(UsageError, match="has left the range"):
            total(largest, *more)


@proves("P8")
@pytest.mark.parametrize("wrong", [agg.sum("x"), agg.mean("x"), agg.variance("x"), agg.stddev("x")])
def test_what_is_of_numbers_refuses_text(wrong: Aggregate) -> None:
    with pytest.raises(UsageError, match="is of numbers, and 'x' is a string; cast it"):
        wrong.output_type(pa.string())


@proves("P8")
def test_an_aggregate_is_a_value() -> None:
    assert agg.sum("x") == agg.sum("x")
    assert agg.min("x") != agg.max("x")
    assert len({agg.first("x"), agg.first("x"), agg.last("x")}) == 2
    with pytest.raises(UsageError, match="limit=0"):
        agg.collect_list("x", limit=0)
    with pytest.raises(UsageError, match="no order"):
        agg.min("x").output_type(pa.struct({"a": pa.int64()}))
    with pytest.raises(UsageError, match=r"'y' is a list<.*>, which has no order"):
        agg.max_by("x", "y").output_type(pa.struct([("0", pa.int64()), ("1", pa.list_(pa.int64()))]))


@proves("P8")
@given(st.lists(st.tuples(st.none() | st.sampled_from("abc"), st.none() | st.integers(0, 2)), max_size=20))
def test_keys_are_told_apart_also_where_their_hashes_are_not(keys: list[tuple[str | None, int | None]]) -> None:
    """Here every hash is 7."""
    table = pa.table(
        {
            "_hash": pa.array([7] * len(keys), pa.int64()),
            "a": pa.array([a for a, _ in keys], pa.string()),
            "b": pa.array([b for _, b in keys], pa.int64()),
        }
    )
    found = encode_keys(table, ["a", "b"])
    order = list(dict.fromkeys(keys))
    assert found.codes.tolist() == [order.index(key) for key in keys]
    assert found.first.tolist() == [keys.index(key) for key in order]


@proves("P8")
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)), max_size=20))
def test_pairs_are_told_apart_however_far_their_times_are_apart(elements: list[tuple[int, int]]) -> None:
    codes, times = ([element[side] for element in elements] for side in (0, 1))
    found = pairs(np.array(codes, np.int64), np.array(times, np.int64))
    order = list(dict.fromkeys(elements))
    assert found.codes.tolist() == [order.index(element) for element in elements]


@proves("P8")
@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 4)), max_size=8))
def test_ranges_are_written_out(ranges: list[tuple[int, int]]) -> None:
    owners, values = expand(
        np.array([start for start, _ in ranges], np.int64), np.array([count for _, count in ranges], np.int64)
    )
    expected = [(owner, start + step) for owner, (start, count) in enumerate(ranges) for step in range(count)]
    assert list(zip(owners.tolist(), values.tolist(), strict=True)) == expected
