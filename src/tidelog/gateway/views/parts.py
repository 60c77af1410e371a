"""How long-running parts are, as they report it themselves: for supervisors, and for people.

`control/health.py` decides what is a fault, which is a 503. A part that was told to pause or to stop has none.
"""

from __future__ import annotations

import time
from typing import Any

from tidelog.control.health import Health, health_of
from tidelog.control.status import Report, status_for
from tidelog.gateway.route import Answer, Call, Refusal, as_json


def parts(call: Call) -> Answer:
    with call.cluster() as cluster:
        return as_json([_shown(one) for one in sorted(status_for(cluster))])


def part(call: Call) -> Answer:
    kind, name = call.path["kind"], call.path["name"]
    with call.cluster() as cluster:
        found = next((one for one in status_for(cluster) if (one.kind, one.name) == (kind, name)), None)
    if found is None:
        raise Refusal(404, f"no {kind[:100]} {name[:100]!r} has reported; GET /parts lists those that have")
    if fault := _health(found).fault:
        raise Refusal(503, f"{kind} {name} {fault}; look at its log")
    return as_json(_shown(found))


def _health(report: Report) -> Health:
    return health_of(report, time.time() * 1000)


def _shown(report: Report) -> dict[str, Any]:
    how = _health(report)
    named = {"kind": report.kind, "name": report.name, "state": how.state, "runs": how.runs, "fault": how.fault}
    return {**named, "figures": report.figures}
