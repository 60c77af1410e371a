"""Metrics as text: Prometheus' format 0.0.4, and OpenMetrics 1.0.0 for who asks for it. Pure.

Not by a library: Prometheus' own client keeps counters in its process and writes those, while all of ours are other
processes' figures. What is left is escaping, and the tests read it back with that client's parsers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tidelog.gateway.metrics.table import COUNTER, Buckets, Metric, Sample, Value

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def wants_open_metrics(accept: str) -> bool:
    """Whether the Accept header has it with a weight that is above 0 and not below that of plain text."""
    weights: dict[str, float] = {}
    for part in accept.split(","):
        kind, *parameters = (piece.strip() for piece in part.lower().split(";"))
        weight = next((piece[2:] for piece in parameters if piece.startswith("q=")), "1")
        weights[kind] = max(weights.get(kind, 0.0), _number(weight))
    wanted = weights.get("application/openmetrics-text", 0.0)
    return wanted > 0 and wanted >= weights.get("text/plain", 0.0)


def text(found: Mapping[Metric, Iterable[Sample]], *, open_metrics: bool) -> bytes:
    lines: list[str] = []
    for metric, samples in found.items():
        listed = list(samples)
        if listed:
            family = metric.name.removesuffix("_total") if open_metrics and metric.kind == COUNTER else metric.name
            lines.append(f"# HELP {family} {_escaped(metric.what)}")
            lines.append(f"# TYPE {family} {metric.kind}")
            for labels, value in listed:
                lines += _lines(metric, labels, value)
    if open_metrics:
        lines.append("# EOF")
    return "".join(line + "\n" for line in lines).encode()


def _lines(metric: Metric, values: Sequence[str], value: Value) -> Iterator[str]:
    labels = list(zip(metric.labels, values, strict=True))
    if not isinstance(value, Buckets):
        yield f"{metric.name}{_labels(labels)} {value}"
        return
    total = 0
    bounds = [*map(str, value.bounds), "+Inf"]
    for bound, count in zip(bounds, value.counts, strict=True):
        total += count
        yield f"{metric.name}_bucket{_labels([*labels, ('le', bound)])} {total}"
    yield f"{metric.name}_sum{_labels(labels)} {value.sum}"
    yield f"{metric.name}_count{_labels(labels)} {total}"


def _labels(labels: Sequence[tuple[str, str]]) -> str:
    written = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{written}}}" if written else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
