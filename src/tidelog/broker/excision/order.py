"""What is asked for, as the setting `tidelog.excise` of a topic says it. Pure.

    0:17,2:40-44 ticket 4711, sent by mistake

Places first, without blanks: partition, colon, offset or offsets from-to (both are meant). Behind the first blank is
the reason, which stays for ever; it must not say what the records said. The setting is an order, not a value: it is
carried out and not kept, and nobody can ask for it later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.errors import ConfigError

EXCISE = "tidelog.excise"
OFFSETS_MAX = 100_000  # of one order
REASON_MAX = 1000  # characters

_PLACE = re.compile(r"(\d{1,9}):(\d{1,18})(?:-(\d{1,18}))?")

Range = tuple[int, int]  # first and last offset


class ExcisionOrder(NamedTuple):
    """`places` has the offsets of each partition, in order, as ranges that do not touch."""

    places: dict[int, list[Range]]
    reason: str


def parse(text: str) -> ExcisionOrder:
    words, _, reason = text.strip().partition(" ")
    reason = " ".join(reason.split())
    if not reason:
        raise ConfigError(f"{EXCISE} has no reason; write PARTITION:OFFSET[,...], a blank, and why")
    if len(reason) > REASON_MAX:
        raise ConfigError(f"{EXCISE} has a reason of {len(reason)} characters; at most {REASON_MAX} are kept")
    places: dict[int, list[Range]] = {}
    for word in words.split(","):
        found = _PLACE.fullmatch(word)
        first, last = (int(found[2]), int(found[3] or found[2])) if found else (0, -1)
        if found is None or last < first:
            raise ConfigError(f"{word!r} of {EXCISE} is not a place; write PARTITION:OFFSET or PARTITION:FIRST-LAST")
        places.setdefault(int(found[1]), []).append((first, last))
    merged = {index: merge(ranges) for index, ranges in sorted(places.items())}
    count = sum(last - first + 1 for ranges in merged.values() for first, last in ranges)
    if count > OFFSETS_MAX:
        raise ConfigError(f"{EXCISE} names {count} offsets; at most {OFFSETS_MAX} at once")
    return ExcisionOrder(merged, reason)


def merge(ranges: Iterable[Sequence[int]]) -> list[Range]:
    merged: list[Range] = []
    for first, last in sorted((first, last) for first, last in ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


def offsets_of(ranges: Iterable[Sequence[int]]) -> list[int]:
    return [offset for first, last in ranges for offset in range(first, last + 1)]


def ranges_text(ranges: Iterable[Sequence[int]]) -> str:
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
