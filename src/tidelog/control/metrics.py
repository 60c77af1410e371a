"""The numbers that every part may tell of itself, and where they stand in its report. Pure.

    rows_in, rows_out, late_rows    since the part was started; rows that came too late
    lag_records, lag_seconds        what it has not read yet, and how long ago the oldest of that was written
    watermark_ms                    the event time that is complete
    state_rows, state_bytes         the state that it keeps
    batch_ms                        how long its last micro-batch with rows took
    restarts, last_error_ms         how often it was started again, when it last had a fault: its supervisor adds these

A part that has no such number leaves it out. Reports of older versions and of appliers have some elsewhere: state was
`kept`, an applier counts `rows` and how far each generation is `behind`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidelog.control.counts import OPERATORS, from_fields, lost_in

OF_SPARK = "spark "  # before the name of an operator that Spark computes, and counts


class Metrics(NamedTuple):
    rows_in: int | None = None
    rows_out: int | None = None
    late_rows: int | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    watermark_ms: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    batch_ms: int | None = None
    restarts: int | None = None
    last_error_ms: int | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """As a report has them."""
        told = {name: value for name, value in self._asdict().items() if value is not None}
        lag = {name.removeprefix("lag_"): told.pop(name) for name in ("lag_records", "lag_seconds") if name in told}
        return {**told, "lag": lag} if lag else told


def metrics_of(figures: Mapping[str, Any]) -> Metrics:
    """Of a report of anybody's: what is not a number is left out."""
    lag, kept = _mapping(figures.get("lag")), _mapping(figures.get("kept"))
    elsewhere = {
        "rows_out": figures.get("rows"),
        "lag_records": lag.get("records", _behind(figures)),
        "lag_seconds": lag.get("seconds"),
        "state_rows": kept.get("rows"),
        "state_bytes": kept.get("bytes"),
    }
    found = {name: figures.get(name, elsewhere.get(name)) for name in Metrics._fields}
    numbers: dict[str, Any] = {name: value for name, value in found.items() if isinstance(value, int | float)}
    return Metrics(**numbers)


def lost_by_operator(figures: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """What operators have dropped, by reason; those of Spark's own are marked so, and count since the query started."""
    told = {kind: from_fields({OPERATORS: figures.get(kind)}).get(OPERATORS, {}) for kind in ("operators", "by_spark")}
    found = {name: lost_in(sums) for name, sums in told["operators"].items()}
    found |= {f"{OF_SPARK}{name}": lost_in(sums) for name, sums in told["by_spark"].items()}
    return {name: lost for name, lost in found.items() if lost}


def _mapping(told: Any) -> Mapping[str, Any]:
    return told if isinstance(told, dict) else {}


def _behind(figures: Mapping[str, Any]) -> Any:
    """Of an applier: in the generation that it shows."""
    told = figures.get("generations")
    shown = [one for one in (told if isinstance(told, list) else []) if _mapping(one).get("shown")]
    return shown[0].get("behind") if shown else None
