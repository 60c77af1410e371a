"""Session windows as folds: against an oracle, and at the edges that are easy to get wrong."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.windows.driving import Batch, batches, compare
from pipelines.operators.windows.mechanism import Mechanism, Row, Told, batch, spec, told_of
from pipelines.operators.windows.oracle import MS, Rules, SessionOracle
from proving import proves
from tidelog.pipelines.operators.windows.session_fold import SessionFold

RULES = st.builds(Rules, st.booleans(), st.none() | st.integers(1, 8).map(lambda ms: ms * MS))
FIRST, LAST = -15, 25


@proves("P8", "P7")
@given(gap=st.integers(1, 9), rules=RULES, diverts=st.booleans(), pages=st.integers(1, 3), taken=batches(FIRST, LAST))
def test_session_windows_are_those_of_the_oracle_after_every_micro_batch(
    gap: int, rules: Rules, diverts: bool, pages: int, taken: list[Batch]
) -> None:
    fold = SessionFold(spec(**rules._asdict(), diverts=diverts), gap * MS)
    mechanism = compare(fold, SessionOracle(gap * MS, rules), taken, FIRST, pages)
    mechanism.run([], 10_000)
    assert all(len(state) == 0 for state in mechanism.state)


MINUTE = 60_000 * MS


def fold(gap: int, **more: object) -> SessionFold:
    return SessionFold(spec(**more), gap)


def spans(told: list[Told], unit: int = MS) -> list[tuple[str, int, int, int]]:
    return [(each.op, each.start // unit, each.end // unit, each.values[0]) for each in told]


@proves("P8")
def test_a_session_ends_after_30_minutes_without_an_event() -> None:
    minutes = [0, 10, 40, 71, 80]
    told = told_of(batch(fold(30 * MINUTE), [Row("a", minute * MINUTE, 1) for minute in minutes]))
    assert spans(told, MINUTE) == [("+I", 0, 70, 3), ("+I", 71, 110, 2)]


@proves("P8")
def test_records_exactly_a_gap_apart_are_together() -> None:
    for apart, expected in ((10 * MS, [2]), (10 * MS + 1, [1, 1])):
        told = told_of(batch(fold(10 * MS), [Row("a", 0, 1), Row("a", apart, 1)]))
        assert [each.values[0] for each in told] == expected


@proves("P8")
def test_a_row_that_joins_several_sessions_takes_each_back_before_the_merged_one_is_told() -> None:
    mechanism = Mechanism(fold(10 * MS, early=True), 1)
    told = told_of(mechanism.run([Row("a", time * MS, 1) for time in (0, 20, 40)], None))
    assert spans(told) == [("+I", 0, 10, 1), ("+I", 20, 30, 1), ("+I", 40, 50, 1)]
    told = told_of(mechanism.run([Row("a", 30 * MS, 1), Row("a", 10 * MS, 1)], None))
    assert spans(told) == [("-D", 0, 10, 1), ("-D", 20, 30, 1), ("-D", 40, 50, 1), ("+I", 0, 50, 5)]


@proves("P8")
def test_a_session_that_has_not_grown_is_told_anew() -> None:
    mechanism = Mechanism(fold(10 * MS, early=True), 1)
    mechanism.run([Row("a", 0, 1), Row("a", 8 * MS, 1)], None)
    assert spans(told_of(mechanism.run([Row("a", 4 * MS, 1)], None))) == [("-U", 0, 18, 2), ("+U", 0, 18, 3)]


@proves("P7", "P8")
def test_a_row_that_is_too_old_for_a_session_of_its_own_joins_one_that_is_open() -> None:
    mechanism = Mechanism(fold(10 * MS, diverts=True), 1)
    mechanism.run([Row("a", 10 * MS, 1)], None)
    mechanism.run([Row("a", 5 * MS, 1), Row("b", 5 * MS, 1)], 15)
    assert mechanism.counts == {"in": 3, "aggregated": 2, "diverted": 1, "dropped": 0}
    assert spans(told_of(mechanism.run([], 20))) == [("+I", 5, 20, 2)]


@proves("P7", "P8")
def test_a_session_is_over_when_the_watermark_is_a_gap_behind_its_last_record() -> None:
    for watermark, expected in ((19, []), (20, [("+I", 10, 20, 1)])):
        mechanism = Mechanism(fold(10 * MS), 1)
        mechanism.run([Row("a", 10 * MS, 1)], None)
        assert spans(told_of(mechanism.run([], watermark))) == expected


@proves("P7", "P8")
def test_a_session_that_was_over_and_goes_on_is_taken_back_until_it_is_over_again() -> None:
    mechanism = Mechanism(fold(10 * MS, allowed=20 * MS), 1)
    mechanism.run([Row("a", 0, 1)], None)
    assert spans(told_of(mechanism.run([], 12))) == [("+I", 0, 10, 1)]
    assert spans(told_of(mechanism.run([Row("a", 9 * MS, 1)], 12))) == [("-D", 0, 10, 1)]
    assert spans(told_of(mechanism.run([], 19))) == [("+I", 0, 19, 2)]


@proves("P7", "P8")
def test_late_rows_between_two_sessions_that_are_over_leave_them_as_they_were() -> None:
    """They have ended but nothing woke their page: the late row is what does."""
    mechanism = Mechanism(fold(10 * MS), 1)
    mechanism.run([Row("a", 0, 1), Row("a", 15 * MS, 1)], None)
    told = told_of(mechanism.run([Row("a", 8 * MS, 1)], 30))
    assert spans(told) == [("+I", 0, 10, 1), ("+I", 15, 25, 1)]
    assert mechanism.counts["dropped"] == 1


@proves("P8")
def test_the_time_of_a_session_is_beyond_every_watermark_at_which_it_was_open() -> None:
    """Watermarks are of whole milliseconds: it is the last microsecond of the one in which the session ends."""
    for first, time in ((0, 10_000 - 1), (1, 11_000 - 1), (999, 11_000 - 1), (1000, 11_000 - 1)):
        found = batch(fold(10 * MS), [Row("a", first, 1)])
        assert found["window_time"].cast("int64").to_pylist() == [time]
        assert found["window_end"].cast("int64").to_pylist() == [first + 10_000]
