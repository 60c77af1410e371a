"""How long: a `timedelta`, or text as Spark takes it ("5 minutes", "1 hour 30 seconds"), as whole milliseconds.

A month has no length, and what is shorter than a millisecond is nothing to Spark's watermark: both are refused.
"""

from __future__ import annotations

import re
from datetime import timedelta

from tidelog.errors import UsageError

Duration = str | timedelta

MILLISECONDS = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
WITHOUT_LENGTH = {"month": "4 weeks", "quarter": "13 weeks", "year": "365 days"}
PART = re.compile(r"(\d+)\s*([a-z]+?)s?(?=$|[\s\d,])[\s,]*")


def milliseconds(duration: Duration, *, what: str = "duration") -> int:
    """`what` names the argument in an error. Zero is a duration; a negative one is not."""
    if isinstance(duration, timedelta):
        return _whole(duration, what)
    text = duration.strip().lower().removeprefix("interval ").strip()
    total, position = 0, 0
    while position < len(text) and (part := PART.match(text, position)):
        total += int(part[1]) * _unit(part[2], duration, what)
        position = part.end()
    if not text or position < len(text):
        raise UsageError(
            f"{what} is {duration!r}, which is not a duration; write it like '5 minutes' or '1 hour 30 seconds'"
        )
    return total


def positive(duration: Duration, *, what: str) -> int:
    if not (found := milliseconds(duration, what=what)):
        raise UsageError(f"{what} is {duration!r}, and has to be longer than that")
    return found


def _whole(duration: timedelta, what: str) -> int:
    found = duration // timedelta(milliseconds=1)
    if found < 0 or timedelta(milliseconds=found) != duration:
        raise UsageError(f"{what} is {duration!r}, and has to be a whole number of milliseconds, not below 0")
    return found


def _unit(name: str, duration: Duration, what: str) -> int:
    if name in WITHOUT_LENGTH:
        raise UsageError(
            f"{what} is {duration!r}, but a {name} has no fixed length; write {WITHOUT_LENGTH[name]!r}, say"
        )
    if name not in MILLISECONDS:
        raise UsageError(f"{what} is {duration!r}, but {name!r} is not a unit; units are {', '.join(MILLISECONDS)}")
    return MILLISECONDS[name]
