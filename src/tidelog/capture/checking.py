"""Captures from outside: what a database lacks, how far each capture is, and taking one away."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tidelog.capture.change import CheckFinding
from tidelog.capture.settings import CaptureSettings
from tidelog.capture.sources.opening import methods_of, open_source
from tidelog.client.cluster import Cluster
from tidelog.control.captures import (
    CAPTURES,
    decode,
    ensure_topic,
    progress_key,
    read_captures,
    table_key,
    transactional_id_of,
)
from tidelog.control.health import health_of, reason_of
from tidelog.control.owner import Owner
from tidelog.control.status import read_status, take_away

KIND = "capture"
UNKNOWN = "not heard of"


def findings(settings: CaptureSettings) -> Sequence[CheckFinding]:
    source = open_source(settings.source_url, settings.known_as, settings.tables, settings.method)
    try:
        return source.check()
    finally:
        source.close()


def told(cluster: Cluster) -> list[dict[str, Any]]:
    """Every capture: what the log has of it, and what it tells of itself."""
    captures = read_captures(cluster)
    reports = {one.name: one for one in read_status(cluster) if one.kind == KIND}
    found = []
    for name in sorted({*captures, *reports}):
        capture, report = captures.get(name), reports.get(name)
        progress = (capture.progress if capture is not None else None) or {}
        figures = {} if report is None else report.figures
        found.append(
            {
                "name": name,
                "state": UNKNOWN if report is None else health_of(report, time.time() * 1000).state,
                "tables": len(capture.tables) if capture is not None else 0,
                "rows_out": figures.get("rows_out"),
                "lag_s": None if (lag := (figures.get("lag") or {}).get("seconds")) is None else f"{lag:.1f}",
                "position": progress.get("position"),
                "snapshot": figures.get("snapshot"),
                "incremental": progress.get("incremental"),
                "url": figures.get("url"),
                "error": reason_of(figures),
                "warning": figures.get("warning"),
            }
        )
    return found


def remove(cluster: Cluster, settings: CaptureSettings) -> list[str]:
    """What was made in the database, then what the log has. A capture that runs is fenced. Without a method, what any
    of them has made: triggers that nobody reads would fill the disk."""
    name = settings.known_as
    owner = Owner(cluster, transactional_id_of(name))
    ensure_topic(cluster)
    owner.begin()
    done: list[str] = []
    for method in methods_of(settings.url, settings.method):
        source = open_source(settings.url, name, settings.tables, method)
        try:
            done += source.remove()
        finally:
            source.close()
    kept = decode(owner.rows(CAPTURES)).get(name)
    if kept is not None:
        keys = [*(table_key(name, table) for table in kept.tables), progress_key(name)]
        with owner.transaction() as outgoing:
            outgoing.send(CAPTURES, [(key, None, (), 0) for key in keys])
        done.append(f"the progress of {name} is removed; its topics stay")
    if any((one.kind, one.name) == (KIND, name) for one in read_status(cluster)):
        take_away(cluster, KIND, name)
        done.append(f"`tidelog status` shows {name} no more")
    return done or [f"there was nothing of {name}"]
