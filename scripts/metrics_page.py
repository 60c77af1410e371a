"""Writes docs/reference/metrics.md from the table of metrics; `--check` only says whether the page is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from tidelog.gateway.metrics.table import METRICS

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "metrics.md"
HEAD = """\
# Metrics

What `GET /metrics` of the [HTTP server](../guide/http.md) tells, as Prometheus text or, by `Accept`, as OpenMetrics.
Topics and groups are asked for by Kafka's own APIs, so they are there beside any broker; what begins with
`tidelog_broker_` a Tidelog broker reports itself, at most every five seconds and only when something has changed. What
begins with `tidelog_part_` every other long-running part reports itself, at most once a second and at least every ten
([records](../formats/status.md)): queries, appliers, runs of apps. A part that lacks a number leaves it out.

| name | kind | labels | what it is |
|---|---|---|---|
"""
FOOT = """
The table is made by `python scripts/metrics_page.py` from `src/tidelog/gateway/metrics/table.py`.
"""


def page() -> str:
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.what} |\n"
        for metric in METRICS
    ]
    return HEAD + "".join(rows) + FOOT


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == page() else f"{PAGE} is out of date; run python scripts/metrics_page.py")
    PAGE.write_text(page())
