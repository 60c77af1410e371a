"""What a run says of records and rows that are lost to it: at the first of a kind, then once a minute. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.control.counts import PASSED, RECORDS, Counts

AGAIN_S = 60.0
WORDS = {
    "late": "late",
    "without_time": "without an event time",
    "without_key": "without a key",
}

Kind = tuple[str, str]  # of what, and why


class Losses:
    """Of one part."""

    def __init__(self) -> None:
        self._told: dict[Kind, tuple[int, float]] = {}  # how many, and when

    def news(self, counts: Counts, dropped: Mapping[str, Mapping[str, int]], now: float) -> list[str]:
        """Sentences about what has grown since it was told, but for what was told less than a minute ago."""
        found = []
        for kind, number, text in (*_of_records(counts), *_of_rows(dropped)):
            before, at = self._told.get(kind, (0, now - AGAIN_S))
            if number > before and now - at >= AGAIN_S:
                self._told[kind] = (number, now)
                found.append(text)
        return found


def _of_records(counts: Counts) -> Iterator[tuple[Kind, int, str]]:
    for topic, sums in counts.get(RECORDS, {}).items():
        for reason, number in sums.items():
            why = "passed" if reason == PASSED else f"not decoded: {reason}"
            told = f"left out since it was first run: {number:,} record{'s' * (number > 1)} of {topic}, {why}"
            yield (topic, reason), number, told


def _of_rows(dropped: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[Kind, int, str]]:
    for operator, sums in dropped.items():
        for reason, number in sums.items():
            why = WORDS.get(reason, reason)
            told = f"dropped so far by operator {operator}: {number:,} row{'s' * (number > 1)}, {why}"
            yield (operator, reason), number, told
