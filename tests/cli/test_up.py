"""The options of `tidelog up`, read by hand for speed and by argparse for the rest, to the same end."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cli.command import Command
from proving import proves
from tidelog.broker.embedded import Broker
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


@proves("command_line", "T6")
def test_a_second_broker_on_a_folder_is_refused_in_a_line_with_the_pid_of_the_first(
    nowhere: Command, tmp_path: Path
) -> None:
    with Broker(tmp_path / "data", settings={"tidelog.log.level": "ERROR"}) as first:
        words = ("up", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
        ran = nowhere(*words, TIDELOG_HTTP_LISTENER="-")  # the default port may be another test's
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert f"process {first.pid}; stop that one" in ran.err


@proves("command_line", "T6")
def test_every_line_of_the_log_is_json_where_that_is_asked_for(nowhere: Command, tmp_path: Path) -> None:
    words = ("up", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    words += ("--set", "tidelog.log.format=json", "--set", "tidelog.http.listener=-")
    log = tmp_path / "log"
    with log.open("wb") as said:
        process = nowhere.start(*words, stdout=subprocess.PIPE, stderr=said)
        assert process.stdout is not None and process.stdout.readline().startswith(b"ready on ")
        process.terminate()
        assert process.wait(180) == 0
        process.stdout.close()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert all({"time", "level", "event"} <= set(line) for line in lines)
    assert "stopping" in [line["event"] for line in lines]


@proves("command_line")
def test_a_broker_names_its_folder_says_when_that_is_new_and_names_its_http_address(
    nowhere: Command, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    words = ("up", "--data", str(tmp_path / "work" / ".." / "data"), "--listen", "127.0.0.1:0")

    def lines(*more: str) -> list[str]:
        """What one that is started says first; it is stopped when it has said all of it."""
        process = nowhere.start(*words, *more, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        first = process.stdout.readline().decode()
        process.terminate()
        rest = process.stdout.read().decode()
        assert process.wait(180) == 0
        process.stdout.close()
        return (first + rest).splitlines()

    ready, data, http = lines("--set", "tidelog.http.listener=127.0.0.1:0")
    assert ready.startswith("ready on 127.0.0.1:") and data == f"data in {tmp_path}/data, which is new"
    assert http.startswith("HTTP on http://127.0.0.1:") and not http.endswith(":0")
    _, again = lines("--set", "tidelog.http.listener=-")
    assert again == f"data in {tmp_path}/data"
