"""A side at work: a program of its own, with all the processes that it starts, watched from outside.

A side says what it does by lines of JSON on standard output:

    {"mark": "begin"}                    warmed up; from here on it is measured
    {"mark": "end", ...}                 all rows are through; with what the side itself has to tell. It then waits for
                                         the end of its standard input
    {"mark": "cannot", "why": "..."}     it cannot do that, and why

CPU is user and system time of all its processes between the two marks, of those that ended on the way too. Memory is
the most that they had together at any moment, pages that they share counted once (PSS). The broker is none of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

import psutil
from bench.process_tree import cpu_seconds, processes_of
from bench.repository import REPOSITORY

LOOK_S = 0.5
PATIENCE_S = 20.0
MB = 1e6
CPUS = 2
TAIL = 3000


class Cannot(Exception):
    """A side does not do this; the text says why, and is published."""


class Seen(NamedTuple):
    seconds: float
    """Between the marks."""
    cpu: float
    memory_mb: float
    start_seconds: float
    """From the launch to the first mark: starting, and warming up."""
    said: dict[str, Any]


def pin() -> None:
    """This process and all that it starts, brokers and sides alike, onto the same two CPUs."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:CPUS]))


def watched(command: Sequence[str], *, seconds: float, environment: Mapping[str, str] | None = None) -> Seen:
    """Runs a side to its end; `Cannot` with the reason where it said so, broke, or took longer than `seconds`."""
    launched = time.monotonic()  # before the alarm is set: what it ends is late
    with tempfile.TemporaryFile("w+") as complaints:
        side = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        watcher = _Watcher(side.pid)
        alarm = threading.Timer(seconds, _end, (side,))
        alarm.start()
        watcher.start()
        try:
            return _followed(side, watcher, complaints, launched, seconds)
        finally:
            alarm.cancel()
            watcher.done.set()
            watcher.join()
            _end(side)


def _followed(
    side: subprocess.Popen[str], watcher: _Watcher, complaints: IO[str], launched: float, seconds: float
) -> Seen:
    began: tuple[float, float] | None = None
    assert side.stdout is not None
    for line in side.stdout:
        said = _parsed(line)
        match said.get("mark"):
            case "begin":
                began = (time.monotonic(), cpu_seconds(side.pid))
            case "end" if began is not None:
                took, cpu = time.monotonic() - began[0], cpu_seconds(side.pid) - began[1]
                _let_go(side)
                return Seen(took, cpu, watcher.most / MB, began[0] - launched, said)
            case "cannot":
                raise Cannot(said["why"])
    complaints.seek(0)
    late = f"not done after {seconds:.0f} s; " if time.monotonic() - launched >= seconds else ""
    raise Cannot(f"{late}ended without an answer: {complaints.read()[-TAIL:].strip()}")


def _let_go(side: subprocess.Popen[str]) -> None:
    """It waits for the end of its standard input, and may then end as it likes; for a while."""
    assert side.stdin is not None
    side.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        side.wait(PATIENCE_S)


def _parsed(line: str) -> dict[str, Any]:
    if not line.startswith("{"):
        return {}
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _end(side: subprocess.Popen[str]) -> None:
    """With all below it: a side that is killed alone would leave its JVM behind."""
    for process in processes_of(side.pid):
        try:
            process.kill()
        except psutil.Error:
            continue
    side.wait()


class _Watcher(threading.Thread):
    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.done = threading.Event()
        self.most = 0.0

    def run(self) -> None:
        while not self.done.wait(LOOK_S):
            self.most = max(self.most, sum(map(_held_by, processes_of(self.pid))))


def _held_by(process: psutil.Process) -> float:
    try:
        return float(process.memory_full_info().pss)
    except psutil.Error:
        return 0.0
