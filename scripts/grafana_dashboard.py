"""Writes docs/reference/grafana.json, a dashboard of every metric, from the table; `--check` only says whether it is up
to date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tidelog.gateway.metrics.table import COUNTER, HISTOGRAM, METRICS, Metric

FILE = Path(__file__).parent.parent / "docs" / "reference" / "grafana.json"
SOURCE = {"type": "prometheus", "uid": "${source}"}
ROWS = {  # of panels, by how the names of their metrics begin; the first that fits
    "Queries, appliers and other parts": "tidelog_part_",
    "Consumer groups": "tidelog_group",
    "Topics and partitions": ("tidelog_topic", "tidelog_partition"),
    "Brokers": "tidelog_broker",
    "Captures": "tidelog_capture",
    "Overload": "tidelog_overload",
    "This server": "tidelog_scrape",
}
UNITS = {"_bytes": "bytes", "_bytes_total": "Bps", "_time_seconds": "dateTimeFromNow", "_seconds": "s"}
WIDTH, HEIGHT, ACROSS = 8, 7, 3


def expression(metric: Metric) -> str:
    """Times of day are in seconds, and Grafana has milliseconds."""
    if metric.kind == HISTOGRAM:
        return f"histogram_quantile(0.99, sum by (le) (rate({metric.name}_bucket[$__rate_interval])))"
    if metric.kind == COUNTER:
        return f"rate({metric.name}[$__rate_interval])"
    return f"{metric.name} * 1000" if metric.name.endswith("_time_seconds") else metric.name


def panel(metric: Metric, number: int, place: int, top: int) -> dict[str, Any]:
    name = metric.name.removeprefix("tidelog_").removesuffix("_total").replace("_", " ")
    unit = next((unit for end, unit in UNITS.items() if metric.name.endswith(end)), "short")
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.labels) or name
    target = {"datasource": SOURCE, "expr": expression(metric), "legendFormat": legend, "refId": "A"}
    return {
        "id": number,
        "type": "timeseries",
        "title": f"{name} a second" if metric.kind == COUNTER else name,
        "description": metric.what,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "gridPos": {"x": place % ACROSS * WIDTH, "y": top + place // ACROSS * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "targets": [target],
    }


def panels() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    left, top = list(METRICS), 0
    for title, begins in ROWS.items():
        own = [metric for metric in left if metric.name.startswith(begins)]
        left = [metric for metric in left if metric not in own]
        made.append(
            {"id": len(made) + 1, "type": "row", "title": title, "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}}
        )
        top += 1
        for place, metric in enumerate(own):
            made.append(panel(metric, len(made) + 1, place, top))
        top += -(-len(own) // ACROSS) * HEIGHT
    assert not left, f"no row has {[metric.name for metric in left]}"
    return made


def dashboard() -> str:
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    made = {
        "title": "Tidelog",
        "uid": "tidelog",
        "tags": ["tidelog"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels(),
    }
    return json.dumps(made, indent=1) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(FILE.read_text() != dashboard())
    FILE.write_text(dashboard())
