"""A query of a run that runs nothing: it notes what the run tells it, so that a test needs no Spark."""

from __future__ import annotations

from tidelog.parts.part import Fault
from tidelog.pipelines.parts import QueryPart
from tidelog.pipelines.placing import Target


class NotingQuery(QueryPart):
    def __init__(self, target: Target) -> None:
        super().__init__(target, lambda _: None, {}, {})  # type: ignore[arg-type, return-value]
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append(f"start {self.target.sink}")

    def look(self) -> Fault | None:
        return None

    def stop(self) -> None:
        self.calls.append(f"stop {self.target.sink}")
