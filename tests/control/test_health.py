"""The one rule of health, as one table: what a part has told, and how it is by that."""

from __future__ import annotations

from typing import Any

import pytest

from proving import proves
from tidelog.control.health import (
    FAILED_LONG_AGO_MS,
    FAULTS,
    LONG_AGO_MS,
    SILENT_MS,
    STARTS_WITHIN_MS,
    STATES,
    health_of,
    is_long_ago,
    reason_of,
)
from tidelog.control.status import Report

NOW = 1_800_000_000_000
HOUR_MS = 3_600_000
AWAY = {"message": "away", "file": None, "line": None}
COLUMN = {"message": "no column", "file": "a.py", "line": 7}
SILENT = {"at_ms": NOW - SILENT_MS}
AHEAD = {"at_ms": NOW + HOUR_MS}

# kind, what was told, the state, and what is said of it
CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("query", {"state": "starting"}, "starting", "is starting"),
    ("query", {"state": "starting", **SILENT}, "starting", "is starting"),  # Spark takes its time
    ("query", {"state": "starting", "at_ms": NOW - STARTS_WITHIN_MS}, "gone", "has not reported for 3 minutes"),
    ("query", {"state": "running"}, "running", "is running"),
    ("query", {"state": "running", "error": AWAY}, "running", "is running"),  # it had a fault, and works again
    ("query", {"state": "running", "at_ms": NOW - SILENT_MS + 1}, "running", "is running"),
    ("query", {"state": "running", **SILENT}, "gone", "has not reported for 30 s"),
    ("query", {"state": "running", "at_ms": NOW + 1000}, "running", "is running"),  # clocks differ
    ("query", {"state": "running", **AHEAD}, "gone", "since a time that is 60 minutes ahead of the clock here"),
    ("query", {"state": "running", "at_ms": "now"}, "gone", "has not reported for 20833 days"),
    ("query", {"state": "retrying", "error": AWAY}, "retrying", "retries after a fault: away"),
    ("query", {"state": "retrying", "error": AWAY, **SILENT}, "gone", "has not reported for 30 s"),
    ("query", {"state": "waiting", "error": AWAY}, "retrying", "retries after a fault: away"),  # an older version's
    ("query", {"state": "waiting", "error": None}, "waiting", "is waiting"),
    ("query", {"state": "waiting", **SILENT}, "gone", "has not reported for 30 s"),
    ("query", {"state": "paused"}, "paused", "is paused"),
    ("query", {"state": "paused", **SILENT}, "paused", "is paused"),
    ("query", {"state": "failed", "error": COLUMN}, "failed", "has failed: no column (a.py:7)"),
    ("query", {"state": "failed", "error": COLUMN, **SILENT}, "failed", "has failed: no column (a.py:7)"),
    ("query", {"state": "stopped"}, "stopped", "is stopped"),
    ("query", {"state": "stopped", "error": AWAY, **SILENT}, "stopped", "is stopped"),
    ("query", {"state": "dancing"}, "dancing", "is dancing"),  # a newer version's
    ("query", {"state": "dancing", **SILENT}, "gone", "has not reported for 30 s"),
    ("app", {"state": "running", **SILENT}, "gone", "has not reported for 30 s"),
    ("broker", {"at_ms": NOW - HOUR_MS}, "running", "is running"),  # it reports only news
    ("applier", {"error": None}, "running", "is running"),
    ("applier", {"error": "store is away"}, "retrying", "retries after a fault: store is away"),
    ("applier", SILENT, "gone", "has not reported for 30 s"),
    ("applier", {"error": None, "ended": True, **SILENT}, "stopped", "is stopped"),
    ("applier", {"error": "no view", "state": "failed", "ended": True}, "failed", "has failed: no view"),
]


@proves("P3", "F1", "F3", "http")
@pytest.mark.parametrize(("kind", "told", "state", "said"), CASES)
def test_how_a_part_is(kind: str, told: dict[str, Any], state: str, said: str) -> None:
    how = health_of(Report(kind, "x", {"at_ms": NOW, **told}), NOW)
    assert how.state == state and how.said.endswith(said)
    assert how.runs is (state == "running")
    assert how.fault == (how.said if state in FAULTS else None)


@proves("P3", "F1")
def test_every_state_has_a_case_and_what_was_told_to_rest_is_no_fault() -> None:
    assert {state for _, _, state, _ in CASES} == {*STATES, "dancing"}
    assert set(FAULTS) == {"retrying", "failed", "gone"}


@proves("P6", "E3")
def test_who_would_work_in_the_stead_of_a_part_whose_clock_is_ahead_takes_it_for_alive() -> None:
    ahead, silent = (Report("query", "x", {"state": "running", **told}) for told in (AHEAD, SILENT))
    assert health_of(ahead, NOW, careful=True).runs and not health_of(ahead, NOW).runs
    assert health_of(silent, NOW, careful=True).state == "gone"


@proves("P3", "F1")
@pytest.mark.parametrize(
    ("told", "since_ms"),
    [({}, LONG_AGO_MS), ({"state": "stopped"}, LONG_AGO_MS), ({"state": "failed"}, FAILED_LONG_AGO_MS)],
)
def test_a_part_that_ended_is_long_ago_after_a_day_and_a_failed_one_after_a_week(
    told: dict[str, Any], since_ms: int
) -> None:
    found = [is_long_ago(Report("query", "x", {**told, "at_ms": NOW - age}), NOW) for age in (since_ms, since_ms + 1)]
    assert found == [False, True]
    assert not is_long_ago(Report("query", "x", {"state": "paused", "at_ms": 0}), NOW)


@proves("P3")
@pytest.mark.parametrize(
    ("error", "reason"), [(None, None), ("", None), ("full", "full"), (AWAY, "away"), (COLUMN, "no column (a.py:7)")]
)
def test_the_reason_of_a_fault_has_the_line_of_the_users_file(error: object, reason: str | None) -> None:
    assert reason_of({"error": error}) == reason
