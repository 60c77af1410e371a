"""What is printed: aligned, and never able to drive the terminal."""

from __future__ import annotations

import csv
import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.cli.main import complain
from tidelog.cli.row_formats import Shown
from tidelog.cli.tail import text_of, time_text
from tidelog.cli.terminal import (
    ProgressLine,
    count_text,
    printable,
    show_json,
    show_table,
    size_text,
    span_text,
    warn,
)


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
        with ProgressLine("backup") as progress:
            progress(500_000, 1_000_000)
        said = stream.getvalue()
        assert ("backup: 500.0 KB of 1.0 MB, 50 %" in said) is watched
        assert said.endswith("\r\x1b[K") is watched


@proves("command_line")
def test_one_of_a_thing_is_not_called_by_the_name_of_several() -> None:
    assert [count_text(count, "record") for count in (0, 1, 2)] == ["0 records", "1 record", "2 records"]


class Screen(io.StringIO):
    """Standard output, to a terminal or to a file."""

    def __init__(self, *, watched: bool) -> None:
        super().__init__()
        self._watched = watched

    def isatty(self) -> bool:
        return self._watched


EVIL = '\x1b]0;owned\x07caf\xe9 \x9b31m\x7f\u202e,"quoted"\nnext'


@proves("command_line", "hostile")
@pytest.mark.parametrize("format", ["table", "json", "csv"])
def test_no_value_of_a_row_drives_the_terminal(monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", screen := Screen(watched=True))
    with Shown(format, ["name", f"col{EVIL}"]) as shown:
        shown.rows([(EVIL, {EVIL: [EVIL]}), (EVIL.encode(), None)])
    assert all(line.isprintable() for line in screen.getvalue().split("\n")), screen.getvalue()
    assert "caf\xe9" in screen.getvalue(), "what can be printed is"
    if format == "json":
        first, second = map(json.loads, screen.getvalue().splitlines())
        assert first["name"] == second["name"] == EVIL, "escapes that JSON has itself"


@proves("command_line", "hostile")
def test_to_a_file_values_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", screen := Screen(watched=False))
    with Shown("csv", ["name"]) as shown:
        shown.rows([(EVIL,)])
    assert list(csv.reader(io.StringIO(screen.getvalue(), newline="")))[1] == [EVIL]
    monkeypatch.setattr(sys, "stdout", screen := Screen(watched=False))
    with Shown("json", ["name"]) as shown:
        shown.rows([(EVIL,)])
    assert "\x9b31m\x7f\u202e" in screen.getvalue()


@proves("command_line", "hostile")
def test_no_json_no_warning_and_no_error_drives_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, Screen(watched=True))
    show_json({EVIL: [EVIL]})
    warn(EVIL)
    complain(EVIL, 1)
    for screen in (sys.stdout, sys.stderr):
        assert isinstance(screen, Screen)
        said = screen.getvalue()
        assert said and all(line.isprintable() for line in said.split("\n")), said
    assert isinstance(sys.stdout, Screen)
    assert json.loads(sys.stdout.getvalue()) == {EVIL: [EVIL]}
