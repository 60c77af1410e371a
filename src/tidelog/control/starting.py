"""A view that the catalog does not have: whether a run is about to make it.

Before a run starts Spark, it tells of each view that it is about to make that its query is `starting`. Who then asks
for such a view learns that it is early, and not that it was misspelt.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from tidelog.client.cluster import Cluster
from tidelog.control.health import STARTING, STARTS_WITHIN_MS, STOPPED, age_of, told_state
from tidelog.control.status import Report, Reporter, read_status
from tidelog.errors import NotShown, TidelogError

QUERY, VIEW = "query", "view"
AGAIN_S = 5


def reports_of(cluster: Cluster) -> list[Report]:
    """None where they cannot be read, as by a user who may not: an answer goes on without them."""
    with suppress(TidelogError):
        return read_status(cluster)
    return []


@contextmanager
def tell_starting(cluster: Cluster, app: str, views: Iterable[str]) -> Iterator[None]:
    """That a run is about to make these, which the catalog does not have yet. What ends it early is told, too."""
    told = {view: Reporter(cluster, QUERY, f"{app}.{view}") for view in views}

    def tell(state: str) -> None:
        for view, reporter in told.items():
            figures = {"state": state, "app": app, "output": {"kind": VIEW, "name": view, "topic": None}}
            reporter.tell(figures, at_once=True)

    tell(STARTING)
    try:
        yield
    except BaseException:
        tell(STOPPED)
        raise


def coming(reports: Iterable[Report], view: str, now_ms: float) -> str | None:
    """Which app is about to make this view; None where none has said so."""
    for one in reports:
        output = one.figures.get("output") if one.kind == QUERY else None
        if not isinstance(output, dict) or (output.get("kind"), output.get("name")) != (VIEW, view):
            continue
        if told_state(one.figures) == STARTING and abs(age_of(one.figures, now_ms)) < STARTS_WITHIN_MS:
            return str(one.figures.get("app"))
    return None


def check_not_coming(cluster: Cluster, view: str) -> None:
    """For who has not found a view: `NotShown` where it is only early."""
    if (app := coming(reports_of(cluster), view, time.time() * 1000)) is not None:
        raise NotShown(f"view {view} is not there yet: app {app} is starting; try again in {AGAIN_S} s", AGAIN_S)
