"""The clock by which producers are forgotten: right in the end, however often the time of day is set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.broker.decision import Instant
from tidelog.clock import DRIFT_MS, STEPS_MAX, SteadyClock

DAY_MS = 86_400_000
HOUR_MS = 3_600_000


class Clock:
    """Of a machine; the steady one looks at it at every move."""

    def __init__(self, wall_ms: int = 0) -> None:
        self.wall_ms, self.monotonic_ms = wall_ms, 0
        self.steady = SteadyClock()
        self.steady.look(wall_ms=wall_ms, monotonic_ms=0)

    @property
    def now(self) -> Instant:
        return Instant(self.wall_ms, self.monotonic_ms)

    def move(self, by_ms: int, *, stepped_ms: int = 0) -> None:
        self.wall_ms, self.monotonic_ms = self.wall_ms + by_ms + stepped_ms, self.monotonic_ms + by_ms
        self.steady.look(wall_ms=self.wall_ms, monotonic_ms=self.monotonic_ms)

    def is_silent(self, stamp_ms: int) -> bool:
        return self.steady.read(DAY_MS) >= stamp_ms + DAY_MS


@proves("T4")
def test_a_producer_is_forgotten_after_its_expiration_although_the_clock_was_set_forward_ever_since() -> None:
    """A laptop that sleeps every night is set forward by hours every morning: each step is believed a day later."""
    clock = Clock()
    for _ in range(30):
        clock.move(20 * HOUR_MS, stepped_ms=4 * HOUR_MS)
    wrote_ms = clock.wall_ms
    clock.move(DAY_MS - 1)
    assert not clock.is_silent(wrote_ms)
    clock.move(1)
    assert clock.is_silent(wrote_ms), "and not as many hours later as it was set forward by"


@proves("T4")
def test_a_broker_that_starts_in_1970_forgets_a_day_after_its_clock_was_set() -> None:
    clock, now_ms = Clock(), 1_763_236_800_000
    clock.move(1000)
    wrote_ms = clock.wall_ms
    clock.move(1000, stepped_ms=now_ms)
    wrote_later_ms = clock.wall_ms
    clock.move(DAY_MS - 1001)
    assert not clock.is_silent(wrote_ms)
    clock.move(1001)
    assert clock.is_silent(wrote_ms) and clock.is_silent(wrote_later_ms)


@proves("T4")
def test_a_clock_that_is_set_back_is_believed_at_once() -> None:
    clock = Clock(wall_ms=10 * DAY_MS)
    clock.move(1000, stepped_ms=-HOUR_MS)
    assert clock.steady.read(DAY_MS) == clock.wall_ms
    clock.move(DRIFT_MS, stepped_ms=DRIFT_MS)
    assert clock.steady.read(DAY_MS) == clock.wall_ms - DRIFT_MS, "less than clocks drift by is no step"


@proves("T4")
@given(st.lists(st.tuples(st.integers(1, DAY_MS), st.integers(-3 * DAY_MS, 3 * DAY_MS), st.booleans()), max_size=30))
def test_nobody_is_forgotten_early_whatever_the_clock_does_and_after_a_day_of_quiet_it_is_right(
    moves: list[tuple[int, int, bool]],
) -> None:
    clock, heard = Clock(), list[Instant]()
    for by_ms, stepped_ms, writes in moves:
        clock.move(by_ms, stepped_ms=stepped_ms)
        assert not any(clock.is_silent(one.wall_ms) for one in heard if clock.monotonic_ms - one.monotonic_ms < DAY_MS)
        if writes:
            heard.append(clock.now)
    clock.move(DAY_MS)
    assert clock.wall_ms - DRIFT_MS <= clock.steady.read(DAY_MS) <= clock.wall_ms


@proves("T4")
def test_a_clock_that_runs_too_fast_takes_no_memory_without_end() -> None:
    clock = Clock()
    for _ in range(3 * STEPS_MAX):
        clock.move(1000, stepped_ms=2000)
    assert len(clock.steady._steps) == STEPS_MAX
