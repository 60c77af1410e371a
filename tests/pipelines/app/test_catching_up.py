"""When a rebuild has caught up, how far it is, and who else is there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.client.metadata import TopicPartition
from tidelog.control.health import SILENT_MS
from tidelog.control.marks import Mark, Sources
from tidelog.control.status import Report
from tidelog.pipelines.catching_up import (
    CLOSE_BATCHES,
    RECENT_MS,
    Pace,
    Round,
    aim_of,
    appliers_heard,
    heard_run,
    is_applied,
    is_close,
    is_reached,
    is_run,
    is_shown,
    report_of,
)
from tidelog.views.waiting import After

A, B, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("clicks", 0)


def mark(offsets: dict[TopicPartition, int], batch: int = 0, **positions: str) -> Mark:
    return Mark("revenue.v2", "q", batch, Sources(offsets, positions), {}, 0, 2)


@proves("eo.14", "E3")
def test_the_new_one_has_caught_up_when_it_has_read_what_the_old_one_had() -> None:
    aim = aim_of(mark({A: 10, B: 5}), {A: 8, B: 7}, ["orders"], {A: 12, B: 9})
    assert aim == After({A: 10, B: 7}), "what the old one had read, and where inputs ended"
    assert not is_reached(aim, None)
    assert not is_reached(aim, mark({A: 10, B: 6}))
    assert is_reached(aim, mark({A: 11, B: 7}))


@proves("eo.14")
def test_what_the_new_code_does_not_read_is_not_waited_for() -> None:
    old = mark({A: 10, OTHER: 99}, shop="0/1A2B")
    assert aim_of(old, {A: 0}, ["orders"], {A: 10}) == After({A: 10})
    with_position = aim_of(old, {A: 0}, ["orders", "shop"], {A: 10})
    assert not is_reached(with_position, mark({A: 10}, shop="0/1A00"))
    assert is_reached(with_position, mark({A: 10}, shop="0/2000"))


@proves("eo.14", "E3")
def test_what_the_old_one_had_read_of_a_topic_that_was_made_anew_is_not_waited_for() -> None:
    """Nobody will ever read it: a rebuild would wait for good."""
    aim = aim_of(mark({A: 1000, B: 1000}), {A: 3}, ["orders"], {A: 5})
    assert aim == After({A: 5}), "the new topic is shorter, and has one partition"
    assert is_reached(aim, mark({A: 5}))
    added = aim_of(mark({A: 10, B: 4}), {A: 10}, ["orders"], {A: 10, B: 6})
    assert added == After({A: 10, B: 4}), "a partition that was added since is"


@proves("eo.14")
def test_inputs_without_a_record_are_read_at_once_and_an_old_one_without_a_mark_is_nothing_to_wait_for() -> None:
    nothing = {A: 0, B: 0}
    assert is_reached(aim_of(None, nothing, ["orders"], nothing), None)
    assert not is_reached(aim_of(None, {A: 1}, ["orders"], {A: 1}), None)


@proves("eo.14")
def test_a_round_that_took_many_micro_batches_is_followed_by_another() -> None:
    begun = Round(After({A: 1}), 5)
    assert is_close(begun, mark({A: 1}, batch=5 + CLOSE_BATCHES))
    assert not is_close(begun, mark({A: 1}, batch=6 + CLOSE_BATCHES))


@proves("E3")
@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 300))
def test_progress_counts_records_between_the_start_and_the_end(start: int, length: int, read: int) -> None:
    done = Pace({A: start}).note(mark({A: read}), {A: start + length}, 1.0)
    assert (done.of, done.records) == (length, max(0, min(read - start, length)))
    assert done.rate is None, "of one look there is no rate"


@proves("E3")
def test_the_rate_is_that_of_the_last_half_minute_and_tells_the_time_that_is_left() -> None:
    pace = Pace({})
    pace.note(None, {A: 1000}, 0.0)
    done = pace.note(mark({A: 200}), {A: 1000}, 10.0)
    assert (done.rate, done.left_s) == (20.0, 40.0)
    assert str(done) == "200 of 1,000 records (20 %), 20 a second, about 40 s left"
    assert pace.note(mark({A: 200}), {A: 1000}, 100.0).rate is None, "it stands still"


NOW, HOUR_MS = 1_000_000_000, 3_600_000


@proves("E3")
@pytest.mark.parametrize(
    ("figures", "applied"),
    [
        ({"at_ms": NOW - 1}, True),
        ({"at_ms": NOW - SILENT_MS}, False),
        ({"at_ms": NOW + 1000}, True),  # clocks differ
        ({"at_ms": NOW + SILENT_MS}, True),  # by as much as they like: where it is alive, two would write
        ({"at_ms": NOW - 1, "ended": True}, False),
    ],
)
def test_an_applier_is_there_if_it_has_told_so_lately(figures: dict[str, Any], applied: bool) -> None:
    reports = [Report("applier", "revenue.sqlite-shop", figures)]
    assert is_applied(reports, "revenue", "sqlite-shop", NOW) is applied
    assert not is_applied(reports, "revenue", "postgres-shop", NOW)
    shared = [Report("applier", "revenue.sqlite-shop.1f", {**figures, "group": "tidelog.revenue.sqlite-shop"})]
    assert is_applied(shared, "revenue", "sqlite-shop", NOW) is applied, "one of several is known by their group"
    heard = [Report("applier", "revenue.sqlite-shop", {"view": "revenue", **figures})]
    assert bool(appliers_heard(heard, "revenue", NOW)) is applied


@proves("E3")
def test_a_run_is_there_if_it_has_told_so_lately_and_has_not_stopped() -> None:
    running = Report("app", "shop", {"at_ms": NOW, "state": "running"})
    stopped = Report("app", "shop", {"at_ms": NOW, "state": "stopped"})
    assert is_run([running], "shop", NOW) and not is_run([stopped], "shop", NOW)
    assert report_of([running], "query", "shop", NOW) is None
    assert is_run([running], "shop", NOW - HOUR_MS), "its clock may be ahead: who takes it for gone may write beside it"
    assert not is_run([running], "shop", NOW + SILENT_MS)
    assert report_of([running], "app", "shop", None) == running.figures, "however old"


@proves("P3")
def test_another_run_of_the_same_outputs_is_heard_while_it_tells_of_itself() -> None:
    told = {"state": "running", "pid": 7, "parts": {"query shop.revenue": "running", "applier shop.revenue": "running"}}

    def heard(age_ms: int, *outputs: str, **more: Any) -> Any:
        return heard_run([Report("app", "shop", {"at_ms": NOW - age_ms, **told, **more})], "shop", outputs, NOW)

    assert heard(2500, "big", "revenue") == (7, 2) and heard(-500, "revenue") == (7, 0), "clocks differ"
    assert heard(-HOUR_MS, "revenue") == (7, -3600), "by as much as they like"
    assert heard(RECENT_MS, "revenue") and not heard(RECENT_MS + 1, "revenue"), "a killed one is silent"
    assert not heard(0, "revenue", state="stopped")
    assert not heard(0, "big"), "a run of other outputs, by --only"
    assert heard_run([], "shop", ["revenue"], NOW) is None
    silent = [Report("app", "shop", {"at_ms": NOW - SILENT_MS + 1, **told})]
    assert heard_run(silent, "shop", ["revenue"], NOW, within_ms=SILENT_MS), "for who must not be wrong about it"
    assert heard_run(silent, "shop", ["revenue"], NOW + 1, within_ms=SILENT_MS) is None


@proves("E3", "eo.24")
def test_a_store_shows_a_generation_when_its_applier_has_told_so() -> None:
    told = [{"number": 1, "shown": True}, {"number": 2, "shown": False}]
    reports = [Report("applier", "revenue.sqlite-shop", {"at_ms": 0, "generations": told})]
    assert is_shown(reports, "revenue", "sqlite-shop", 1) and not is_shown(reports, "revenue", "sqlite-shop", 2)
    told[1]["shown"] = True
    assert is_shown(reports, "revenue", "sqlite-shop", 2) and not is_shown(reports, "revenue", "other", 2)
