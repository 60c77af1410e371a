"""How far a query is: from Spark's own progress and from the log. Pure but for `lag_of`.

rows_in, rows_out     read and written since the query was started, in the micro-batches that Spark has told of; the
                      writer knows of its rows before that
rate                  rows a second in the last micro-batch that had rows
watermark, late       event time that is complete; how far the watermark is behind the clock; rows that came too late
state size            rows and bytes that its operators keep
held                  of these, rows and open windows that Spark's own operators put out when the watermark has come
group                 the one that its offsets are reported as
lag                   records not yet read, and the age of the oldest of them in seconds
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.control import lag
from tidelog.control.counts import DUPLICATES, KEPT, LATE
from tidelog.control.metrics import OF_SPARK

GROUP_PREFIX = "tidelog."
SPARKS_DUPLICATES = "numDroppedDuplicateRows"
SEEN_MAX = 10_000  # Spark tells of its last hundred again and again
WRITING = "addBatch"  # what only a micro-batch has a duration of


class Lag(NamedTuple):
    records: int
    seconds: float

    @property
    def fields(self) -> dict[str, float]:
        """As a report has them."""
        return {"records": self.records, "seconds": self.seconds}


@dataclass(slots=True)
class Progress:
    """Of one query since it was started."""

    batch: int = -1
    rows_in: int = 0
    rate: float = 0.0
    watermark_ms: int | None = None
    by_spark: dict[str, dict[str, int]] = field(default_factory=dict)  # what became of rows in Spark's own operators
    state_rows: int = 0
    state_bytes: int = 0
    batch_ms: int = 0
    rows_by_operator: dict[str, int] = field(default_factory=dict)
    seen: dict[str, None] = field(default_factory=dict)  # in the order in which they came

    @property
    def last(self) -> str | None:
        """The timestamp of the newest that is known."""
        return next(reversed(self.seen), None)

    def take(self, told: Iterable[Mapping[str, Any]]) -> None:
        """What Spark has told of its last micro-batches; those that are known are passed over."""
        for one in told:
            if one["timestamp"] in self.seen:
                continue
            self.seen[one["timestamp"]] = None
            if len(self.seen) > SEEN_MAX:
                del self.seen[next(iter(self.seen))]
            self._take(one)

    def _take(self, one: Mapping[str, Any]) -> None:
        rows, durations = int(one.get("numInputRows") or 0), one.get("durationMs") or {}
        if is_micro_batch(one):
            self.batch = int(one["batchId"])
        self.rows_in += rows
        if rows:
            self.rate = round(float(one.get("processedRowsPerSecond") or 0.0), 1)
            self.batch_ms = int(durations.get("triggerExecution") or 0)
        watermark = (one.get("eventTime") or {}).get("watermark")
        if watermark and (at := _ms(watermark)) > 0:
            self.watermark_ms = at
        operators = one.get("stateOperators") or []
        if operators:
            self.state_rows = sum(int(op.get("numRowsTotal") or 0) for op in operators)
            self.state_bytes = sum(int(op.get("memoryUsedBytes") or 0) for op in operators)
            self.rows_by_operator = _rows_of(operators)
            for name, counted in _counted_by(operators):
                sums = self.by_spark.setdefault(name, {})
                for what, number in counted.items():
                    sums[what] = sums.get(what, 0) + number

    def fields(self, now_ms: int, operators: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[str, Any]:
        """`operators`: what became of rows in ours, and in Spark's own."""
        late = sum(sums.get(LATE, 0) for kind in operators.values() for sums in kind.values())
        behind = None if self.watermark_ms is None else round((now_ms - self.watermark_ms) / 1000)
        return {
            "batch": self.batch,
            "rows_in": self.rows_in,
            "rate": self.rate,
            "batch_ms": self.batch_ms,
            "watermark_ms": self.watermark_ms,
            "watermark_behind_s": behind,
            "late_rows": late,
            **operators,
            "state_rows": self.state_rows,
            "state_bytes": self.state_bytes,
        }


def is_micro_batch(one: Mapping[str, Any]) -> bool:
    """Of a trigger that has found nothing Spark tells now and then, too, by the number of the micro-batch to come."""
    return WRITING in (one.get("durationMs") or {})


def _rows_of(operators: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """That each of Spark's own operators keeps, by the name that it has for it."""
    found: Counter[str] = Counter()
    for one in operators:
        found[str(one.get("operatorName") or "operator")] += int(one.get("numRowsTotal") or 0)
    return dict(found)


def _counted_by(operators: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, int]]]:
    """Of Spark's own, by the name that it has for each. A fold of ours counts for itself what is late. A deduplication
    also tells of duplicates, and of rows that it has kept.
    """
    names = Counter[str]()
    for one in operators:
        name = str(one.get("operatorName") or "operator")
        names[name] += 1
        counted = {LATE: int(one.get("numRowsDroppedByWatermark") or 0)}
        if (duplicates := (one.get("customMetrics") or {}).get(SPARKS_DUPLICATES)) is not None:
            counted |= {DUPLICATES: int(duplicates), KEPT: int(one.get("numRowsUpdated") or 0)}
        if any(counted.values()):
            told = {what: number for what, number in counted.items() if number}
            yield name if names[name] == 1 else f"{name} {names[name]}", told


def _ms(iso: str) -> int:
    return int(datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp() * 1000)


def held_by_spark(rows: Mapping[str, int], holding: Iterable[str]) -> dict[str, int]:
    """`holding`: how names of operators begin that hold rows in this query."""
    names = tuple(holding)
    return {f"{OF_SPARK}{name}": number for name, number in rows.items() if number and name.startswith(names)}


def lag_of(cluster: Cluster, group: str) -> Lag | None:
    """By the group that a query reports to; None before its first micro-batch."""
    unread = lag.of_group(cluster, group)
    if not unread:
        return None
    ages = [one.age_ms for one in unread if one.records and one.age_ms is not None]
    return Lag(sum(one.records or 0 for one in unread), round(max(ages, default=0) / 1000, 1))
