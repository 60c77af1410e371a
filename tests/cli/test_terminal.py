"""What is printed: aligned, and never able to drive the terminal."""

from __future__ import annotations

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.cli.tail import text_of, time_text
from tidelog.cli.terminal import Progress, count_text, printable, show_table, size_text, span_text


@proves("command_line")
@given(st.text(st.characters(codec=None)) | st.text())
def test_nothing_unprintable_is_ever_printed(text: str) -> None:
    assert printable(text).isprintable()
    if text.isprintable():
        assert printable(text) == text


@proves("command_line")
@given(st.binary())
def test_bytes_are_shown_as_text_with_escapes(data: bytes) -> None:
    assert text_of(data).isprintable()


@proves("command_line")
def test_bytes_that_are_not_utf8_are_shown_by_number() -> None:
    assert text_of(b"caf\xc3\xa9 \xff\x00\x1b[31m\n") == "café \\xff\\x00\\x1b[31m\\n"
    assert text_of(None) == "(null)"


@proves("command_line")
@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_767_225_600_007, "2026-01-01T00:00:00.007Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (2**62, str(2**62)),
    ],
)
def test_times_are_shown_in_utc(timestamp: int, shown: str) -> None:
    assert time_text(timestamp) == shown


@proves("command_line")
@pytest.mark.parametrize(
    ("size", "shown"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (1_234_567, "1.2 MB"), (10**21, "1000000.0 PB")]
)
def test_sizes_are_shown_in_units(size: int, shown: str) -> None:
    assert size_text(size) == shown


@proves("command_line")
def test_tables_are_aligned_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("name", "lag"), [("a", 5), ("longer\n", 1234), ("b", None)])
    assert capsys.readouterr().out.splitlines() == [
        "NAME       LAG",
        "a            5",
        "longer\\n  1234",
        "b            -",
    ]


@proves("command_line")
@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (999, "0s"),
        (59_000, "59s"),
        (60_000, "1m"),
        (65_000, "1m 5s"),
        (3_600_000, "1h"),
        (3_605_000, "1h"),
        (86_399_000, "23h 59m"),
        (86_400_000 * 6 + 4 * 3_600_000, "6d 4h"),
        (86_400_000 * 400, "400d"),
    ],
)
def test_a_length_of_time_has_its_two_largest_units(ms: int, text: str) -> None:
    assert span_text(ms) == text


@proves("command_line")
def test_progress_is_a_line_that_changes_on_a_terminal_and_nothing_in_a_short_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for watched in (True, False):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda watched=watched: watched)
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress("backup") as progress:
            progress(500_000, 1_000_000)
        said = stream.getvalue()
        assert ("backup: 500.0 KB of 1.0 MB, 50 %" in said) is watched
        assert said.endswith("\r\x1b[K") is watched


@proves("command_line")
def test_one_of_a_thing_is_not_called_by_the_name_of_several() -> None:
    assert [count_text(count, "record") for count in (0, 1, 2)] == ["0 records", "1 record", "2 records"]
