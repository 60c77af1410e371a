"""Whether what is built beside a view has caught up with it, how far it is, and who else is there. Pure.

Who is asked about here may write what the asker is about to, so health is looked at carefully (`control/health.py`): a
report of a time to come counts as one of now.

aim       what the old one's last mark had read, of what the new one reads too, and where inputs ended at the start
reached   the new one's last mark has read that
close     it took a few micro-batches at most since the aim was looked at: the two will not come closer to each other

An aim never lies beyond where an input ends: what the old one has read there was of a topic that was deleted since, and
made anew, and nobody will ever read it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.control.health import AGAIN_S, AT_WORK, RUNNING, STOPPED, Health, age_of, health_of, told_state
from tidelog.control.marks import Ends, Mark
from tidelog.parts.part import APP
from tidelog.pipelines.parts import APPLIER, QUERY
from tidelog.views.sharing import group_of
from tidelog.views.waiting import After, has_read

if TYPE_CHECKING:
    from tidelog.control.status import Report

CLOSE_BATCHES = 2
PACE_WINDOW_S = 30.0
RECENT_MS = int(AGAIN_S * 1000) + 2000  # one that is there has told something since


class Round(NamedTuple):
    """What is to be reached, and the new one's last micro-batch when that was looked at."""

    aim: After
    batch: int


def aim_of(old: Mark | None, ends: Ends, topics: Collection[str], now: Ends) -> After:
    """All that the old one has read, of what the new one reads, and where that ended when the rebuild began.

    `now` is where the partitions that there are end, looked at after the old one's mark was.
    """
    read = After() if old is None else After(old.sources.offsets, old.sources.positions).of(topics)
    wanted = {at: max(ends.get(at, 0), read.offsets.get(at, 0)) for at in now}
    return After({at: min(offset, now[at]) for at, offset in wanted.items()}, read.positions)


def is_reached(aim: After, new: Mark | None) -> bool:
    if new is None:
        return not any(aim.offsets.values()) and not aim.positions
    return has_read(new, aim)


def is_close(begun: Round, new: Mark | None) -> bool:
    """Whether a round that is reached took no longer than the old one's next micro-batches might."""
    return new is None or new.batch_id - begun.batch <= CLOSE_BATCHES


def report_of(reports: Iterable[Report], kind: str, name: str, now_ms: int | None) -> Mapping[str, Any] | None:
    """What a part tells of itself; None where it has not told anything for so long that it is not there, unless no time
    is given.
    """
    told = next((one for one in reports if (one.kind, one.name) == (kind, name)), None)
    return told.figures if told is not None and (now_ms is None or not seen(told, now_ms).silent) else None


def is_applied(reports: Iterable[Report], view: str, store: str, now_ms: int) -> bool:
    """Whether somebody applies the view to this store, as far as status tells."""
    return any(seen(one, now_ms).state in AT_WORK for one in reports if _is_applier_of(one, view, store))


def appliers_heard(reports: Iterable[Report], view: str, now_ms: int) -> list[str]:
    """Who applies the view to any store, as far as status tells."""
    told = (one for one in reports if one.kind == APPLIER and one.figures.get("view") == view)
    return [one.name for one in told if seen(one, now_ms).state in AT_WORK]


def seen(report: Report, now_ms: float) -> Health:
    return health_of(report, now_ms, careful=True)


def is_shown(reports: Iterable[Report], view: str, store: str, number: int) -> bool:
    """Whether the store shows this generation, or a later one, as its applier has told: whenever, since no number is
    given twice.
    """
    told = [one.figures for one in reports if _is_applier_of(one, view, store)]
    return any(one["shown"] and one["number"] >= number for figures in told for one in figures.get("generations", ()))


def _is_applier_of(report: Report, view: str, store: str) -> bool:
    """Those that share a view have names of their own, and one group."""
    is_one = report.name == f"{view}.{store}" or report.figures.get("group") == group_of(view, store)
    return report.kind == APPLIER and is_one


def is_run(reports: Iterable[Report], app: str, now_ms: int) -> bool:
    found = report_of(reports, APP, app, now_ms)
    return found is not None and told_state(found) == RUNNING


class Heard(NamedTuple):
    """A run that has told of itself: by which process, where it says so, and how long ago: less than 0 if by a clock
    that is ahead of this one.
    """

    pid: int | None
    seconds: int


def heard_run(
    reports: Iterable[Report], app: str, outputs: Iterable[str], now_ms: int, *, within_ms: int = RECENT_MS
) -> Heard | None:
    """A run that has told a moment ago that it has one of these outputs. It may have been killed since."""
    told = report_of(reports, APP, app, now_ms)
    if told is None or told_state(told) != RUNNING:
        return None
    age, parts = age_of(told, now_ms), told.get("parts") or {}
    if age > within_ms or not any(f"{QUERY} {app}.{name}" in parts for name in outputs):
        return None
    return Heard(told.get("pid"), int(age / 1000))


def other_folder(reports: Iterable[Report], part: str, code: str, folder: str, now_ms: int) -> str | None:
    """Where a run that would go on with the new generation looks for its checkpoint, if that is not in `folder`."""
    told = report_of(reports, QUERY, part, now_ms) or {}
    theirs = str(told.get("checkpoint") or "").rpartition("/")[0]
    goes_on = told_state(told) != STOPPED and told.get("fingerprint") == code
    return theirs if goes_on and theirs and theirs != folder else None


class Done(NamedTuple):
    """How far a rebuild is, in records of its inputs."""

    records: int
    of: int
    rate: float | None  # records a second, lately
    left_s: float | None

    def __str__(self) -> str:
        share = f" ({100 * self.records // self.of} %)" if self.of else ""
        rate = "" if self.rate is None else f", {self.rate:,.0f} a second"
        left = "" if self.left_s is None else f", about {self.left_s:,.0f} s left"
        return f"{self.records:,} of {self.of:,} records{share}{rate}{left}"


class Pace:
    """Of the last half minute. Compaction has taken some offsets, which count as records here."""

    def __init__(self, starts: Ends) -> None:
        self._starts = starts
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, new: Mark | None, ends: Ends, now: float) -> Done:
        read: Ends = {} if new is None else new.sources.offsets
        begun = {at: self._starts.get(at, 0) for at in ends}
        of = sum(max(0, end - begun[at]) for at, end in ends.items())
        records = sum(max(0, min(read.get(at, 0), end) - begun[at]) for at, end in ends.items())
        self._seen.append((now, records))
        while now - self._seen[0][0] > PACE_WINDOW_S:
            self._seen.popleft()
        since, before = self._seen[0]
        rate = (records - before) / (now - since) if now > since and records > before else None
        return Done(records, of, rate, None if not rate else (of - records) / rate)
