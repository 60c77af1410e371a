"""Dates and times as PostgreSQL writes them (DateStyle ISO, zone UTC) to the numbers and texts of Debezium, and back.

    date          2024-02-29 | 0044-03-15 BC | 12024-01-01 | infinity      days since 1970
    timestamp     2024-02-29 12:34:56.789 [BC]                             milliseconds or microseconds since 1970
    timestamptz   2024-02-29 12:34:56.789+00 [BC]                          ISO 8601, in UTC, as many digits as declared
    time          12:34:56.789 | 24:00:00                                  milliseconds or microseconds since midnight
    timetz        12:34:56.789+05:30                                       ISO 8601, in UTC
    interval      1 year 2 mons -3 days 04:05:06.789                       microseconds; a month is 30.4375 days

The calendar is Gregorian for all times, as PostgreSQL's. Python's dates reach from the year 1 to 9999 only, so they are
the fast way, and arithmetic is the other one. `infinity` of a date is the largest and smallest number that its schema
(int32) holds, which is what PostgreSQL keeps inside; of a timestamp it is the number that Debezium has for it.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta

DAY_US = 86_400_000_000
MONTH_US = 2_629_800_000_000  # 30.4375 days
FIRST_DAY = date(1970, 1, 1).toordinal()
FIRST = datetime(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)

DATE_INFINITY = {"infinity": 2**31 - 1, "-infinity": -(2**31)}
TIMESTAMP_INFINITY = {"infinity": 9_223_372_036_825_200_000, "-infinity": -9_223_372_036_832_400_000}

_INTERVAL = re.compile(
    r"(?:([+-]?\d+) years? ?)?(?:([+-]?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?(?:([+-]?)(\d+):(\d\d):(\d\d(?:\.\d+)?))?"
)
_OFFSET = re.compile(r"([0-9:.]+)([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?")


def days(text: str) -> int:
    if len(text) == 10 and text[4] == "-":
        return date.fromisoformat(text).toordinal() - FIRST_DAY
    if text in DATE_INFINITY:
        return DATE_INFINITY[text]
    year, month, day = _date_parts(text)
    return days_from_civil(year, month, day)


def date_text(number: int) -> str:
    for text, infinite in DATE_INFINITY.items():
        if number == infinite:
            return text
    year, month, day = civil_from_days(number)
    return f"{year:04d}-{month:02d}-{day:02d}" if year > 0 else f"{1 - year:04d}-{month:02d}-{day:02d} BC"


def microseconds(text: str) -> int:
    """Of a timestamp without a zone, since 1970."""
    if text[4:5] == "-" and text[-1] != "C":
        return (datetime.fromisoformat(text) - FIRST) // MICROSECOND
    if text in TIMESTAMP_INFINITY:
        return TIMESTAMP_INFINITY[text]
    day, time = text.removesuffix(" BC").split(" ")
    return days(day + text[-3:] if text.endswith(" BC") else day) * DAY_US + time_microseconds(time)


def timestamp_text(number: int) -> str:
    for text, infinite in TIMESTAMP_INFINITY.items():
        if number == infinite:
            return text
    day, rest = divmod(number, DAY_US)
    on, _, before_christ = date_text(day).partition(" ")
    return f"{on} {time_text(rest)}" + (" BC" if before_christ else "")


def zoned(text: str, digits: int) -> str:
    """Of a timestamp with a zone, which is UTC here."""
    if text.endswith("+00") and text[4] == "-":
        return f"{text[:10]}T{_with_digits(text[11:-3], digits)}Z"
    if text in TIMESTAMP_INFINITY:
        return text
    day, time = text.removesuffix(" BC").split(" ")
    year, month, rest = day.split("-")
    number = 1 - int(year) if text.endswith(" BC") else int(year)
    sign = "+" if number > 9999 else "-" if number < 0 else ""
    return f"{sign}{abs(number):04d}-{month}-{rest}T{_with_digits(time.removesuffix('+00'), digits)}Z"


def zoned_text(iso: str) -> str:
    """The other way: as PostgreSQL takes it."""
    if iso in TIMESTAMP_INFINITY:
        return iso
    year, month, rest = iso.removeprefix("-").removeprefix("+").split("-")
    number = -int(year) if iso.startswith("-") else int(year)
    day, time = rest[:-1].split("T")
    shown = f"{year}-{month}-{day}" if number > 0 else f"{1 - number:04d}-{month}-{day}"
    return f"{shown} {time}+00" + ("" if number > 0 else " BC")


def time_microseconds(text: str) -> int:
    seconds, _, fraction = text.partition(".")
    hour, minute, second = seconds.split(":")
    whole = (int(hour) * 60 + int(minute)) * 60 + int(second)
    return whole * 1_000_000 + (int(fraction.ljust(6, "0")) if fraction else 0)


def time_text(number: int) -> str:
    seconds, fraction = divmod(number, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02d}:{minute:02d}:{second:02d}.{fraction:06d}"


def zoned_time(text: str) -> str:
    matched = _OFFSET.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is not a time with a zone")
    time, sign, hours, minutes, seconds = matched.groups()
    east = (int(hours) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    number = time_microseconds(time) - (east if sign == "+" else -east) * 1_000_000
    if number != DAY_US:  # 24:00:00 in UTC stays
        number %= DAY_US
    whole, _, fraction = time_text(number).partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}Z" if fraction else f"{whole}Z"


def interval_microseconds(text: str) -> int:
    matched = _INTERVAL.fullmatch(text)
    if matched is None or not text:
        raise ValueError(f"{text!r} is not an interval")
    years, months, in_days, sign, hours, minutes, seconds = matched.groups()
    time = time_microseconds(f"{hours}:{minutes}:{seconds}") if hours is not None else 0
    whole = (int(years or 0) * 12 + int(months or 0)) * MONTH_US + int(in_days or 0) * DAY_US
    return whole + (-time if sign == "-" else time)


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970, by eras of 400 years that begin in March."""
    shifted = year - (month <= 2)
    era, of_era = divmod(shifted, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def civil_from_days(number: int) -> tuple[int, int, int]:
    era, of_era = divmod(number + 719_468, 146_097)
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + era * 400 + (month <= 2), month, day


def _date_parts(text: str) -> tuple[int, int, int]:
    year, month, day = text.removesuffix(" BC").split("-")
    return (1 - int(year) if text.endswith(" BC") else int(year)), int(month), int(day)


def _with_digits(time: str, digits: int) -> str:
    seconds, _, fraction = time.partition(".")
    return f"{seconds}.{fraction.ljust(digits, '0')}" if digits else seconds
