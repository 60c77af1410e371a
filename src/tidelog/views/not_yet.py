"""What to say when a wait was not over in time: which hop it waits for, how far that is, and how its worker is. Pure.

a sink     what its last mark has read of what was asked for, and how its query is, by the query's own reports
a store    where it is in the view's topic, and how its appliers are, by theirs
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidelog.control.captures import sink_of
from tidelog.control.health import AT_WORK, health_of
from tidelog.control.status import Report

if TYPE_CHECKING:
    from tidelog.control.marks import Ends, Mark
    from tidelog.views.waiting import After, Hop

QUERY = "query"
APPLIES = ("applier", "read model")
STATUS_SHOWS = "`tidelog status` shows all parts"


def held_back(hop: Hop, mark: Mark, event_time_ms: int | None, silent: Mapping[str, int]) -> str:
    """Of a sink whose watermark cannot go on."""
    at = {topic: f"at {iso(time_ms)}" if time_ms > 0 else "no row yet" for topic, time_ms in sorted(silent.items())}
    held = " and ".join(f"{topic} ({where})" for topic, where in at.items())
    its = "an input that is silent and has" if len(silent) == 1 else "inputs that are silent and have"
    wanted = "the time" if event_time_ms is None else iso(event_time_ms)
    reached = mark.watermark_ms or 0
    so_far = f"is complete up to {iso(reached)}" if reached > 0 else "is not complete up to any time"
    return (
        f"{hop.topic} {so_far}, and not up to {wanted}: it is held by {held}, {its}"
        " no idle_after; only a newer record there lets it go on, or idle_after= where the input is declared"
    )


def sink_behind(
    hop: Hop,
    after: After,
    last: Mark | None,
    reports: Iterable[Report],
    now_ms: float,
    event_time_ms: int | None = None,
) -> str:
    """Of a sink that has not read what was asked for, or is not at the time."""
    if hop.aside:
        return (
            f"sink {hop.sink} has not written to {hop.topic} in time: the rows of a new generation are being put into"
            f" {hop.topic}; wait longer, or, if that was interrupted, the same `tidelog rebuild --in-place` ends it"
        )
    if event_time_ms is not None:
        writes = [one for one in reports if one.kind == "query" and _output(one) == hop.topic]
        told = f"{_reached(last)}; {_of_query(writes, now_ms)}"
        return f"{hop.topic} was not complete up to {iso(event_time_ms)} in time: {told}"
    of_capture = [one for one in reports if one.kind == "capture" and sink_of(one.name) == hop.sink]
    if of_capture:
        one, how = of_capture[0], health_of(of_capture[0], now_ms)
        state = "runs: wait longer" if how.runs else how.said
        return f"capture {one.name} has not read {after} in time: {_read(after, last)}; it {state}"
    writes = [one for one in reports if one.kind == "query" and _output(one) == hop.topic]
    return f"sink {hop.sink} has not read {after} in time: {_read(after, last)}; {_of_query(writes, now_ms)}"


def store_behind(
    view: str, after: After | str, wanted: Ends, at: Ends, reports: Iterable[Report], now_ms: float
) -> str:
    """Of a store that has not got what the view's topic has. One that shows nothing may wait for its query's first
    micro-batch, and not for its applier.
    """
    reports = list(reports)
    applies = [one for one in reports if one.kind in APPLIES and one.figures.get("view") == view]
    short = [(place, end) for place, end in sorted(wanted.items()) if at.get(place, 0) < end]
    far = ", ".join(f"{place} to offset {at.get(place, 0)} of {end}" for place, end in short)
    asked = {} if isinstance(after, str) else after.offsets
    had = "" if any(place in asked for place, _ in short) else "the view's topic has it, and "
    there = f"{had}the store is at {far}" if short else "the store shows nothing yet"
    writes = [one for one in reports if one.kind == QUERY and _output(one, "name") == view]
    ill = writes and not short and health_of(max(writes, key=_told_at), now_ms).fault is not None
    how = _of_query(writes, now_ms) if ill else _of_appliers(applies, now_ms)
    return f"view {view} did not have {after} in time: {there}; {how}"


def _read(after: After, last: Mark | None) -> str:
    if last is None:
        return "it has read nothing yet"
    there = last.sources
    places = [f"{at.topic}:{at.partition}:{there.offsets.get(at, 0) - 1}" for at in sorted(after.offsets)]
    read = [place if not place.endswith(":-1") else f"nothing of {place[:-3]}" for place in places]
    read += [f"{source}@{there.positions.get(source, '-')}" for source in sorted(after.positions)]
    return f"it has come to {', '.join(read)}"


def iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _at(watermark_ms: int | None) -> str:
    return "nothing yet" if not watermark_ms or watermark_ms < 0 else iso(watermark_ms)


def _reached(last: Mark | None) -> str:
    if last is None:
        return "it has read nothing yet"
    if last.watermark_ms is None:
        return "its last mark tells no watermark, as those of older versions do; its next micro-batch will"
    return f"it has come to {_at(last.watermark_ms)}"


def _output(one: Report, what: str = "topic") -> str | None:
    output = one.figures.get("output")
    return str(output.get(what)) if isinstance(output, dict) else None


def _of_query(writes: list[Report], now_ms: float) -> str:
    if not writes:
        return f"no query that writes it has reported: is its pipeline running? {STATUS_SHOWS}"
    one = max(writes, key=_told_at)
    if not (how := health_of(one, now_ms)).runs:
        return f"its query {one.name} {how.said}"
    late_ms = one.figures.get("lateness_ms")
    if not isinstance(late_ms, int):
        return f"its query {one.name} runs{_lag(one)}: wait longer"
    held = f"a record that is more than {late_ms / 2000:g} s ahead of other partitions in event time waits for them"
    return f"its query {one.name} runs{_lag(one)}{_watermark(one)}: {held}; wait longer, or leave event_time out"


def _of_appliers(applies: list[Report], now_ms: float) -> str:
    if not applies:
        return f"no applier of it has reported: is one running? {STATUS_SHOWS}"
    found = [(one.name, health_of(one, now_ms)) for one in sorted(applies)]
    told = ", ".join(f"{name} {'runs' if how.runs else how.said}" for name, how in found)
    return f"{told}: {'wait longer' if any(how.state in AT_WORK for _, how in found) else 'start it again'}"


def _told_at(one: Report) -> float:
    return float(one.figures.get("at_ms", 0))


def _lag(one: Report) -> str:
    lag = one.figures.get("lag")
    records = lag.get("records") if isinstance(lag, dict) else None
    return f", {records} records behind" if records else ""


def _watermark(one: Report) -> str:
    at_ms = one.figures.get("watermark_ms")
    if not isinstance(at_ms, int):
        return ", without a watermark yet"
    return f", at watermark {datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec='milliseconds')}"
