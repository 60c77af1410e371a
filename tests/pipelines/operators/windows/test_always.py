"""Windows for every hop, also without a row: against an oracle, and what a daily report is to say on a silent day."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.windows.driving import Batch, batches, check_order
from pipelines.operators.windows.mechanism import Row, Told, added_up, hash_of, spec, table_of, told_of
from pipelines.operators.windows.oracle import MS, GridOracle, Rules, Window
from proving import proves
from tidelog.errors import UsageError
from tidelog.pipelines.operators.state.fold import DUE, END_OF_TIME, HASH, Clock
from tidelog.pipelines.operators.windows.always_fold import AlwaysFold
from tidelog.pipelines.operators.windows.anchors import SEED, seeding
from tidelog.pipelines.operators.windows.grid import Grid

DECLARED = ["a", "b", "z"]  # z never has a row of its own
GRIDS = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 12)).map(
    lambda drawn: Grid(max(drawn[:2]) * MS, min(drawn[:2]) * MS, drawn[2] * MS)
)
RULES = st.builds(Rules, st.booleans(), st.none() | st.integers(1, 8).map(lambda ms: ms * MS))
FIRST, LAST = -10, 15


def seeded(rows: Sequence[Row]) -> pa.Table:
    """What the fold is given: the rows, and the seeds that are made of them."""
    table = table_of(rows).drop_columns([HASH])
    declared = pa.table({"key": pa.array(DECLARED)})
    made = seeding("at", declared)(table.to_batches())
    found = pa.Table.from_batches(made, table.schema.append(pa.field(SEED, pa.bool_())))
    return found.append_column(HASH, pa.array([hash_of(key) for key in found["key"].to_pylist()], pa.int64()))


@dataclass
class AlwaysOracle(GridOracle):
    """Every window of a declared key is there from the one with the earliest row on that was taken in time."""

    earliest: int | None = None
    closed: int = -(2**62)  # what was over when the earliest row came
    known: set[int] = field(default_factory=set)

    def run_always(self, rows: Sequence[Row], watermark: int | None) -> list[Told]:
        reached = -(2**62) if watermark is None else watermark * MS
        over = reached - (self.rules.allowed or 0)
        told = list(self._tell_ended(reached, at_most=over))
        for row in rows:
            list(self._take(row, reached))
        times = [row.at for row in rows if row.at is not None]
        self._reach_back(times, over)
        told += self._tell_ended(reached, at_most=reached)
        told += [each for window in self._sorted() for each in self._tell(window, reached)]
        return told

    def _reach_back(self, times: list[int], over: int) -> None:
        """An earlier row than any makes the windows before known, but for those that are over."""
        if not times:
            return
        begin = min(times)
        if self.earliest is None or begin < self.earliest:
            self.closed = over
            self.earliest = begin

    def _tell_ended(self, reached: int, at_most: int) -> Iterator[Told]:
        if self.earliest is None:
            return
        start = min(self.starts(self.earliest))
        while start + self.size <= at_most:
            if start not in self.known and start + self.size > self.closed:
                for key in DECLARED:
                    self.windows.setdefault((key, start), Window(key, start, start + self.size))
                self.known.add(start)
            start += self.every
        for window in self._sorted():
            if window.end <= at_most:
                yield from self._tell(window, reached)


@proves("P8")
@given(grid=GRIDS, rules=RULES, taken=batches(FIRST, LAST))
def test_every_hop_of_a_declared_key_is_put_out_after_every_micro_batch(
    grid: Grid, rules: Rules, taken: list[Batch]
) -> None:
    fold = AlwaysFold(spec(**rules._asdict()), grid)
    oracle = AlwaysOracle(*grid, rules)
    state, watermark = fold.state_schema.empty_table(), None
    everything: list[Told] = []
    for rows, step in taken:
        if step >= 0:
            watermark = (FIRST if watermark is None else watermark) + step
        done = fold.step(state, seeded(rows), Clock(watermark, 0))
        expected = oracle.run_always(rows, watermark)
        assert sorted(told_of(done.output), key=repr) == sorted(expected, key=repr)
        assert all(due > (-(2**62) if watermark is None else watermark) for due in done.state[DUE].to_pylist())
        check_order(done.output)
        state = done.state
        everything += told_of(done.output)
    added_up(everything)


@proves("P8")
def test_a_daily_report_over_seven_days_comes_on_days_without_a_row_too() -> None:
    day = 86_400_000 * MS
    fold = AlwaysFold(spec(), Grid(7 * day, day))
    state = fold.step(fold.state_schema.empty_table(), seeded([Row("a", 10 * day, 5)]), Clock(None, 0)).state
    reports = []
    for today in range(11, 20):
        done = fold.step(state, seeded([]), Clock(today * day // MS, 0))
        state = done.state
        reports.append([(each.key, each.values[0]) for each in sorted(told_of(done.output), key=repr)])
    assert reports == [[("a", 1), ("b", 0), ("z", 0)]] * 7 + [[("a", 0), ("b", 0), ("z", 0)]] * 2


@proves("P7", "P8")
@pytest.mark.parametrize(("watermark", "windows"), [(40, []), (39, [10])])
def test_an_earlier_row_opens_the_windows_before_unless_they_are_over(watermark: int, windows: list[int]) -> None:
    """Windows are told once more until 20 ms behind their end; what begins at 10 ends at 20."""
    fold = AlwaysFold(spec(allowed=20 * MS), Grid(10 * MS, 10 * MS))
    done = fold.step(fold.state_schema.empty_table(), seeded([Row("a", 25 * MS, 1)]), Clock(35, 0))
    assert sorted((each.key, each.start // MS) for each in told_of(done.output)) == [(key, 20) for key in DECLARED]
    done = fold.step(done.state, seeded([Row("a", 15 * MS, 1)]), Clock(watermark, 0))
    ended = [30] if watermark == 40 else []
    told = sorted((each.op, each.key, each.start // MS) for each in told_of(done.output))
    assert told == [("+I", key, start) for key in DECLARED for start in windows + ended]


@proves("P8")
def test_a_batch_has_every_hop_from_the_first_row_to_the_last() -> None:
    fold = AlwaysFold(spec(), Grid(10 * MS, 10 * MS))
    rows = [Row("a", 5 * MS, 1), Row("b", 35 * MS, 1)]
    output = fold.step(fold.state_schema.empty_table(), seeded(rows), Clock(END_OF_TIME, 0)).output
    told = sorted((each.key or "", each.start // MS, each.values[0]) for each in told_of(output))
    assert told == [
        *(("a", start, int(start == 0)) for start in (0, 10, 20, 30)),
        *(("b", start, int(start == 30)) for start in (0, 10, 20, 30)),
        *(("z", start, 0) for start in (0, 10, 20, 30)),
    ]


@proves("P8")
@pytest.mark.parametrize("rows", [[], [Row("c", None, 1)]])
def test_before_the_first_time_of_all_there_is_nothing_to_say(rows: list[Row]) -> None:
    fold = AlwaysFold(spec(), Grid(10 * MS, 10 * MS))
    done = fold.step(fold.state_schema.empty_table(), seeded(rows), Clock(100, 0))
    assert done.output.num_rows == 0
    assert done.state.num_rows == 0


@proves("P8")
@pytest.mark.parametrize("watermark", [10**12, END_OF_TIME])
def test_hops_without_end_are_refused_and_not_made(watermark: int) -> None:
    fold = AlwaysFold(spec(), Grid(10 * MS, 10 * MS))
    rows = seeded([Row("a", 0, 1), Row("a", 10**12, 1)])
    state = fold.step(fold.state_schema.empty_table(), rows, Clock(None, 0)).state
    with pytest.raises(UsageError, match="more than 1000000: event time has jumped"):
        fold.step(state, seeded([]), Clock(watermark, 0))
