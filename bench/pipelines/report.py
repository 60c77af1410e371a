"""The figures as tables: on the terminal, as docs/benchmarks_pipelines.md, and as JSON with every single value."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from bench.broker import report as of_brokers
from bench.broker.figures import Figures
from bench.pipelines.behind import REASONS
from bench.pipelines.figures import METRICS, OURS, QUERY_SIDES, RATE, STATE_SIDES, better, goals_of
from bench.pipelines.watch import REPOSITORY

PAGE = REPOSITORY / "docs" / "benchmarks_pipelines.md"
RESULTS = REPOSITORY / "bench" / "results" / "pipelines.json"
HEAD = REPOSITORY / "bench" / "pipelines" / "head.md"
NO_FIGURE = "-"

Reasons = Mapping[str, Mapping[str, str]]
"""By row and side: why there is no figure."""


def table(figures: Figures, sides: tuple[str, ...], reasons: Reasons) -> list[list[str]]:
    """One line for a row and a metric; behind each peer, how many times better ours is."""
    peers = [side for side in sides if side not in OURS]
    head = ["row", "metric", *(side for side in sides if side in OURS)]
    for peer in peers:
        head += [peer, "times"]
    lines = [head]
    for row in dict.fromkeys(row for row, _ in figures.rows()):
        for metric in METRICS:
            if any(figures.median(row, metric, side) is not None for side in sides):
                cells = [of_brokers.shown(figures.median(row, metric, side)) for side in sides if side in OURS]
                for peer in peers:
                    cells += _cells(figures, row, metric, peer, peer in reasons.get(row, {}))
                lines.append([row, metric, *cells])
    return lines


def _cells(figures: Figures, row: str, metric: str, peer: str, has_reason: bool) -> list[str]:
    found, times = figures.median(row, metric, peer), better(figures, row, metric, peer)
    return [NO_FIGURE if found is None and has_reason else of_brokers.shown(found), f"{times:.2f}" if times else ""]


def goals(figures: Figures) -> list[list[str]]:
    lines = [["row", "goal", ""]]
    for row in dict.fromkeys(row for row, _ in figures.rows()):
        for goal in goals_of(row):
            if (met := goal.is_met(figures, row)) is not None:
                lines.append([row, goal.says(), "met" if met else "MISSED"])
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


def print_tables(figures: Figures, reasons: Reasons) -> None:
    for lines in (table(figures, STATE_SIDES, reasons), table(figures, QUERY_SIDES, reasons), goals(figures)):
        if len(lines) > 1:
            widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
            for line in lines:
                print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
            print()


def markdown(figures: Figures, reasons: Reasons, taken: Mapping[str, Any]) -> str:
    out = [HEAD.read_text(), *as_markdown(table(figures, QUERY_SIDES, reasons))]
    out += ["", "## State of many keys", "", *as_markdown(table(figures, STATE_SIDES, reasons))]
    out += ["", "## Goals", "", *as_markdown(goals(figures))]
    out += ["", "## Where a peer is ahead", "", *(behind(figures) or ["Nowhere."])]
    out += ["", "## What has no figure, and why", ""]
    out += [f"- {row}: {side}: {_short(why)}" for row, sides in reasons.items() for side, why in sides.items()]
    out += ["", "## Taken", ""]
    for name, facts in taken.items():
        out.append(
            f"- `{name}`: {facts['date']}, commit {facts['commit']}, {facts['reps']} repetitions, {facts['share']:g} of"
            f" the full input, load {facts['load']}, on {facts['machine']}, PySpark {facts['pyspark']}"
        )
    return "\n".join(out) + "\n"


def as_markdown(table: list[list[str]]) -> list[str]:
    head, *lines = table
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(line)} |" for line in lines)]


def _short(why: str) -> str:
    """Of a traceback, the last line that names an error."""
    lines = why.strip().splitlines() or [""]
    named = [line for line in lines if "Error" in line or "Exception" in line]
    return (named or lines)[-1].strip()[:300]


def facts(reps: int, share: float) -> dict[str, Any]:
    """The load is the run's own and that of others: on two cores a run of its own has about two."""
    known = {"pyspark": version("pyspark"), "load": f"{os.getloadavg()[1]:.1f}", "share": share}
    return {**of_brokers.facts(reps), **known}


def earlier() -> dict[str, Any]:
    if not RESULTS.exists():
        return {"taken": {}, "figures": [], "reasons": {}}
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


def publish(figures: Figures, reasons: Reasons, earlier: Mapping[str, Any], taken: Mapping[str, Any]) -> None:
    """This run's figures, and those of an earlier one for what this one has not taken."""
    shown = merged(figures, earlier["figures"])
    known = {
        row: {**earlier["reasons"].get(row, {}), **reasons.get(row, {})} for row in (*earlier["reasons"], *reasons)
    }
    known = {
        row: left
        for row, sides in known.items()
        if (left := {side: why for side, why in sides.items() if shown.median(row, RATE, side) is None})
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps({"taken": taken, "figures": shown.to_json(), "reasons": known}, indent=1) + "\n")
    PAGE.write_text(markdown(shown, known, taken))


def merged(figures: Figures, earlier: list[dict[str, Any]]) -> Figures:
    """A side that this run has not taken keeps its figure, even in a row that this run has."""
    shown = Figures()
    taken = {(entry["row"], entry["side"]) for entry in figures.to_json()}
    order = sorted([*figures.to_json(), *(e for e in earlier if (e["row"], e["side"]) not in taken)], key=_place)
    for entry in order:
        for value in entry["values"]:
            shown.add(entry["row"], entry["metric"], entry["side"], value)
    return shown


def _place(entry: Mapping[str, Any]) -> tuple[bool, int, str, int]:
    """Nexmark's queries by number, then the rest."""
    row = entry["row"]
    number = int(row[1:].split(",")[0].split(" ")[0]) if row.startswith("q") and row[1:2].isdigit() else 0
    return not row.startswith("q"), number, row, METRICS.index(entry["metric"])
