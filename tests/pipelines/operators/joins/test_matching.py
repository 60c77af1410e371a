"""Which row meets which, against loops within loops."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.pipelines.operators.joins.matching import NO_ROW, key_codes, needed_versions, newest, pairs, taken

CODES = st.lists(st.integers(-1, 3), max_size=12)
TIMED = st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 6)), max_size=12)


def numbers(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


@proves("P9")
@given(CODES, CODES, st.sampled_from([0, 2**16 - 4]))
def test_pairs_are_those_of_a_nested_loop(left: list[int], right: list[int], above: int) -> None:
    """Codes of few keys and of many, which are sorted in different ways."""
    left, right = ([code if code == -1 else code + above for code in codes] for codes in (left, right))
    found = pairs(numbers(left), numbers(right))
    expected = [(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if a == b and a != -1]
    assert list(zip(found.left.tolist(), found.right.tolist(), strict=True)) == expected


@proves("P9", "P10")
@given(TIMED, TIMED)
def test_the_newest_at_or_before_is_that_of_a_search(
    versions: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    found = newest(*(numbers([row[i] for row in rows]) for rows in (versions, asked) for i in (0, 1)))
    for (code, time), place in zip(asked, found.tolist(), strict=True):
        fits = [(at, number) for number, (other, at) in enumerate(versions) if other == code != -1 and at <= time]
        assert place == (max(fits)[1] if fits else NO_ROW)


@proves("P10")
@given(TIMED, st.integers(-1, 7), st.integers(0, 3), st.integers(0, 8))
def test_versions_that_are_kept_answer_whatever_may_still_be_asked(
    versions: list[tuple[int, int]], reached: int, code: int, ahead: int
) -> None:
    codes, times = (numbers([row[i] for row in versions]) for i in (0, 1))
    kept = needed_versions(codes, times, reached)
    asked = numbers([code]), numbers([reached + 1 + ahead])
    whole = newest(codes, times, *asked)
    left = newest(codes[kept], times[kept], *asked)
    assert whole == (kept[left] if left != NO_ROW else NO_ROW)
    for one in set(codes.tolist()):
        of_code = times[kept][codes[kept] == one]
        assert np.count_nonzero(of_code <= reached) <= 1
        assert len(set(of_code.tolist())) == len(of_code)


@proves("P9")
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 2, None])), max_size=10),
    st.integers(0, 9),
)
def test_equal_keys_of_two_tables_have_equal_codes(rows: list[tuple[str | None, int | None]], cut: int) -> None:
    tables = [
        pa.table(
            {"a": pa.array([row[0] for row in part], pa.string()), "b": pa.array([row[1] for row in part], pa.int64())}
        )
        for part in (rows[:cut], rows[cut:])
    ]
    codes = np.concatenate(key_codes(tables, ["a", "b"])).tolist()
    assert [code == -1 for code in codes] == [None in row for row in rows]
    for one, code in zip(rows, codes, strict=True):
        assert [other == one for other in rows] == [code == found for found in codes] or code == -1


@proves("P9")
def test_a_place_of_no_row_takes_nulls_also_from_an_empty_table() -> None:
    empty = pa.table({"a": pa.array([], pa.string())})
    assert taken(empty, numbers([NO_ROW, NO_ROW]))["a"].to_pylist() == [None, None]
    assert taken(pa.table({"a": ["x", "y"]}), numbers([1, NO_ROW]))["a"].to_pylist() == ["y", None]
