"""Early results that are held back: against an oracle that holds back what the oracle of the windows says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.windows.driving import Batch, Oracle, batches, check_accounts, check_order, place_of
from pipelines.operators.windows.mechanism import Mechanism, Row, Told, added_up, batch, late_of, spec, told_of
from pipelines.operators.windows.oracle import MS, GridOracle, Rules, SessionOracle, SlidingOracle
from pipelines.operators.windows.test_always import seeded
from proving import proves
from tidelog.pipelines.operators.state.fold import Clock, Fold
from tidelog.pipelines.operators.windows.always_fold import AlwaysFold
from tidelog.pipelines.operators.windows.grid import Grid
from tidelog.pipelines.operators.windows.grid_fold import GridFold
from tidelog.pipelines.operators.windows.session_fold import SessionFold
from tidelog.pipelines.operators.windows.sliding_fold import SlidingFold
from tidelog.pipelines.operators.windows.spec import Spec
from tidelog.pipelines.operators.windows.throttled import Throttled

FIRST, LAST = 1, 40
Place = tuple[str | None, int, int]


@dataclass
class Holding:
    """What was put out, what holds, and by when what has changed is to be told. `last`: from a window's end."""

    interval: int
    together: bool
    last: int
    shown: dict[Place, Any] = field(default_factory=dict)
    now: dict[Place, Any] = field(default_factory=dict)
    due: dict[Place, int] = field(default_factory=dict)

    def run(self, told: Sequence[Told], watermark: int | None) -> list[Told]:
        following = 0 if watermark is None else (watermark // self.interval + 1) * self.interval
        for each in told:
            place = (each.key, each.start, each.end)
            self.due.setdefault(place, following)
            if each.op in ("-U", "-D"):
                del self.now[place]
            else:
                self.now[place] = each.values
        if watermark is None:
            return []
        over = {place for place in self.due if place[2] + self.last < watermark * MS}
        ready = {place for place, due in self.due.items() if due <= watermark}
        ready |= over & (self.shown.keys() | self.now.keys())
        if self.together:
            keys = {place[0] for place in ready}
            ready = {place for place in self.due if place[0] in keys}
        return [each for place in ready for each in self._tell(place)]

    def _tell(self, place: Place) -> list[Told]:
        del self.due[place]
        gone, come = place in self.shown, place in self.now
        found = [Told("-U" if come else "-D", *place, self.shown.pop(place))] if gone else []
        if come:
            self.shown[place] = self.now[place]
            found.append(Told("+U" if gone else "+I", *place, self.now[place]))
        return found


Made = tuple[Fold, Oracle, Holding]


def on_a_grid(size: int, rules: Rules, told: Spec, interval: int) -> Made:
    grid = Grid(2 * size * MS, size * MS)
    return Throttled(GridFold(told, grid), told, interval), GridOracle(*grid, rules), Holding(interval, False, -1)


def as_they_slide(size: int, rules: Rules, told: Spec, interval: int) -> Made:
    fold = SlidingFold(told, size * MS)
    return Throttled(fold, told, interval), SlidingOracle(size, rules), Holding(interval, False, 0)


def in_sessions(size: int, rules: Rules, told: Spec, interval: int) -> Made:
    fold = SessionFold(told, size * MS)
    return Throttled(fold, told, interval, together=True), SessionOracle(size * MS, rules), Holding(interval, True, -1)


@proves("P8", "P7")
@pytest.mark.parametrize(
    "make", [on_a_grid, *(pytest.param(one, marks=pytest.mark.full) for one in (as_they_slide, in_sessions))]
)
@given(
    size=st.integers(1, 8),
    allowed=st.none() | st.integers(1, 8),
    diverts=st.booleans(),
    interval=st.integers(1, 12),
    pages=st.integers(1, 3),
    taken=batches(FIRST, LAST),
)
def test_what_is_put_out_is_what_the_results_of_an_interval_come_to(
    make: Callable[..., Made],
    size: int,
    allowed: int | None,
    diverts: bool,
    interval: int,
    pages: int,
    taken: list[Batch],
) -> None:
    rules = Rules(True, None if allowed is None else allowed * MS)
    fold, oracle, holding = make(size, rules, spec(**rules._asdict(), diverts=diverts), interval)
    mechanism, watermark = Mechanism(fold, pages), None
    everything: list[Told] = []
    for rows, step in [*taken, ([], 10_000)]:
        if step >= 0:
            watermark = (FIRST if watermark is None else watermark) + step
        output = mechanism.run(rows, watermark)
        told, late = oracle.run(rows, watermark)
        assert sorted(told_of(output), key=repr) == sorted(holding.run(told, watermark), key=repr)
        assert sorted(late_of(output), key=repr) == (sorted(late, key=repr) if diverts else [])
        check_accounts(mechanism, oracle, diverts)
        check_order(output)
        everything += sorted(told_of(output), key=place_of)
    assert added_up(everything) == holding.now
    assert all(len(state) == 0 for state in mechanism.state)


@proves("P8")
def test_an_open_window_is_told_once_an_interval_and_at_its_end_at_once() -> None:
    grid, told = Grid(100 * MS, 100 * MS), spec(early=True)
    mechanism = Mechanism(Throttled(GridFold(told, grid), told, 10), 1)

    def counts(at: int, watermark: int | None) -> list[tuple[str, int]]:
        rows = [Row("a", at * MS, 1)] if at else []
        return [(each.op, each.values[0]) for each in told_of(mechanism.run(rows, watermark))]

    assert counts(1, None) == []
    assert counts(20, 5) == [("+I", 2)], "with the first watermark"
    assert counts(21, 6) == []
    assert counts(22, 9) == []
    assert counts(0, 10) == [("-U", 2), ("+U", 4)]
    assert counts(0, 35) == [], "nothing has changed"
    assert counts(50, 36) == []
    assert counts(60, 100) == [("-U", 4), ("+U", 5)], "and the row at 60 was late"
    assert counts(0, 200) == []


@proves("P8", "B1")
def test_in_a_batch_nothing_is_held_back() -> None:
    told, grid = spec(early=True), Grid(10 * MS, 5 * MS)
    rows = [Row(key, at * MS, at) for at in range(30) for key in ("a", "b", None)]
    assert batch(Throttled(GridFold(told, grid), told, 10), rows).equals(batch(GridFold(told, grid), rows))


@proves("P8")
def test_windows_of_declared_keys_are_held_back_too() -> None:
    """`z` never has a row: its key is known by seeds, and then by what is kept of it."""
    told, grid = spec(early=True), Grid(100 * MS, 50 * MS)
    folds: list[Fold] = [Throttled(AlwaysFold(told, grid), told, 10), AlwaysFold(told, grid)]
    states, said = [fold.state_schema.empty_table() for fold in folds], [list[Told](), list[Told]()]
    for at, watermark in ((1, None), (20, 5), (30, 7), (0, 12), (60, 30), (0, 1000)):
        for place, fold in enumerate(folds):
            done = fold.step(states[place], seeded([Row("a", at * MS, 1)] if at else []), Clock(watermark, 0))
            states[place] = done.state
            said[place] += told_of(done.output)
    held, at_once = (added_up(each) for each in said)
    assert held == at_once
    assert {key for key, _, _ in held} == {"a", "b", "z"}
    assert len(said[0]) < len(said[1])


@proves("P8")
def test_a_window_that_may_be_corrected_is_told_at_its_end_too_although_nothing_comes() -> None:
    """By the watermark alone: the window itself has nothing to do before it takes no more rows."""
    told = spec(early=True, allowed=100 * MS)
    for fold, end in ((GridFold(told, Grid(15 * MS, 15 * MS)), 15), (SlidingFold(told, 10 * MS), 13)):
        mechanism = Mechanism(Throttled(fold, told, 1000), 1)
        assert told_of(mechanism.run([Row("a", 12 * MS, 1)], 2)) == []
        assert told_of(mechanism.run([], end - 1)) == []
        assert [each.op for each in told_of(mechanism.run([], end))] == ["+I"], fold.name


@proves("P8")
def test_a_session_that_grows_before_its_end_waits_for_its_interval() -> None:
    told = spec(early=True, allowed=100 * MS)
    mechanism = Mechanism(Throttled(SessionFold(told, 10 * MS), told, 40, together=True), 1)
    assert told_of(mechanism.run([Row("a", 5 * MS, 1)], 1)) == []
    assert told_of(mechanism.run([Row("a", 14 * MS, 1)], 12)) == []
    assert told_of(mechanism.run([], 15)) == [], "the session until 15 is no more"
    assert [(each.end, each.values[0]) for each in told_of(mechanism.run([], 24))] == [(24 * MS, 2)]
