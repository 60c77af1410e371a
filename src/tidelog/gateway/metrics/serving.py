"""GET /metrics: what Prometheus scrapes."""

from __future__ import annotations

from tidelog.gateway.metrics.collecting import collect
from tidelog.gateway.metrics.exposition import OPEN_METRICS, PROMETHEUS, text, wants_open_metrics
from tidelog.gateway.route import Answer, Call, Route


def metrics(call: Call) -> Answer:
    open_metrics = wants_open_metrics(call.headers.get("accept", ""))
    with call.cluster() as cluster:
        found = collect(cluster)
    return Answer(text(found, open_metrics=open_metrics), OPEN_METRICS if open_metrics else PROMETHEUS)


ROUTES = (
    Route(
        "GET",
        "/metrics",
        metrics,
        "Figures of topics, groups, brokers and parts for Prometheus, or as OpenMetrics by Accept",
        answer={"type": "string"},
        gives=(PROMETHEUS, OPEN_METRICS),
        refusals={401: "The broker wants a login", 503: "No broker answers"},
    ),
)
