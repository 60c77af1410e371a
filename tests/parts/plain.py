"""Plain parts, without Spark or a process, that note what they are told."""

from __future__ import annotations

from threading import Event
from typing import Any

from tidelog.control.metrics import Metrics
from tidelog.parts.part import Fault
from tidelog.parts.supervision import fault_of


class Doomed:
    """A part that cannot be started, or one that runs until it is stopped."""

    kind = "query"
    reports_as: str | None = None

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name = name
        self.error = error
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")
        if self.error is not None:
            raise self.error

    def look(self) -> Fault | None:
        return None

    def stop(self) -> None:
        self.calls.append("stop")

    def figures(self) -> dict[str, Any]:
        return {"rows_in": 0}

    def fault_of(self, error: Exception) -> Fault:
        return fault_of(error)


class Counting:
    """A blocking loop: it counts, and has the faults that it is given, one each time that it is run."""

    kind = "capture"

    def __init__(self, name: str, *faults: Exception) -> None:
        self.name = name
        self.faults = list(faults)
        self.runs = 0
        self.works = Event()

    def run(self, stopping: Event) -> None:
        self.runs += 1
        if self.faults:
            raise self.faults.pop(0)
        self.works.set()
        stopping.wait()
        self.works.clear()

    def figures(self) -> dict[str, Any]:
        return {"database": "shop", **Metrics(rows_out=self.runs, lag_records=3, state_bytes=70).fields}
