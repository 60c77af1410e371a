"""Figures as they are taken: one value per row, metric, side and repetition; what is shown is the median."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

TIDELOG_DISK = "tidelog, synced"
TIDELOG_MEMORY = "tidelog, memory"
KAFKA = "kafka, default"
KAFKA_DISK = "kafka, synced"
MOCK = "mock in C"
SIDES = (TIDELOG_DISK, TIDELOG_MEMORY, KAFKA, KAFKA_DISK, MOCK)


class Figures:
    def __init__(self) -> None:
        self._values: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, row: str, metric: str, side: str, value: float) -> None:
        self._values[row, metric][side].append(value)

    def rows(self) -> list[tuple[str, str]]:
        return list(self._values)

    def median(self, row: str, metric: str, side: str) -> float | None:
        values = self._values.get((row, metric), {}).get(side)
        return statistics.median(values) if values else None

    def spread(self, row: str, metric: str, side: str) -> tuple[float, float] | None:
        values = self._values.get((row, metric), {}).get(side)
        return (min(values), max(values)) if values else None

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {"row": row, "metric": metric, "side": side, "values": values}
            for (row, metric), sides in self._values.items()
            for side, values in sides.items()
        ]

    def load(self, entries: list[dict[str, Any]]) -> None:
        """Puts figures of an earlier run back, except for rows that this run has taken anew."""
        taken = {row for row, _ in self._values}
        for entry in entries:
            if entry["row"] not in taken:
                self._values[entry["row"], entry["metric"]][entry["side"]] = entry["values"]
