"""Tumbling and hopping windows as folds: against an oracle, and at the edges that are easy to get wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.windows.driving import Batch, batches, compare
from pipelines.operators.windows.mechanism import Mechanism, Row, Told, batch, late_of, spec, told_of
from pipelines.operators.windows.oracle import MS, GridOracle, Rules
from proving import proves
from tidelog.pipelines.operators.state.fold import END_OF_TIME
from tidelog.pipelines.operators.windows.grid import Grid
from tidelog.pipelines.operators.windows.grid_fold import GridFold

GRIDS = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 12)).map(
    lambda drawn: Grid(max(drawn[:2]) * MS, min(drawn[:2]) * MS, drawn[2] * MS)
)
RULES = st.builds(Rules, st.booleans(), st.none() | st.integers(1, 8).map(lambda ms: ms * MS))
FIRST, LAST = -15, 25


@proves("P8", "P7")
@given(grid=GRIDS, rules=RULES, diverts=st.booleans(), pages=st.integers(1, 3), taken=batches(FIRST, LAST))
def test_windows_on_a_grid_are_those_of_the_oracle_after_every_micro_batch(
    grid: Grid, rules: Rules, diverts: bool, pages: int, taken: list[Batch]
) -> None:
    fold = GridFold(spec(**rules._asdict(), diverts=diverts), grid)
    mechanism = compare(fold, GridOracle(*grid, rules), taken, FIRST, pages)
    mechanism.run([], 10_000)
    assert all(len(state) == 0 for state in mechanism.state)


SECOND = 1_000 * MS
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE


def at(clock: str) -> int:
    """A time of the first day, as microseconds."""
    hours, minutes, seconds = (float(part) for part in clock.split(":"))
    return round((hours * 3600 + minutes * 60 + seconds) * SECOND)


def counts(told: list[Told]) -> dict[tuple[int, int], int]:
    return {(each.start, each.end): each.values[0] for each in told}


@proves("P8")
def test_a_minute_that_tumbles_has_the_events_from_10_03_00_to_10_03_59() -> None:
    rows = [
        Row("a", at(time), 1) for time in ("10:02:59.999999", "10:03:00", "10:03:30", "10:03:59.999999", "10:04:00")
    ]
    assert counts(told_of(batch(GridFold(spec(), Grid(MINUTE, MINUTE)), rows))) == {
        (at("10:02:00"), at("10:03:00")): 1,
        (at("10:03:00"), at("10:04:00")): 3,
        (at("10:04:00"), at("10:05:00")): 1,
    }


@proves("P8")
def test_five_minutes_every_minute_have_the_events_from_10_03_00_to_10_07_59_then_from_10_04_00_to_10_08_59() -> None:
    rows = [Row("a", at(time), 1) for time in ("10:03:00", "10:07:59.999999", "10:08:59.999999")]
    found = counts(told_of(batch(GridFold(spec(), Grid(5 * MINUTE, MINUTE)), rows)))
    assert found[at("10:03:00"), at("10:08:00")] == 2
    assert found[at("10:04:00"), at("10:09:00")] == 2
    assert found[at("9:59:00"), at("10:04:00")] == 1
    assert (at("9:58:00"), at("10:03:00")) not in found
    assert len(found) == 10


@proves("P8")
@pytest.mark.parametrize(
    ("grid", "time", "starts"),
    [
        (Grid(10, 10), -1, [-10]),
        (Grid(10, 10), -10, [-10]),
        (Grid(10, 10), -11, [-20]),
        (Grid(10, 10, 3), 2, [-7]),
        (Grid(10, 10, 13), 2, [-7]),
        (Grid(10, 4), 0, [-8, -4, 0]),
        (Grid(10, 4), 2, [-4, 0]),
        (Grid(10, 4), -7, [-16, -12, -8]),
        (Grid(10, 7), 6, [0]),
        (Grid(10, 7), 8, [0, 7]),
    ],
)
def test_a_time_lies_in_these_windows_also_before_1970_and_where_the_hop_does_not_divide_the_size(
    grid: Grid, time: int, starts: list[int]
) -> None:
    """With `size % every != 0` a row lies in a different number of windows, depending on its time."""
    whole = Grid(*(each * MS for each in grid))
    told = told_of(batch(GridFold(spec(), whole), [Row("a", time * MS, 1)]))
    assert [each.start // MS for each in told] == starts
    assert all(each.end - each.start == whole.size for each in told)


@proves("P7")
def test_a_window_is_over_when_the_watermark_is_at_its_end_and_not_before() -> None:
    for watermark, expected in ((9, []), (10, [("+I", 1)])):
        mechanism = Mechanism(GridFold(spec(), Grid(10 * MS, 10 * MS)), 1)
        mechanism.run([Row("a", 0, 1)], None)
        assert [(each.op, each.values[0]) for each in told_of(mechanism.run([], watermark))] == expected


@proves("P7")
def test_a_row_behind_the_watermark_whose_window_is_open_is_not_late() -> None:
    mechanism = Mechanism(GridFold(spec(), Grid(10 * MS, 10 * MS)), 1)
    mechanism.run([Row("a", 1 * MS, 1)], 9)
    assert mechanism.counts["dropped"] == 0
    mechanism.run([Row("a", 9 * MS, 1)], 10)
    assert mechanism.counts["dropped"] == 1
    assert mechanism.counts["aggregated"] == 1


@proves("P7", "P8")
def test_a_row_may_be_late_for_one_window_and_not_for_the_next() -> None:
    mechanism = Mechanism(GridFold(spec(diverts=True), Grid(10 * MS, 5 * MS)), 1)
    output = mechanism.run([Row("a", 7 * MS, 1)], 10)
    assert [(late.start, late.end) for late in late_of(output)] == [(0, 10 * MS)]
    assert output["_late"].drop_null().to_pylist()[0]["why"] == "its window was over"
    assert mechanism.counts == {"in": 2, "aggregated": 1, "diverted": 1, "dropped": 0}
    assert counts(told_of(mechanism.run([], 15))) == {(5 * MS, 15 * MS): 1}


@proves("P7", "P8")
def test_a_row_that_is_late_for_a_window_changes_nothing_in_it_although_it_is_put_out_in_the_same_step() -> None:
    """The window has ended but nothing woke its page: the late row is what does."""
    mechanism = Mechanism(GridFold(spec(), Grid(10 * MS, 5 * MS)), 1)
    mechanism.run([Row("a", 6 * MS, 1)], 5)
    told = told_of(mechanism.run([Row("a", 7 * MS, 1)], 10))
    assert counts(told) == {(0, 10 * MS): 1}
    assert counts(told_of(mechanism.run([], 15))) == {(5 * MS, 15 * MS): 2}


@proves("P7")
def test_a_window_is_corrected_until_it_may_not_be_any_more() -> None:
    mechanism = Mechanism(GridFold(spec(allowed=5 * MS), Grid(10 * MS, 10 * MS)), 1)
    mechanism.run([Row("a", 0, 1)], None)
    assert [each.op for each in told_of(mechanism.run([], 10))] == ["+I"]
    corrected = told_of(mechanism.run([Row("a", 1, 10)], 14))
    assert [(each.op, each.values[1]) for each in corrected] == [("-U", 1), ("+U", 11)]
    assert told_of(mechanism.run([Row("a", 2, 100)], 15)) == []
    assert mechanism.counts["dropped"] == 1


@proves("P8")
def test_a_day_is_24_hours_where_clocks_were_put_forward() -> None:
    """31 March 2019 had 23 hours in Berlin: windows know nothing of it."""
    from datetime import UTC, datetime

    night = round(datetime(2019, 3, 31, tzinfo=UTC).timestamp()) * SECOND
    rows = [Row("a", night + hour * 60 * MINUTE, 1) for hour in range(24)]
    assert counts(told_of(batch(GridFold(spec(), Grid(DAY, DAY)), rows))) == {(night, night + DAY): 24}
    shifted = Grid(DAY, DAY, 22 * 60 * MINUTE)  # midnight in Berlin, in summer
    assert set(counts(told_of(batch(GridFold(spec(), shifted), rows))).values()) == {22, 2}


@proves("P8")
def test_a_batch_drops_nothing_and_closes_everything() -> None:
    rows = [Row("a", time * DAY, 1) for time in (0, 400, 3)]
    assert sum(counts(told_of(batch(GridFold(spec(), Grid(DAY, DAY)), rows))).values()) == 3
    assert Mechanism(GridFold(spec(), Grid(DAY, DAY)), 1).run(rows, END_OF_TIME).num_rows == 3


@proves("P8")
def test_times_that_are_far_apart_are_told_apart() -> None:
    """Too far for keys and times to fit into one number: a garbled clock must not mix up keys."""
    rows = [Row(key, time, 1) for time in (-(2**61), 2**61) for key in ("a", "b", "c")]
    told = told_of(batch(GridFold(spec(), Grid(10 * MS, 5 * MS)), rows))
    assert sorted((each.key, each.start > 0, each.values[0]) for each in told) == sorted(
        (key, late, 1) for key in "abc" for late in (False, True) for _ in range(2)
    )
