"""Figures as a table on the terminal and as docs/benchmarks.md, with the machine, the commands, the date and the
goals."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from bench.broker.figures import SIDES, Figures
from bench.broker.goals import better, goal_of
from bench.broker.load import REPOSITORY, librdkafka

PAGE = REPOSITORY / "docs" / "benchmarks.md"
RESULTS = REPOSITORY / "bench" / "results" / "broker.json"

HEAD = """# Benchmarks

Written by `make bench-broker`; do not edit. How the figures are taken and how to read them is in
[guide/benchmarks.md](guide/benchmarks.md). Tidelog and Apache Kafka 4.3 take turns in one run on one machine; figures
are medians. *Synced* means that every ack waits until the record is on disk: Tidelog's default, and Apache Kafka with
`flush.messages=1`. *Better* is Tidelog synced beside Apache Kafka as it comes, which does not sync: above 1 is ahead.
"""


def table(figures: Figures) -> list[list[str]]:
    lines = [["row", "metric", *SIDES, "better", "goal", ""]]
    for row, metric in figures.rows():
        cells = [shown(figures.median(row, metric, side)) for side in SIDES]
        times = better(figures, row, metric)
        goal = goal_of(row, metric)
        met = goal.is_met(figures, row) if goal else None
        verdict = "" if met is None else ("met" if met else "MISSED")
        lines.append([row, metric, *cells, f"{times:.2f}" if times else "", goal.says() if goal else "", verdict])
    return lines


def shown(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"


def print_table(figures: Figures) -> None:
    lines = table(figures)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def markdown(figures: Figures, taken: dict[str, Any]) -> str:
    head, *lines = table(figures)
    out = [HEAD, "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    out += ["| " + " | ".join(line) + " |" for line in lines]
    out += ["", "## Taken", ""]
    for name, facts in taken.items():
        out.append(
            f"- `{name}`: {facts['date']}, commit {facts['commit']}, {facts['reps']} repetitions, on {facts['machine']}"
        )
    return "\n".join(out) + "\n"


def facts(reps: int) -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip(),
        "reps": reps,
        "machine": _machine(),
    }


def _machine() -> str:
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"{os.cpu_count()} x {model.partition(':')[2].strip() or platform.machine()}, {memory:.0f} GB, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}, "
        f"librdkafka {librdkafka_version()}"
    )


def librdkafka_version() -> str:
    import confluent_kafka

    assert librdkafka().exists()
    return str(confluent_kafka.libversion()[0])


def publish(figures: Figures, earlier: list[dict[str, Any]], taken: dict[str, Any]) -> None:
    """This run's figures, and those of an earlier one for the rows that this one has not taken."""
    shown = merged(figures, earlier)
    keep(RESULTS, shown, taken)
    PAGE.write_text(markdown(shown, taken))


def merged(figures: Figures, earlier: list[dict[str, Any]]) -> Figures:
    shown = Figures()
    shown.load(figures.to_json())
    shown.load(earlier)
    return shown


def keep(results: Path, shown: Figures, taken: dict[str, Any]) -> None:
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps({"taken": taken, "figures": shown.to_json()}, indent=1))


def earlier(results: Path = RESULTS) -> dict[str, Any]:
    if not results.exists():
        return {"taken": {}, "figures": []}
    found: dict[str, Any] = json.loads(results.read_text())
    return found
