"""Sliding windows as folds: against an oracle, and at the edges that are easy to get wrong."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.windows.driving import Batch, batches, compare
from pipelines.operators.windows.mechanism import Mechanism, Row, Told, batch, late_of, spec, told_of
from pipelines.operators.windows.oracle import MS, Rules, SlidingOracle
from proving import proves
from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.windows import panes
from tidelog.pipelines.operators.windows.grid import Grid
from tidelog.pipelines.operators.windows.grid_fold import GridFold
from tidelog.pipelines.operators.windows.sliding_fold import SlidingFold

RULES = st.builds(Rules, st.booleans(), st.none() | st.integers(1, 8).map(lambda ms: ms * MS))
FIRST, LAST = -15, 25


@proves("P8", "P7")
@given(size=st.integers(1, 9), rules=RULES, diverts=st.booleans(), pages=st.integers(1, 3), taken=batches(FIRST, LAST))
def test_sliding_windows_are_those_of_the_oracle_after_every_micro_batch(
    size: int, rules: Rules, diverts: bool, pages: int, taken: list[Batch]
) -> None:
    fold = SlidingFold(spec(**rules._asdict(), diverts=diverts), size * MS)
    mechanism = compare(fold, SlidingOracle(size, rules), taken, FIRST, pages)
    mechanism.run([], 10_000)
    assert all(len(state) == 0 for state in mechanism.state)


MINUTE = 60_000 * MS


def fold(size: int, **more: object) -> SlidingFold:
    return SlidingFold(spec(**more), size)


def spans(told: list[Told], unit: int = MS) -> list[tuple[int, int, int]]:
    return sorted((each.start // unit, each.end // unit, each.values[0]) for each in told)


@proves("P8")
def test_two_actions_within_30_minutes_are_in_one_window() -> None:
    start = 600 * MINUTE
    for apart, most in ((30 * MINUTE, 2), (30 * MINUTE + MS, 1)):
        rows = [Row("a", start, 1), Row("a", start + apart, 1)]
        told = told_of(batch(fold(30 * MINUTE), rows))
        assert max(each.values[0] for each in told) == most


@proves("P8")
def test_a_window_ends_with_each_record_and_one_begins_behind_it_if_another_is_in_it() -> None:
    rows = [Row("a", time * MS, 1) for time in (100, 105, 120)]
    assert spans(told_of(batch(fold(10 * MS), rows))) == [(90, 100, 1), (95, 105, 2), (101, 111, 1), (110, 120, 1)]


@proves("P8")
def test_records_at_one_time_are_in_the_same_windows() -> None:
    rows = [Row("a", 100 * MS, 1), Row("a", 100 * MS, 2), Row("a", 100 * MS + 999, 3)]
    assert spans(told_of(batch(fold(10 * MS), rows))) == [(90, 100, 3)]


@proves("P8")
def test_both_ends_belong_to_the_window() -> None:
    rows = [Row("a", 100 * MS, 1), Row("a", 110 * MS, 1), Row("a", 111 * MS, 1)]
    assert spans(told_of(batch(fold(10 * MS), rows))) == [
        (90, 100, 1),
        (100, 110, 2),
        (101, 111, 2),
        (111, 121, 1),
    ]


@proves("P8")
def test_records_before_the_first_size_share_a_window_from_0() -> None:
    rows = [Row("a", time * MS, 1) for time in (0, 4, 9, 10)]
    told = spans(told_of(batch(fold(10 * MS), rows)))
    assert told == [(0, 10, 4), (1, 11, 3), (5, 15, 2), (10, 20, 1)]


@proves("P8")
def test_records_before_1970_have_windows_like_any_other() -> None:
    rows = [Row("a", time * MS, 1) for time in (-105, -100)]
    assert spans(told_of(batch(fold(10 * MS), rows))) == [(-115, -105, 1), (-110, -100, 2), (-104, -94, 1)]


@proves("P7", "P8")
def test_a_window_is_over_when_the_watermark_is_behind_its_last_instant() -> None:
    for watermark, expected in ((100, []), (101, [(90, 100, 1)])):
        mechanism = Mechanism(fold(10 * MS), 1)
        mechanism.run([Row("a", 100 * MS, 1)], None)
        assert spans(told_of(mechanism.run([], watermark))) == expected


@proves("P7", "P8")
def test_a_late_row_counts_in_windows_that_are_open_and_is_diverted_for_its_own() -> None:
    mechanism = Mechanism(fold(10 * MS, diverts=True), 1)
    mechanism.run([Row("a", 108 * MS, 1)], None)
    output = mechanism.run([Row("a", 100 * MS, 1)], 105)
    assert [(late.start, late.end) for late in late_of(output)] == [(90 * MS, 100 * MS)]
    assert spans(told_of(mechanism.run([], 109))) == [(98, 108, 2)]


@proves("P7", "P8")
def test_a_row_is_gone_only_when_no_open_window_could_hold_it() -> None:
    for watermark, kept in ((110, 1), (111, 0)):
        mechanism = Mechanism(fold(10 * MS), 1)
        mechanism.run([Row("a", 100 * MS, 1)], watermark)
        assert len(mechanism.state[0]) == kept


@proves("P8")
def test_a_moving_average_moves_when_a_record_enters_and_when_one_leaves() -> None:
    from tidelog.pipelines.operators import aggregates as agg

    rows = [Row("a", (100 + 4 * number) * MS, value) for number, value in enumerate((10, 20, 60))]
    told = told_of(batch(fold(5 * MS, aggregates={"average": agg.mean("x")}), rows))
    assert [(each.end // MS, each.values[0]) for each in sorted(told, key=lambda each: each.end)] == [
        (100, 10.0),
        (104, 15.0),
        (106, 20.0),
        (108, 40.0),
        (110, 60.0),
    ]


@proves("P8", "B1")
@given(taken=batches(FIRST, LAST, untimed=False), most=st.integers(1, 5))
def test_windows_put_out_in_slices_are_those_put_out_at_once(taken: list[Batch], most: int) -> None:
    rows = [row for batch_of_rows, _ in taken for row in batch_of_rows]
    for made in (fold(5 * MS, early=True), GridFold(spec(early=True), Grid(6 * MS, 2 * MS))):
        whole = batch(made, rows)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(panes, "MOST_PAIRS", most)
            assert batch(made, rows).equals(whole)


@proves("P8")
def test_many_rows_of_one_key_in_one_window_take_memory_for_a_slice_of_its_windows() -> None:
    """Each of 4,000 windows has about 1,000 rows: all pairs at once would be 32 MB for every number kept of each."""
    rows = [Row("a", (10_000 + time) * MS, 1) for time in range(2000)]
    sliding = fold(2000 * MS, aggregates={"n": agg.count()})
    tracemalloc.start()
    try:
        assert len(batch(sliding, rows)) == 3999
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()
