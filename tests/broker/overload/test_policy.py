"""What is decided under overload, by numbers alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.broker.overload.policy import (
    FREE,
    NO_LOSS,
    Credit,
    GroupLag,
    Loss,
    OverloadLimit,
    believe,
    grant,
    judge,
    longest_hold_ms,
    lose,
    times,
    watch,
)
from tidelog.broker.settings.configuring import check_topic
from tidelog.errors import ConfigError

counts = st.integers(0, 10_000)
limits = st.builds(OverloadLimit, *[st.none() | st.integers(1, 1000)] * 3)
lags = st.lists(st.builds(GroupLag, st.sampled_from("abc"), counts, counts, counts), max_size=4)
timeouts = st.integers(-1, 120_000)


@proves("T5")
@given(lags, limits, timeouts)
def test_the_slowest_group_decides_and_a_hold_is_below_what_the_client_waits(
    behind: list[GroupLag], limit: OverloadLimit, timeout_ms: int
) -> None:
    verdict = judge(behind, limit, timeout_ms)
    most = max((times(lag, limit) for lag in behind), default=0.0)
    assert verdict.refused == (most > 2)
    assert (verdict == FREE) == (most <= 1)
    assert 0 <= verdict.hold_ms <= longest_hold_ms(timeout_ms)
    if timeout_ms > 0:
        assert verdict.hold_ms < timeout_ms
    if verdict.slowest is not None:
        assert times(verdict.slowest, limit) == most


@proves("T5")
@given(st.integers(1, 1000), counts, counts, timeouts)
def test_who_is_further_behind_is_never_held_for_less(limit: int, one: int, other: int, timeout_ms: int) -> None:
    near, far = (judge([GroupLag("g", lag)], OverloadLimit(limit), timeout_ms) for lag in sorted((one, other)))
    assert near.hold_ms <= far.hold_ms
    assert near.refused <= far.refused


@proves("T5")
@given(
    st.integers(100, 120_000),
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 5_000)), min_size=1, max_size=60),
)
def test_no_request_waits_for_longer_than_its_time_out(timeout_ms: int, steps: list[tuple[int, int]]) -> None:
    """A client that sends on whatever it is told: however holds and pauses come, in the time of one time-out it is
    held for no more than three quarters of it.
    """
    credit: Credit | None = None
    now_ms, holds = 0, []
    for pause_ms, wanted_ms in steps:
        now_ms += pause_ms
        granted, credit = grant(credit, wanted_ms, timeout_ms, now_ms)
        assert 0 <= granted <= wanted_ms
        holds.append((now_ms, granted))
        now_ms += granted
    for begin, _ in holds:
        ends = [(at, min(at + granted, begin + timeout_ms)) for at, granted in holds if begin <= at]
        assert sum(max(0, end - at) for at, end in ends) <= timeout_ms * 3 / 4


@proves("T5")
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans(), st.integers(0, 50)), max_size=30))
def test_a_group_is_dead_only_after_its_time_without_any_life_while_behind(
    looks: list[tuple[int, bool, bool, int]],
) -> None:
    dead_ms, now_ms, alive_ms, before, last_commits = 100, 0, 0, None, None
    for commits, has_member, behind, passed in looks:
        now_ms += passed
        if last_commits is None or has_member or not behind or commits != last_commits:
            alive_ms = now_ms
        before = watch(before, commits, has_member, behind, now_ms, dead_ms)
        last_commits = commits
        assert before.dead == (now_ms - alive_ms >= dead_ms)


@proves("T5")
@given(st.data())
def test_what_a_group_lost_is_what_went_unread(data: st.DataObject) -> None:
    """Against a set of offsets: the group commits what it has read, in order, and the start moves now and then."""
    start, end, committed, loss = 0, 0, 0, NO_LOSS
    lost: set[int] = set()
    for _ in range(data.draw(st.integers(1, 25))):
        end += data.draw(st.integers(0, 20))
        step = data.draw(st.sampled_from(["read", "read_late", "drop"]))
        if step == "drop":
            to = data.draw(st.integers(start, end))
            loss = lose(loss, committed, start, to)
            lost |= set(range(max(start, committed), to))
            start = to
        elif step == "read" and max(committed, start) < end:  # it goes on at the start, and then commits behind it
            loss = believe(loss, committed)
            committed = data.draw(st.integers(max(committed, start) + 1, end))
            loss = believe(loss, committed)
        elif step == "read_late" and committed < start == loss.to and committed >= loss.first:
            first, committed = loss.first, data.draw(st.integers(committed, start))
            loss = believe(loss, committed)
            lost -= set(range(first, committed))  # it had fetched so far before they went
        assert loss.records == len(lost)


@proves("T5")
def test_a_commit_behind_what_was_lost_takes_nothing_back() -> None:
    loss = lose(NO_LOSS, 10, 0, 50)
    assert loss == Loss(40, 10, 50)
    assert believe(loss, 30) == Loss(20, 30, 50)
    assert believe(loss, 51) == loss


@proves("T5")
@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"policy": "block", "records": "10"}, "names no group that producers are to wait for"),
        ({"policy": "block", "groups": "g"}, "has no limit"),
        ({"policy": "drop"}, "has no limit"),
        ({"policy": "drop", "records": "10", "cleanup.policy": "compact"}, "contradict each other"),
        ({"policy": "drop", "bytes": "10", "cleanup.policy": "compact,delete"}, "contradict each other"),
    ],
)
def test_a_policy_that_could_not_work_is_refused(configs: dict[str, str], message: str) -> None:
    named = {key if "." in key else f"tidelog.overload.{key}": value for key, value in configs.items()}
    with pytest.raises(ConfigError, match=message):
        check_topic(named)
