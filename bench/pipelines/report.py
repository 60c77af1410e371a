"""The figures as tables: on the terminal, as docs/benchmarks_pipelines.md, and as JSON with every single value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import reporting
from bench.figures import Figures
from bench.pipelines.behind import REASONS
from bench.pipelines.figures import METRICS, OURS, QUERY_SIDES, RATE, STATE_SIDES, better, goals_of
from bench.reporting import Table, Taken, as_markdown, shown, shown_times, verdict

if TYPE_CHECKING:
    from bench.pipelines.bench import Bench

PAGE = reporting.DOCS / "benchmarks_pipelines.md"
RESULTS = reporting.RESULTS / "pipelines.json"
HEAD = Path(__file__).parent / "head.md"
NO_FIGURE = "-"

Reasons = Mapping[str, Mapping[str, str]]
"""By row and side: why there is no figure."""


def table(figures: Figures, sides: tuple[str, ...], reasons: Reasons) -> Table:
    """One line for a row and a metric; behind each peer, how many times better ours is."""
    peers = [side for side in sides if side not in OURS]
    head = ["row", "metric", *(side for side in sides if side in OURS)]
    for peer in peers:
        head += [peer, "times"]
    lines = [head]
    for row in dict.fromkeys(row for row, _ in figures.rows()):
        for metric in METRICS:
            if any(figures.median(row, metric, side) is not None for side in sides):
                cells = [shown(figures.median(row, metric, side)) for side in sides if side in OURS]
                for peer in peers:
                    cells += _cells(figures, row, metric, peer, peer in reasons.get(row, {}))
                lines.append([row, metric, *cells])
    return lines


def _cells(figures: Figures, row: str, metric: str, peer: str, has_reason: bool) -> list[str]:
    found, times = figures.median(row, metric, peer), better(figures, row, metric, peer)
    return [NO_FIGURE if found is None and has_reason else shown(found), shown_times(times)]


def goals(figures: Figures) -> Table:
    lines = [["row", "goal", ""]]
    for row in dict.fromkeys(row for row, _ in figures.rows()):
        for goal in goals_of(row):
            if (met := goal.is_met(figures, row)) is not None:
                lines.append([row, goal.says(), verdict(met)])
    return lines


def behind(figures: Figures) -> list[str]:
    """Every row in which a peer has more rows a second, and why."""
    found = []
    for row in dict.fromkeys(row for row, _ in figures.rows()):
        for side in (*QUERY_SIDES, *STATE_SIDES):
            times = better(figures, row, RATE, side) if side not in OURS else None
            if times is not None and times < 1:
                why = REASONS.get((row.split(",")[0].split(" ")[0], side), "not looked into yet")
                found.append(f"- {row}: {times:.2f} times {side}: {why}")
    return found


def print_tables(run: Bench) -> None:
    found, reasons = run.figures, run.reasons
    for lines in (table(found, STATE_SIDES, reasons), table(found, QUERY_SIDES, reasons), goals(found)):
        if len(lines) > 1:
            reporting.print_table(lines)


def markdown(figures: Figures, reasons: Reasons, taken: Taken) -> str:
    out = [HEAD.read_text(), *as_markdown(table(figures, QUERY_SIDES, reasons))]
    out += ["", "## State of many keys", "", *as_markdown(table(figures, STATE_SIDES, reasons))]
    out += ["", "## Goals", "", *as_markdown(goals(figures))]
    out += ["", "## Where a peer is ahead", "", *(behind(figures) or ["Nowhere."])]
    out += ["", "## What has no figure, and why", ""]
    out += [f"- {row}: {side}: {_short(why)}" for row, sides in reasons.items() for side, why in sides.items()]
    return "\n".join([*out, *reporting.taken_as_markdown(taken)]) + "\n"


def _short(why: str) -> str:
    """Of a traceback, the last line that names an error."""
    lines = why.strip().splitlines() or [""]
    named = [line for line in lines if "Error" in line or "Exception" in line]
    return (named or lines)[-1].strip()[:300]


def facts(run: Bench) -> dict[str, Any]:
    return {**reporting.facts_with_spark(run), "share": run.share}


def earlier() -> dict[str, Any]:
    return {"reasons": {}, **reporting.earlier(RESULTS)}


def publish(run: Bench, earlier: Mapping[str, Any], taken: Taken) -> None:
    """This run's figures, and those of an earlier one for what this one has not taken."""
    all_figures = merged(run.figures, earlier["figures"])
    reasons = still_reasons(all_figures, earlier["reasons"], run.reasons)
    reporting.keep(RESULTS, {"taken": taken, "figures": all_figures.to_json(), "reasons": reasons})
    PAGE.write_text(markdown(all_figures, reasons, taken))


def still_reasons(figures: Figures, earlier: Reasons, reasons: Reasons) -> Reasons:
    """Of what has no figure by now, the newest."""
    known = {row: {**earlier.get(row, {}), **reasons.get(row, {})} for row in (*earlier, *reasons)}
    return {
        row: left
        for row, sides in known.items()
        if (left := {side: why for side, why in sides.items() if figures.median(row, RATE, side) is None})
    }


def merged(figures: Figures, earlier: list[dict[str, Any]]) -> Figures:
    """A side that this run has not taken keeps its figure, even in a row that this run has."""
    all_figures = Figures()
    taken = {(entry["row"], entry["side"]) for entry in figures.to_json()}
    order = sorted([*figures.to_json(), *(e for e in earlier if (e["row"], e["side"]) not in taken)], key=_place)
    for entry in order:
        for value in entry["values"]:
            all_figures.add(entry["row"], entry["metric"], entry["side"], value)
    return all_figures


def _place(entry: Mapping[str, Any]) -> tuple[bool, int, str, int]:
    """Nexmark's queries by number, then the rest."""
    row = entry["row"]
    number = int(row[1:].split(",")[0].split(" ")[0]) if row.startswith("q") and row[1:2].isdigit() else 0
    return not row.startswith("q"), number, row, METRICS.index(entry["metric"])
