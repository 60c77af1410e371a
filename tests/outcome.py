"""What a run of tests came to: what each test cost, which failed and why, how fast the machine was.

A cost is CPU seconds: of the worker and of all processes below it, set-up and tear-down included. Seconds of the clock
say how busy the machine is; CPU seconds say what a test asks for. They still depend on the machine and on who shares
its cores, so each worker now and then takes the *pace*: the CPU seconds of a fixed piece of work. Sums by folder are
given at the pace of the machine that tests/budgets.toml was written on.

What a fixture of the whole run costs to set up (the Spark session, a server) counts for `SHARED`, and not for the
folder whose test happens to need it first. A process that outlives its parent is not counted at all.
With TESTS_OUTCOME=FILE the outcome of the run is written there as JSON (`Outcome`).
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from zlib import crc32

import pytest

FILE = os.environ.get("TESTS_OUTCOME")
TICKS = os.sysconf("SC_CLK_TCK")
PACE_EVERY_S = 5.0
REFERENCE_PACE_S = 0.005
ROOMS_WITH_FOLDERS = ("pipelines", "views")  # each of their folders costs as much as another room
REASON_CHARACTERS = 200
SHARED = "shared"


@dataclass(slots=True)
class Outcome:
    costs: dict[str, float] = field(default_factory=dict)
    """CPU seconds by test, as measured."""
    failures: dict[str, str] = field(default_factory=dict)
    """The first line of why, by test."""
    paces: list[float] = field(default_factory=list)
    shared: float = 0.0
    """CPU seconds of what many tests use."""

    def pace(self) -> float:
        """Above 1: this machine was slower than the one of the budgets."""
        return sum(self.paces) / len(self.paces) / REFERENCE_PACE_S if self.paces else 1.0

    def by_folder(self) -> dict[str, float]:
        """CPU seconds at the reference pace."""
        sums: dict[str, float] = defaultdict(float)
        for test, seconds in self.costs.items():
            sums[folder_of(test)] += seconds
        if self.shared:
            sums[SHARED] += self.shared
        pace = self.pace()
        return {folder: seconds / pace for folder, seconds in sorted(sums.items())}


def read_outcome(path: Path) -> Outcome:
    return Outcome(**json.loads(path.read_text()))


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
    with suppress(OSError):  # it has ended since
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # a thread that has ended since: the children of the others count
                found += map(int, (task / "children").read_bytes().split())
    return found


def take_pace() -> float:
    """CPU seconds of a fixed piece of work, of the kind that the tests do: Python's loops, and bytes."""
    begun = time.process_time()
    block = bytes(65536)
    counts: dict[int, int] = {}
    for number in range(40_000):
        counts[number % 997] = number ^ (number >> 3)
    for _ in range(40):
        crc32(block)
    return time.process_time() - begun


class Measuring:
    """The plugin of a process that runs tests."""

    def __init__(self) -> None:
        self._before = 0.0
        self._paced = 0.0
        self._shared = 0.0
        self._is_setting_up = False

    def pytest_runtest_logstart(self) -> None:
        self._before = cpu_seconds()
        self._shared = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        if fixturedef.scope != "session" or self._is_setting_up:  # what it asks for is a part of it
            return (yield)
        begun = cpu_seconds()
        self._is_setting_up = True
        try:
            return (yield)
        finally:
            self._is_setting_up = False
            self._shared += max(cpu_seconds() - begun, 0.0)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            now = cpu_seconds()
            report.user_properties.append(("cpu_s", max(now - self._before - self._shared, 0.0)))
            report.user_properties.append(("shared_cpu_s", self._shared))
            if time.monotonic() - self._paced > PACE_EVERY_S:
                report.user_properties.append(("pace_s", take_pace()))
                self._paced = time.monotonic()
        return report


class Writing:
    """The plugin of the process that hears all reports: the one that runs tests, or xdist's controller."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcome = Outcome()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message if crash is not None else str(report.longrepr)
            self._outcome.failures.setdefault(report.nodeid, reason.partition("\n")[0][:REASON_CHARACTERS])
            print(f"\nfailed: {report.nodeid}", flush=True)  # long before pytest tells why, at its end
        for name, value in report.user_properties:
            if name == "cpu_s":
                self._outcome.costs[report.nodeid] = round(float(value), 3)
            elif name == "shared_cpu_s":
                self._outcome.shared = round(self._outcome.shared + float(value), 3)
            elif name == "pace_s":
                self._outcome.paces.append(float(value))

    def pytest_sessionfinish(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(asdict(self._outcome)) + "\n")


def outcome_plugins(config: pytest.Config) -> Sequence[object]:
    """What this process registers: nothing unless the run is measured."""
    if FILE is None:
        return ()
    in_worker = hasattr(config, "workerinput")
    runs_tests = in_worker or not config.getoption("numprocesses", None)
    return [*([Measuring()] if runs_tests else []), *([] if in_worker else [Writing(Path(FILE))])]
