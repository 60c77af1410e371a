"""When a part is started again, and when it is given up: decisions without a clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.control.health import FAILED, PAUSED, RETRYING, RUNNING, STARTING, STOPPED
from tidelog.errors import DataLoss, Disconnected, LostCheckpoint, UsageError
from tidelog.parts.part import Fault
from tidelog.parts.supervision import (
    BACK_OFF_MAX_S,
    STEADY_S,
    Watch,
    back_off_s,
    commanded,
    failed,
    fault_of,
    settled,
    should_start,
    started,
    stopped,
    worked,
)

MAY_PASS = Fault("broker is away", final=False)
FINAL = Fault("no such column", final=True)


@proves("P3")
def test_a_part_waits_twice_as_long_after_each_fault_and_begins_anew_once_steady() -> None:
    watch, now, waits = Watch(), 0.0, []
    for _ in range(10):
        assert should_start(watch, now)
        watch = failed(started(watch, now), MAY_PASS, now)
        assert not should_start(watch, now)
        waits.append(watch.not_before - now)
        now = watch.not_before
    assert waits[:4] == [0.5, 1.0, 2.0, 4.0] and waits[-1] == BACK_OFF_MAX_S
    watch = failed(started(watch, now), MAY_PASS, now + STEADY_S)
    assert (watch.failures, watch.not_before - now - STEADY_S, watch.restarts) == (1, 0.5, 11)


@proves("P3")
def test_a_part_that_was_started_again_is_told_as_retrying_until_it_has_worked() -> None:
    assert started(Watch(), 0.0).told == RUNNING, "it has had no fault"
    again = started(failed(started(Watch(), 0.0), MAY_PASS, 1.0), 2.0)
    assert (again.state, again.told) == (RUNNING, RETRYING)
    assert worked(again).told == RUNNING
    assert started(commanded(failed(again, FINAL, 3.0), "resume", 4.0), 4.0).told == RUNNING, "somebody has mended it"


@proves("P3")
def test_a_users_error_is_final_until_somebody_resumes() -> None:
    watch = failed(started(Watch(), 0.0), FINAL, 1.0)
    assert (watch.state, should_start(watch, 1e9)) == (FAILED, False)
    assert commanded(watch, "pause", 2.0) == watch
    assert should_start(commanded(watch, "resume", 2.0), 2.0)


@proves("P3")
def test_a_fault_is_forgotten_once_a_part_has_run_well() -> None:
    watch = started(failed(started(Watch(), 0.0), MAY_PASS, 1.0), 2.0)
    assert settled(watch, 3.0).fault == MAY_PASS
    assert settled(watch, 2.0 + STEADY_S).fault is None


@proves("P3")
def test_a_fault_that_somebody_has_mended_is_not_the_reason_of_a_later_stop() -> None:
    broken = failed(started(Watch(), 0.0), FINAL, 1.0)
    assert commanded(broken, "stop", 2.0).fault == FINAL, "nobody has mended it"
    mended = started(commanded(broken, "resume", 2.0), 2.0)
    assert mended.fault == FINAL and stopped(mended).fault is None
    assert stopped(commanded(mended, "pause", 3.0)).fault is None
    retrying = started(failed(started(Watch(), 0.0), MAY_PASS, 1.0), 2.0)
    assert stopped(retrying).fault == MAY_PASS, "it has not worked since"
    assert stopped(worked(retrying)).fault is None


@proves("P3")
@pytest.mark.parametrize(
    ("state", "command", "then"),
    [
        (RUNNING, "pause", PAUSED),
        (STARTING, "pause", PAUSED),
        (PAUSED, "resume", STARTING),
        (RUNNING, "resume", RUNNING),
        (RUNNING, "stop", STOPPED),
        (STOPPED, "pause", STOPPED),
        (STOPPED, "resume", STARTING),
        (RUNNING, "dance", RUNNING),
    ],
)
def test_commands(state: str, command: str, then: str) -> None:
    assert commanded(Watch(state), command, 1.0).state == then


@proves("P3")
@given(st.integers(1, 10_000))
def test_the_wait_is_never_longer_than_its_limit(failures: int) -> None:
    assert 0 < back_off_s(min(failures, 1000)) <= BACK_OFF_MAX_S


@proves("P3")
@pytest.mark.parametrize(
    ("error", "final"),
    [
        (UsageError("no key"), True),
        (LostCheckpoint("gone"), True),
        (DataLoss("cut"), True),
        (Disconnected("away"), False),
        (OSError("disk full"), False),
    ],
)
def test_a_users_error_is_final_and_all_else_may_pass(error: Exception, final: bool) -> None:
    assert fault_of(error) == Fault(f"{type(error).__name__}: {error}", final)
