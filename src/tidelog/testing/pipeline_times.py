"""Times in tests as one would say them: `at("10:03:20")`.

A text is a whole time ("2026-03-01 10:03:20") or a time of day, which is on DAY. It is this machine's local time, as
every time without a zone is for PySpark, in rows that go in and in rows that come out. Pure, but for that zone.
"""

from __future__ import annotations

from datetime import date, datetime, time

from tidelog.errors import UsageError

DAY = date(2026, 1, 1)

Moment = datetime | str


def at(moment: Moment) -> datetime:
    """`at("10:03")` is three minutes past ten on 1 January 2026; `at("2026-03-01 10:03")` is as it says."""
    if isinstance(moment, datetime):
        return moment
    try:
        return datetime.combine(DAY, time.fromisoformat(moment))
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(moment)
    except ValueError:
        raise UsageError(f"{moment!r} is not a time; write it like '10:03:20' or '2026-03-01 10:03:20'") from None


def epoch_ms(moment: Moment) -> int:
    return int(at(moment).timestamp() * 1000)


def from_epoch_ms(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000)
