"""What each test costs: CPU seconds of its worker and of all processes below it, set-up and tear-down included.

Seconds of the clock say how busy the machine is; CPU seconds say what a test asks for. They still depend on the machine,
and on who shares its cores, so each worker now and then takes the *pace*: the CPU seconds of a fixed piece of work. A
cost is divided by the mean pace of its run and multiplied by the pace of the machine that budgets were written on.

A server that all workers share is counted where it was started, and a process that outlives its parent not at all.
With TIDELOG_COSTS=FILE the costs of the run are written there, a line of JSON (`Costs`).
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from zlib import crc32

import pytest

FILE = os.environ.get("TIDELOG_COSTS")
TICKS = os.sysconf("SC_CLK_TCK")
PACE_EVERY_S = 5.0
REFERENCE_PACE_S = (
    0.005  # the fixed piece of work on the machine that tests/budgets.toml was written on, two cores busy
)
ROOMS_WITH_FOLDERS = ("pipelines", "views")  # their folders cost too much to be one


@dataclass(slots=True)
class Costs:
    """Of one run: CPU seconds by test, as measured, and how the machine went."""

    tests: dict[str, float] = field(default_factory=dict)
    paces: list[float] = field(default_factory=list)

    def pace(self) -> float:
        """Above 1: this machine was slower than the one of the budgets."""
        return sum(self.paces) / len(self.paces) / REFERENCE_PACE_S if self.paces else 1.0

    def by_folder(self) -> dict[str, float]:
        """CPU seconds at the reference pace."""
        sums: dict[str, float] = defaultdict(float)
        for test, seconds in self.tests.items():
            sums[folder_of(test)] += seconds
        pace = self.pace()
        return {folder: seconds / pace for folder, seconds in sorted(sums.items())}


def read_costs(path: Path) -> Costs:
    return Costs(**json.loads(path.read_text()))


def folder_of(test: str) -> str:
    """The folder whose budget a test counts for: `broker`, `pipelines/app`; `.` for tests beside the folders."""
    parts = test.partition("::")[0].split("/")[1:-1]
    return "/".join(parts[: 2 if parts and parts[0] in ROOMS_WITH_FOLDERS else 1]) or "."


def cpu_seconds() -> float:
    """Of this process, of its children that ended, and of every process below that runs."""
    mine = os.times()
    return mine.user + mine.system + mine.children_user + mine.children_system + sum(_below(os.getpid()))


def _below(pid: int) -> Iterator[float]:
    for child in _children(pid):
        try:
            # Behind the name, which may hold anything but ends with the last parenthesis: fields 14 to 17 of proc(5).
            fields = Path(f"/proc/{child}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # it has ended since
        yield sum(map(int, fields[11:15])) / TICKS
        yield from _below(child)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_bytes().split())
    except OSError:
        pass  # it has ended since
    return found


def take_pace() -> float:
    """CPU seconds of a fixed piece of work, of the kind that the tests do: Python's loops, and bytes."""
    begun = time.process_time()
    block, counts = bytes(65536), {}
    for number in range(40_000):
        counts[number % 997] = number ^ (number >> 3)
    for _ in range(40):
        crc32(block)
    return time.process_time() - begun


class Measuring:
    """The plugin of a process that runs tests; without xdist also of the one that writes the file."""

    def __init__(self) -> None:
        self._before = cpu_seconds()
        self._paced = 0.0

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        if call.when == "teardown":
            now = cpu_seconds()
            report.user_properties.append(("cpu_s", max(now - self._before, 0.0)))
            if time.monotonic() - self._paced > PACE_EVERY_S:
                report.user_properties.append(("pace_s", take_pace()))
                self._paced = time.monotonic()
            self._before = cpu_seconds()
        return report


class Writing:
    """The plugin of the process that hears all reports."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._costs = Costs()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == "cpu_s":
                self._costs.tests[report.nodeid] = self._costs.tests.get(report.nodeid, 0.0) + round(float(value), 3)
            elif name == "pace_s":
                self._costs.paces.append(float(value))

    def pytest_sessionfinish(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(asdict(self._costs)) + "\n")


def plugins(config: pytest.Config) -> Sequence[object]:
    """What this process registers: none unless the run is measured."""
    if FILE is None:
        return ()
    in_worker = hasattr(config, "workerinput")
    runs_tests = in_worker or not config.getoption("numprocesses", None)
    return [*([Measuring()] if runs_tests else []), *([] if in_worker else [Writing(Path(FILE))])]
