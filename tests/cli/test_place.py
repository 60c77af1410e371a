"""How a place in a topic is written."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.cli.place import OffsetSpec, not_there, parse_place, parse_time
from tidelog.errors import UsageError

NOW_MS = 1_767_225_600_000


@proves("T7")
def test_a_time_of_the_clock_is_the_last_one_that_was() -> None:
    now = datetime(2026, 1, 31, 22, 34, 10)
    now_ms = int(now.timestamp() * 1000)
    for written, then in (
        ("22:33", now.replace(minute=33, second=0)),
        ("22:34", now.replace(second=0)),
        ("7:05:09", now.replace(hour=7, minute=5, second=9)),
        ("22:35", now.replace(day=30, minute=35, second=0)),
    ):
        assert parse_place(written, now_ms=now_ms) == OffsetSpec("time", int(then.timestamp() * 1000))
    with pytest.raises(UsageError, match="'24:00' is not a time of the clock; write 00:00 to 23:59"):
        parse_place("24:00")


@proves("T7")
@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("earliest", OffsetSpec("earliest")),
        ("latest", OffsetSpec("latest")),
        ("0", OffsetSpec("offset", 0)),
        ("1767225600000", OffsetSpec("offset", 1767225600000)),
        ("-10", OffsetSpec("last", 10)),
        ("@1767225600000", OffsetSpec("time", 1767225600000)),
        ("2026-01-01T00:00:00Z", OffsetSpec("time", 1767225600000)),
        ("2026-01-01T01:00:00.250+01:00", OffsetSpec("time", 1767225600250)),
        ("90s", OffsetSpec("time", NOW_MS - 90_000)),
        ("15m", OffsetSpec("time", NOW_MS - 900_000)),
        ("2h", OffsetSpec("time", NOW_MS - 7_200_000)),
        ("7d", OffsetSpec("time", NOW_MS - 604_800_000)),
        ("999999999d", OffsetSpec("time", 0)),
    ],
)
def test_each_form_means_one_thing(written: str, place: OffsetSpec) -> None:
    assert parse_place(written, now_ms=NOW_MS) == place


@proves("T7")
@pytest.mark.parametrize("written", ["earliest", "latest", "17", "-10", "noon", "24:00"])
def test_where_only_a_time_will_do_anything_else_is_told_so(written: str) -> None:
    assert parse_time("@1767225600000") == 1_767_225_600_000
    with pytest.raises(UsageError, match=f"'{written}' is not a time; write 2026-01-31T12:00, 22:33,"):
        parse_time(written)


@proves("T7")
@pytest.mark.parametrize(
    "written", ["", "-", "@", "@-1", "m", "-5m", "1.5h", "tomorrow", "٣", "2026-13-01", "99999-01-01"]
)
def test_anything_else_is_refused(written: str) -> None:
    with pytest.raises(UsageError, match="is not a place in a topic"):
        parse_place(written)


@proves("T7")
@given(st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1), timezones=st.just(UTC)))
def test_an_iso_time_is_its_milliseconds(moment: datetime) -> None:
    whole = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    assert parse_place(whole.isoformat()) == OffsetSpec("time", round(whole.timestamp() * 1000))


@proves("T7")
def test_an_offset_that_is_not_there_is_answered_with_what_may_have_been_meant() -> None:
    assert not_there(NOW_MS, 1, "one alone") == f"; for a time write @{NOW_MS}"
    assert not_there(5, 3, "one alone") == "; one alone"
    assert not_there(5, 1, "one alone") == ""
