"""Counts that ride in marks: what became of records and rows, summed over all micro-batches of a sink. Pure.

    {"records":   {TOPIC:    {"passed": 1, "amount: the value is of another type": 3}},
     "operators": {OPERATOR: {"in": 100, "late": 2, "without_time": 1}}}

Rules:
- Sums only grow, but for HELD, which is how many rows an operator holds now. They are written in the transaction of
  the rows that they are about, so a kill cannot change them.
- A name has at most NAMES_MAX kinds of things that are counted; more are OTHER, so that a mark stays small.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Sums = Mapping[str, int]
Counts = Mapping[str, Mapping[str, Sums]]

RECORDS, OPERATORS = KINDS = ("records", "operators")
PASSED, OTHER = "passed", "other"
HELD = "held"
DUPLICATES, KEPT = "duplicates", "kept"  # of a deduplication
LATE, WITHOUT_TIME, WITHOUT_KEY = LOST = ("late", "without_time", "without_key")
NAMES_MAX = 50
NOTHING: Counts = {}
_PLACE = re.compile(r",? at byte \d+$")
_NUMBER = re.compile(r"\d+")


def added(before: Counts, more: Counts) -> dict[str, dict[str, dict[str, int]]]:
    """Both, without what is 0."""
    kinds = [kind for kind in KINDS if kind in before or kind in more]
    made = {kind: _added(before.get(kind, {}), more.get(kind, {})) for kind in kinds}
    return {kind: names for kind, names in made.items() if names}


def _added(before: Mapping[str, Sums], more: Mapping[str, Sums]) -> dict[str, dict[str, int]]:
    made = {name: _sums(before.get(name, {}), more.get(name, {})) for name in sorted({*before, *more})}
    return {name: sums for name, sums in made.items() if sums}


def _sums(before: Sums, more: Sums) -> dict[str, int]:
    made = dict(before)
    for name, number in sorted(more.items()):
        kept = name if name in made or len(made) < NAMES_MAX else OTHER
        made[kept] = made.get(kept, 0) + number
    return {name: number for name, number in sorted(made.items()) if number}


def to_fields(counts: Counts) -> dict[str, Any]:
    return added(NOTHING, counts)


def from_fields(told: Any) -> Counts:
    """What is not a count is left out: a mark is read for more than its counts."""
    if not isinstance(told, dict):
        return NOTHING
    return {
        kind: {
            str(name): {str(what): number for what, number in sums.items() if isinstance(number, int)}
            for name, sums in told[kind].items()
            if isinstance(sums, dict)
        }
        for kind in KINDS
        if isinstance(told.get(kind), dict)
    }


def reason_of(said: str) -> str:
    """A reason that many records can share: without the byte where it was, and other numbers."""
    return _NUMBER.sub("N", _PLACE.sub("", said))[:200]


def losses(*, late: int = 0, without_time: int = 0, without_key: int = 0) -> dict[str, int]:
    """What an operator says of rows that it drops; nothing where it drops none."""
    numbers = zip(LOST, (late, without_time, without_key), strict=True)
    return {name: int(number) for name, number in numbers if number}


def held_in(counts: Counts) -> dict[str, int]:
    """How many rows wait for the watermark, by operator."""
    operators = counts.get(OPERATORS, {})
    return {name: sums[HELD] for name, sums in operators.items() if sums.get(HELD, 0) > 0}


def lost_in(sums: Sums) -> dict[str, int]:
    """What an operator has dropped, by reason."""
    return {name: sums[name] for name in LOST if sums.get(name)}
