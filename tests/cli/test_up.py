"""The options of `tidelog up`, read by hand for speed and by argparse for the rest, to the same end."""

from __future__ import annotations

import socket
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cli.command import Command
from proving import proves
from tidelog.cli.up import Choice, careful, quick
from tidelog.errors import UsageError

words = st.one_of(
    st.sampled_from(
        ["--data", "--listen", "--set", "--sett", "--data=x", "-h", "", "-", "--", "a=b", "k=v=w", "=", "a=", "dir"]
    ),
    st.text(max_size=5),
)


@proves("start_up")
@given(st.lists(words, max_size=6))
def test_what_is_read_by_hand_argparse_reads_the_same(arguments: list[str]) -> None:
    choice = quick(arguments)
    if choice is not None:
        assert careful(arguments) == choice


@proves("start_up")
def test_the_plain_forms_are_read_by_hand() -> None:
    assert quick([]) == Choice(None, None, [])
    given_words = ["--data", "d", "--set", "num.partitions=3", "--listen", "127.0.0.1:0", "--set", "a=b=c"]
    assert quick(given_words) == Choice("d", "127.0.0.1:0", [("num.partitions", "3"), ("a", "b=c")])


@proves("start_up")
def test_mistakes_are_left_to_argparse() -> None:
    for wrong in (["--data"], ["--set", "nothing"], ["--set", "=x"], ["extra"], ["--port", "1"]):
        assert quick(wrong) is None
        try:
            careful(wrong)
        except UsageError as error:
            assert "see `tidelog up --help`" in str(error)
        else:
            raise AssertionError(wrong)
    assert careful(["--data=d", "--set=a=b"]) == Choice("d", None, [("a", "b")])


@proves("command_line")
def test_a_port_that_is_taken_is_a_failure_and_no_wrong_usage(nowhere: Command, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = nowhere("up", "--data", str(tmp_path / "data"), "--listen", address)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        f"tidelog: cannot listen on {address}: address already in use;"
        " stop what uses the port, or give another with --listen HOST:PORT\n"
    )
