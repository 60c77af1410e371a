"""What a run of the demo comes to, as data and as lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.demo.checking import Checked
from tidelog.demo.freshness import percentile

DIFFERENCES_SHOWN = 5


class ViewFigures(NamedTuple):
    checked: Checked
    lag: int  # records that were not visible in it when the last one was produced
    p50_s: float | None
    p99_s: float | None


class Summary(NamedTuple):
    seconds: float
    produced: Mapping[str, int]  # by topic
    views: tuple[ViewFigures, ...]

    @property
    def equal(self) -> bool:
        """Each view is its batch query, and nothing that was produced is missing from it."""
        return bool(self.views) and all(one.checked.equal for one in self.views)


def figures(checked: Checked, lag: int, seconds: Iterable[float]) -> ViewFigures:
    ordered = sorted(seconds)
    return ViewFigures(checked, lag, percentile(ordered, 0.5), percentile(ordered, 0.99))


def lines_of(summary: Summary) -> list[str]:
    by_topic = ", ".join(f"{count:,} {topic}" for topic, count in summary.produced.items())
    lines = [f"produced  {sum(summary.produced.values()):,} events in {summary.seconds:.0f} s ({by_topic})", ""]
    lines += [f"{'view':<10}{'rows':>8}{'records':>10}{'lag':>8}{'p50':>10}{'p99':>10}  equal to its batch query"]
    lines += [_line(one) for one in summary.views]
    lines += [f"  {said}" for one in summary.views for said in _differences(one.checked)]
    return [*lines, "", f"equal: {'yes' if summary.equal else 'no'}"]


def _line(one: ViewFigures) -> str:
    view, rows, records = one.checked[:3]
    said = "yes" if one.checked.equal else f"no, {len(one.checked.differences)} rows differ"
    return f"{view:<10}{rows:>8,}{records:>10,}{one.lag:>8,}{_ms(one.p50_s):>10}{_ms(one.p99_s):>10}  {said}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:,.0f} ms"


def _differences(checked: Checked) -> list[str]:
    return [
        f"{checked.view} {one.key}: the view has {one.view}, the batch {one.batch}"
        for one in checked.differences[:DIFFERENCES_SHOWN]
    ]
