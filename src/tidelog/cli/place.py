"""How people say where in a topic: `earliest`, `latest`, an offset, a time, so long ago, or the last N records.

    earliest            the first record that is still there
    latest              the end: only what comes from now on
    1234                the offset 1234
    @1767225600000      the first record at or after this time (milliseconds since 1970)
    2026-01-01T09:30    the same in ISO 8601; without a zone it is this machine's local time
    22:33               the last time that the clock here showed this
    90s 15m 2h 7d       that long ago
    -10                 the last 10 offsets of each partition; where records are shown, its last 10 records

A plain number is always an offset: a guess by its size would one day be wrong. A time is written as a time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.metadata import TopicPartition

NUMBER_MAX = (1 << 63) - 1  # offsets and milliseconds are 64 bits wide
SECONDS_IN = {"s": 1, "m": 60, "h": 3600, "d": 86400}
CLOCK = re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?")
LIKE_A_TIME = 10**11  # in milliseconds, March of 1973; in offsets, more than one disk holds
TIME_HELP = "2026-01-31T12:00, 22:33, @MILLISECONDS, or 2h for two hours ago"
PLACE_HELP = "earliest, latest, OFFSET, a time (ISO 8601, 22:33 or @MILLISECONDS), so long ago (90s 15m 2h 7d)"


class OffsetSpec(NamedTuple):
    kind: str  # earliest, latest, offset, time, last
    number: int = 0


def parse_place(text: str, *, now_ms: int | None = None) -> OffsetSpec:
    place = _place(text, now_ms)
    if place.number > NUMBER_MAX:
        raise UsageError(f"{text!r} is too large; an offset or a time in milliseconds is at most {NUMBER_MAX}")
    return place


def parse_time(text: str) -> int:
    """Where only a time will do; in milliseconds."""
    try:
        place = parse_place(text)
    except UsageError:
        place = OffsetSpec("latest")
    if place.kind != "time":
        raise UsageError(f"{text!r} is not a time; write {TIME_HELP}")
    return place.number


def not_there(number: int, partitions: int, alone: str) -> str:
    """What to do about an offset that one of so many partitions does not have, as the end of an error message."""
    if number >= LIKE_A_TIME:
        return f"; for a time write @{number}"
    return f"; {alone}" if partitions > 1 else ""


def _place(text: str, now_ms: int | None) -> OffsetSpec:
    if text in ("earliest", "latest"):
        return OffsetSpec(text)
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit():
        return OffsetSpec("offset", int(text)) if digits == text else OffsetSpec("last", int(digits))
    if text[:1] == "@" and text[1:].isascii() and text[1:].isdigit():
        return OffsetSpec("time", int(text[1:]))
    if text[-1:] in SECONDS_IN and text[:-1].isascii() and text[:-1].isdigit():
        now = int(time.time() * 1000) if now_ms is None else now_ms
        return OffsetSpec("time", max(0, now - int(text[:-1]) * SECONDS_IN[text[-1]] * 1000))
    if CLOCK.fullmatch(text):
        return OffsetSpec("time", _clock_ms(text, now_ms))
    return OffsetSpec("time", _iso_ms(text))


def _clock_ms(text: str, now_ms: int | None) -> int:
    from datetime import datetime, timedelta

    now = datetime.fromtimestamp((time.time() * 1000 if now_ms is None else now_ms) / 1000)
    hour, minute, *second = (int(part) for part in text.split(":"))
    try:
        at = now.replace(hour=hour, minute=minute, second=second[0] if second else 0, microsecond=0)
    except ValueError:
        raise UsageError(f"{text!r} is not a time of the clock; write 00:00 to 23:59") from None
    return int((at if at <= now else at - timedelta(days=1)).timestamp() * 1000)


def _iso_ms(text: str) -> int:
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{text!r} is not a place in a topic; write {PLACE_HELP}") from None


def resolve(
    cluster: Cluster, place: OffsetSpec, partitions: Iterable[TopicPartition], *, committed: bool = False
) -> dict[TopicPartition, int]:
    """The offset that `place` means in each partition now. A time after the last record means the end, which for who
    reads what is `committed` is where the oldest open transaction begins.
    """
    from tidelog.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets

    wanted = list(partitions)
    if place.kind == "offset":
        return dict.fromkeys(wanted, place.number)
    if place.kind == "earliest":
        return {at: found.offset for at, found in list_offsets(cluster, dict.fromkeys(wanted, EARLIEST)).items()}
    isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
    latest = list_offsets(cluster, dict.fromkeys(wanted, LATEST), isolation=isolation)
    ends = {at: found.offset for at, found in latest.items()}
    if place.kind == "latest":
        return ends
    if place.kind == "time":
        found = list_offsets(cluster, dict.fromkeys(wanted, place.number))
        return {at: found[at].offset if found[at].offset >= 0 else ends[at] for at in wanted}
    starts = resolve(cluster, OffsetSpec("earliest"), wanted)
    return {at: max(starts[at], ends[at] - place.number) for at in wanted}
