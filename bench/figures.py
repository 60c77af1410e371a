"""Figures as they are taken: one value per row, metric, side and repetition; what is shown is the median."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any


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


def times_better(ours: float | None, theirs: float | None, *, large_is_good: bool) -> float | None:
    """More of what should be large, less of what should be small: above 1, ours is ahead. None without both."""
    if not ours or not theirs:
        return None
    return ours / theirs if large_is_good else theirs / ours
