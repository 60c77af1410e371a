"""What pages of figures have in common: cells, tables, facts of the machine, and the figures of earlier runs.

A bench's page has its medians; a JSON file in bench/results has every single value, and the facts of the run that took
each row. A run replaces the rows that it takes, and keeps the others; so that it can in any clone, the file is in the
repository.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from bench.figures import Figures
from bench.repository import REPOSITORY
from bench.run import Run

DOCS = REPOSITORY / "docs"
RESULTS = REPOSITORY / "bench" / "results"
TAKEN = {
    "date": "{}",
    "commit": "commit {}",
    "reps": "{} repetitions",
    "share": "{:g} of the full input",
    "note": "{}",
    "load": "load {}",
    "machine": "on {}",
    "pyspark": "PySpark {}",
}
"""How each fact of a run is told, in this order."""

Table = list[list[str]]
"""Its head, then its lines."""
Facts = Mapping[str, Any]
Taken = Mapping[str, Facts]
"""By name of the row: the facts of the run that took it."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a bench publishes, and where."""

    path: Path
    results: Path
    tables: Callable[[Figures], Sequence[Table]]
    markdown: Callable[[Figures, Taken], str]
    facts: Callable[[Run], Facts]

    def earlier(self) -> dict[str, Any]:
        return earlier(self.results)

    def publish(self, run: Run, earlier: Mapping[str, Any], taken: Taken) -> None:
        """This run's figures, and those of an earlier one for the rows that this one has not taken."""
        shown = Figures()
        shown.load(run.figures.to_json())
        shown.load(earlier["figures"])
        keep(self.results, {"taken": taken, "figures": shown.to_json()})
        self.path.write_text(self.markdown(shown, taken))

    def print_tables(self, run: Run) -> None:
        for table in self.tables(run.figures):
            print_table(table)


# Earlier figures ------------------------------------------------------------------------------------------------------


def earlier(results: Path) -> dict[str, Any]:
    if not results.exists():
        return {"taken": {}, "figures": []}
    found: dict[str, Any] = json.loads(results.read_text())
    return found


def keep(results: Path, contents: Mapping[str, Any]) -> None:
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(contents, indent=1))


# Cells and tables -----------------------------------------------------------------------------------------------------


class Goal(Protocol):
    def says(self) -> str: ...

    def is_met(self, figures: Figures, row: str) -> bool | None: ...


def shown(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"


def shown_times(times: float | None) -> str:
    return f"{times:.2f}" if times else ""


def goal_and_verdict(goal: Goal | None, figures: Figures, row: str) -> list[str]:
    return [goal.says(), verdict(goal.is_met(figures, row))] if goal else ["", ""]


def verdict(met: bool | None) -> str:
    return "" if met is None else "met" if met else "MISSED"


def print_table(table: Table) -> None:
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print()


def as_markdown(table: Table) -> list[str]:
    head, *lines = table
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(line)} |" for line in lines)]


def taken_as_markdown(taken: Taken) -> list[str]:
    """The end of a page."""
    told = {
        name: ", ".join(says.format(facts[fact]) for fact, says in TAKEN.items() if fact in facts)
        for name, facts in taken.items()
    }
    return ["", "## Taken", "", *(f"- `{name}`: {facts}" for name, facts in told.items())]


# Facts ----------------------------------------------------------------------------------------------------------------


def facts(run: Run) -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip(),
        "reps": run.reps,
        "machine": _machine(),
    }


def facts_with_spark(run: Run) -> dict[str, Any]:
    """The load is the run's own and that of others: on two cores a run of its own has about two."""
    return {**facts(run), "pyspark": version("pyspark"), "load": f"{os.getloadavg()[1]:.1f}"}


def _machine() -> str:
    import confluent_kafka

    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"{os.cpu_count()} x {model.partition(':')[2].strip() or platform.machine()}, {memory:.0f} GB, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}, "
        f"librdkafka {confluent_kafka.libversion()[0]}"
    )
