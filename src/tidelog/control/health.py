"""How a part is, by its newest report: the one rule that commands, HTTP, waits and rebuilds go by. Pure.

    state       what it means                                                                    is a fault
    starting    it is about to be started                                                        no
    running     it works                                                                         no
    waiting     it waits for others, and nothing is wrong                                        no
    paused      it was told to pause                                                             no
    retrying    it had a fault that may pass, and tries again by itself                          yes
    failed      it had a fault that stays until somebody changes something                       yes
    stopped     it was told to stop, or its run has ended                                        no
    gone        it has told nothing for SILENT_MS, and has not said that it would rest: killed   yes

Rules:
- A part says its state itself. An applier says one only when it has ended; until then its `error` says that it retries.
- Reports of older versions have `waiting` for what is retrying now: with an `error` it is that.
- A run tells that its queries are starting before Spark is, and nothing until Spark has started: STARTS_WITHIN_MS. Who
  would work in its stead does not wait for so long.
- A part that is paused, failed or stopped has said so, and may be silent. A broker reports only news.
- A report of a time to come was written before the clock was set back, or by another clock, and nobody knows how old it
  is. Who shows health takes it to be as old as it is ahead. Who would work in the part's stead is `careful`, and takes
  it for one of now: that a dead part is waited for costs time, that a live one is not may cost rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tidelog.control.status import Report

STARTING, RUNNING, WAITING, RETRYING = AT_WORK = ("starting", "running", "waiting", "retrying")
PAUSED, FAILED, STOPPED = AT_REST = ("paused", "failed", "stopped")
GONE = "gone"
STATES = (*AT_WORK, *AT_REST, GONE)
FAULTS = (RETRYING, FAILED, GONE)
BROKER = "broker"

AGAIN_S = 10.0  # after which a part that has nothing new to tell says that it is there
SILENT_MS = 3 * int(AGAIN_S * 1000)
STARTS_WITHIN_MS = 180_000  # Spark may take a minute on a busy machine
LONG_AGO_MS = 24 * 3_600_000
FAILED_LONG_AGO_MS = 7 * LONG_AGO_MS
UNITS = ((86_400, "days"), (3600, "hours"), (60, "minutes"))


class Health(NamedTuple):
    """`said` goes on from the part's name: "has failed: no such column". `reason` is its last fault, also of one that
    was stopped since.
    """

    state: str
    said: str
    reason: str | None
    silent: bool

    @property
    def runs(self) -> bool:
        return self.state == RUNNING

    @property
    def fault(self) -> str | None:
        """What is wrong; None where nothing is."""
        return self.said if self.state in FAULTS else None


def health_of(report: Report, now_ms: float, *, careful: bool = False) -> Health:
    figures, reason = report.figures, reason_of(report.figures)
    age_ms = age_of(figures, now_ms)
    state = told_state(figures)
    limit_ms = STARTS_WITHIN_MS if state == STARTING and not careful else SILENT_MS
    silent = report.kind != BROKER and (age_ms if careful else abs(age_ms)) >= limit_ms
    if silent and state not in AT_REST:
        return Health(GONE, said_silence(figures, now_ms), reason, silent)
    said = {RETRYING: "retries after a fault", FAILED: "has failed"}.get(state, f"is {state}")
    because = f": {reason}" if reason and state in (RETRYING, FAILED) else ""
    return Health(state, said + because, reason, silent)


def told_state(figures: Mapping[str, Any]) -> str:
    """As the part said it, however long ago."""
    state = figures.get("state") or (STOPPED if figures.get("ended") else WAITING if figures.get("error") else RUNNING)
    return RETRYING if state == WAITING and figures.get("error") else str(state)


def is_long_ago(report: Report, now_ms: float) -> bool:
    """Of a part that has ended, or was last heard of, so long ago that only who asks for it wants to see it."""
    state = health_of(report, now_ms).state
    limit_ms = {GONE: LONG_AGO_MS, STOPPED: LONG_AGO_MS, FAILED: FAILED_LONG_AGO_MS}.get(state)
    return limit_ms is not None and age_of(report.figures, now_ms) > limit_ms


def reason_of(figures: Mapping[str, Any]) -> str | None:
    """The last fault, with the line of the user's file."""
    error = figures.get("error")
    if not isinstance(error, dict):
        return str(error) if error else None
    where = f" ({error['file']}:{error['line']})" if error.get("line") else ""
    return f"{error.get('message')}{where}"


def age_of(figures: Mapping[str, Any], now_ms: float) -> float:
    """Milliseconds since a report; less than 0 of one of a time to come."""
    at_ms = figures.get("at_ms")
    return now_ms - (at_ms if isinstance(at_ms, int | float) else 0)


def said_silence(figures: Mapping[str, Any], now_ms: float) -> str:
    """Of a part that has been silent for long."""
    age_ms = age_of(figures, now_ms)
    seconds = abs(age_ms) / 1000
    size, unit = next(((size, unit) for size, unit in UNITS if seconds >= 3 * size), (1, "s"))
    span = f"{seconds / size:.0f} {unit}"
    since = f"for {span}" if age_ms >= 0 else f"since a time that is {span} ahead of the clock here"
    return f"has not reported {since}"
