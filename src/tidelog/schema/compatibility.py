"""How a subject's schemas may change: one table of levels, and a check against those that were there before.

level        the new one reads the old   the old one reads the new   against
BACKWARD     yes                                                     the last
FORWARD                                  yes                         the last
FULL         yes                         yes                         the last
*_TRANSITIVE                                                         all of them
NONE         anything goes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.schema.bounds import REASONS_MAX
from tidelog.schema.formats import compatible
from tidelog.schema.schema import Reason, Schema


class Level(NamedTuple):
    new_reads_old: bool
    old_reads_new: bool
    against_all: bool


LEVELS = {
    "NONE": Level(False, False, False),
    "BACKWARD": Level(True, False, False),
    "BACKWARD_TRANSITIVE": Level(True, False, True),
    "FORWARD": Level(False, True, False),
    "FORWARD_TRANSITIVE": Level(False, True, True),
    "FULL": Level(True, True, False),
    "FULL_TRANSITIVE": Level(True, True, True),
}
DEFAULT_LEVEL = "BACKWARD"


class Conflict(NamedTuple):
    """`earlier` is the place in what was given of the schema that the new one does not get on with."""

    earlier: int
    reason: Reason


def conflicts(level: str, new: Schema, earlier: Sequence[Schema]) -> list[Conflict]:
    """`earlier` from the first to the last. Empty when the new one may come."""
    rule = LEVELS[level]
    found: list[Conflict] = []
    first = 0 if rule.against_all else max(len(earlier) - 1, 0)
    for place in range(len(earlier) - 1, first - 1, -1):
        reasons: list[Reason] = []
        if rule.new_reads_old:
            reasons += compatible(new, earlier[place])
        if rule.old_reads_new:
            reasons += compatible(earlier[place], new)
        found += [Conflict(place, reason) for reason in reasons]
        if len(found) >= REASONS_MAX:
            break
    return found[:REASONS_MAX]
