"""How long-running parts are, as they report it themselves: for supervisors, and for people."""

from __future__ import annotations

import time
from typing import Any

from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.consumer import check_readable
from tidelog.control.status import (
    AGAIN_S,
    RUNNING,
    STATUS,
    Report,
    read_status,
    said_silence,
    silent_ms,
    told_state,
)
from tidelog.errors import BrokerError
from tidelog.gateway.route import Answer, Call, Refusal, as_json

LATE_S = 3 * AGAIN_S
BROKER = "broker"  # reports only news; that it has answered says that it runs


def fault_of(report: Report, now_ms: float) -> str | None:
    """What is wrong with a part, or None."""
    state = told_state(report)
    if state != RUNNING:
        return f"it is {state}"
    if report.kind != BROKER and silent_ms(report.figures, now_ms) > LATE_S * 1000:
        return f"it {said_silence(report.figures, now_ms)}"
    return None


def parts(call: Call) -> Answer:
    with call.cluster() as cluster:
        return as_json([_shown(one) for one in sorted(_reports(cluster))])


def part(call: Call) -> Answer:
    kind, name = call.path["kind"], call.path["name"]
    with call.cluster() as cluster:
        found = next((one for one in _reports(cluster) if (one.kind, one.name) == (kind, name)), None)
    if found is None:
        raise Refusal(404, f"no {kind[:100]} {name[:100]!r} has reported; GET /parts lists those that have")
    fault = fault_of(found, time.time() * 1000)
    if fault is not None:
        raise Refusal(503, f"{kind} {name}: {fault}; look at its log")
    return as_json(_shown(found))


def _reports(cluster: Cluster) -> list[Report]:
    try:
        check_readable(cluster, STATUS)
    except BrokerError as error:
        if error.code in UNKNOWN_TOPIC:
            return []
        raise
    return read_status(cluster)


def _shown(report: Report) -> dict[str, Any]:
    fault = fault_of(report, time.time() * 1000)
    return {"kind": report.kind, "name": report.name, "runs": fault is None, "fault": fault, "figures": report.figures}
