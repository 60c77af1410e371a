"""What is printed: aligned, and never able to drive the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.cli.tail import text_of, time_text
from tidelog.cli.terminal import printable, show_table, size_text


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
