"""How long: texts and timedeltas as milliseconds, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.errors import UsageError
from tidelog.pipelines.operators.durations import MILLISECONDS, milliseconds, positive


@proves("P8")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5 minutes", 300_000),
        ("1 hour 30 seconds", 3_630_000),
        ("INTERVAL 2 days", 172_800_000),
        ("10milliseconds", 10),
        ("1 week, 1 day", 691_200_000),
        ("0 seconds", 0),
        (timedelta(minutes=1, milliseconds=1), 60_001),
    ],
)
def test_a_duration_is_text_as_spark_takes_it_or_a_timedelta(text: str | timedelta, expected: int) -> None:
    assert milliseconds(text) == expected


@proves("P8")
@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(sorted(MILLISECONDS)), st.booleans()), min_size=1))
def test_the_parts_of_a_duration_add_up(parts: list[tuple[int, str, bool]]) -> None:
    text = " ".join(f"{count} {unit}{'s' if plural else ''}" for count, unit, plural in parts)
    assert milliseconds(text) == sum(count * MILLISECONDS[unit] for count, unit, _ in parts)


@proves("P8")
@pytest.mark.parametrize(
    "wrong",
    ["", "five minutes", "5", "-5 minutes", "5 fortnights", "1 month", "2 years", "5 minutes and", "1.5 hours"],
)
def test_what_has_no_length_in_milliseconds_is_refused_by_name(wrong: str) -> None:
    with pytest.raises(UsageError, match="size is"):
        milliseconds(wrong, what="size")


@proves("P8")
@pytest.mark.parametrize("wrong", [timedelta(microseconds=1), timedelta(seconds=-1)])
def test_a_timedelta_that_is_no_whole_milliseconds_is_refused(wrong: timedelta) -> None:
    with pytest.raises(UsageError, match="size is"):
        milliseconds(wrong, what="size")


@proves("P8")
def test_a_window_of_no_length_is_refused() -> None:
    with pytest.raises(UsageError, match="size is '0 seconds'"):
        positive("0 seconds", what="size")
