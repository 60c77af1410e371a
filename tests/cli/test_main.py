"""What holds for every command: help, exit codes, errors of one line, colours, and how little is loaded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cli.command import Command, on_a_terminal
from proving import proves
from tidelog.cli.main import COMMANDS


@proves("command_line")
@pytest.mark.real_interpreter
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(nowhere: Command, command: str) -> None:
    ran = nowhere(command, "--help")
    assert ran.code == 0
    assert f"usage: tidelog {command}" in ran.out
    assert f"tidelog {command}" in ran.out.partition("examples:")[2]


@proves("command_line")
def test_help_lists_every_command_and_the_exit_codes(nowhere: Command) -> None:
    ran = nowhere.ok("--help")
    assert all(f"\n  {command} " in ran.out for command in COMMANDS)
    assert "exit codes: 0 done, 1 it failed, 2 wrong usage, 3 no broker reached, 130 interrupted" in ran.out
    assert nowhere().code == 2


@proves("command_line")
def test_the_version_is_said(nowhere: Command) -> None:
    from tidelog import __version__

    assert nowhere.ok("--version").out == f"tidelog {__version__}\n"


@proves("command_line")
@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["--bootstrap", "127.0.0.1:9092", "topics"],
        ["topics", "nonsense"],
        ["topics", "create"],
        ["topics", "create", "a", "--partitions", "0"],
        ["topics", "create", "a", "--set", "nothing"],
        ["topics", "alter", "a"],
        ["topics", "--timeout", "never"],
        ["tail"],
        ["tail", "a", "--from", "somewhere"],
        ["tail", "a", "--json", "--values"],
        ["reset", "g", "t"],
        ["produce", "a", "--key", "k", "--key-separator", ":"],
        ["produce", "a", "--acks", "2"],
        ["configs"],
        ["configs", "describe", "topic"],
        ["configs", "describe", "broker", "first"],
        ["tail", "a", "--from", "@99999999999999999999"],
        ["tail", "a", "--partition", "-1"],
        ["completion", "cmd"],
        ["topics", "--bootstrap", "host:port"],
        ["up", "--set", "nothing"],
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(nowhere: Command, words: list[str]) -> None:
    ran = nowhere(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("tidelog: ") and ran.err.count("\n") == 1


@proves("command_line")
@pytest.mark.parametrize(
    "words",
    [
        ["topics"],
        ["groups"],
        ["tail", "a"],
        ["produce", "a"],
        ["reset", "g", "t", "--to", "earliest"],
        ["configs", "describe", "broker"],
    ],
)
def test_no_broker_is_one_line_with_the_address_and_exit_code_3(nowhere: Command, words: list[str]) -> None:
    ran = nowhere(*words)
    assert (ran.code, ran.out) == (3, "")
    assert "127.0.0.1:1" in ran.err and "connection refused" in ran.err and ran.err.count("\n") == 1


@proves("command_line")
@pytest.mark.real_interpreter
def test_bootstrap_on_the_line_is_stronger_than_the_environment(tidelog: Command) -> None:
    assert tidelog("topics", "--bootstrap", "127.0.0.1:2").code == 3
    assert tidelog("--help", TIDELOG_BOOTSTRAP="127.0.0.1:2").code == 0
    at = tidelog.environment["TIDELOG_BOOTSTRAP"]
    assert tidelog("topics", "--bootstrap", at, TIDELOG_BOOTSTRAP="127.0.0.1:2").code == 0
    assert tidelog("topics", "--bootstrap", f"127.0.0.1:2,{at}", "list", TIDELOG_BOOTSTRAP="").code == 0


@proves("command_line")
def test_a_refusal_of_the_broker_is_exit_code_1(tidelog: Command, topic: str) -> None:
    ran = tidelog("topics", "describe", topic)
    assert (ran.code, ran.out) == (1, "")
    assert "UNKNOWN_TOPIC_OR_PARTITION (3)" in ran.err and ran.err.count("\n") == 1


@proves("command_line")
@pytest.mark.real_interpreter
def test_tracebacks_are_shown_when_asked_for(nowhere: Command) -> None:
    assert "Traceback" not in nowhere("topics").err
    assert "Traceback" in nowhere("topics", TIDELOG_DEBUG="1").err


@proves("command_line")
def test_colours_are_for_terminals_and_can_be_turned_off(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic)
    assert "\x1b[" not in tidelog.ok("topics").out
    assert "\x1b[" in on_a_terminal(tidelog, "topics")
    assert "\x1b[" not in on_a_terminal(tidelog, "topics", NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal(tidelog, "topics", TERM="dumb")


@proves("command_line")
@pytest.mark.real_interpreter
def test_a_reader_that_has_had_enough_ends_the_command_quietly(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic, "--partitions", "1")
    tidelog.ok("produce", topic, stdin="line\n" * 20_000)
    line = " ".join([*tidelog.line("tail", topic, "--from", "earliest"), "| head -n 1"])
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line], env=tidelog.environment, capture_output=True, text=True, timeout=300
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.count("\n") == 1


@proves("command_line")
@pytest.mark.real_interpreter
@pytest.mark.parametrize("words", [["--help"], ["--version"], ["tail", "--help"], ["help"], ["completion", "bash"]])
def test_output_that_nobody_reads_is_no_traceback(nowhere: Command, words: list[str]) -> None:
    assert unread(nowhere, words, errors_too=False) == (0, "")


@proves("command_line")
@pytest.mark.real_interpreter
@pytest.mark.parametrize(("words", "code"), [(["nonsense"], 2), (["topics", "--bootstrap", "127.0.0.1:1"], 3)])
def test_an_error_that_nobody_reads_still_has_its_exit_code(nowhere: Command, words: list[str], code: int) -> None:
    assert unread(nowhere, words, errors_too=True) == (code, "")


@proves("command_line")
def test_what_a_command_came_to_is_kept_when_nobody_reads_its_last_line() -> None:
    program = """
import sys
from types import SimpleNamespace
from tidelog.cli.main import main
sys.modules["tidelog.cli.status"] = SimpleNamespace(run=lambda words: print("a part has failed") or 1)
sys.exit(main(["status"]))
"""
    reads, writes = os.pipe()
    os.close(reads)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    line = [sys.executable, "-c", program]
    with os.fdopen(writes, "wb") as pipe:
        ran = subprocess.run(line, stdout=pipe, stderr=subprocess.PIPE, env=buffered, timeout=300)
    assert (ran.returncode, ran.stderr) == (1, b"")


def unread(tidelog: Command, words: list[str], *, errors_too: bool) -> tuple[int, str]:
    """The exit code, and what was said on standard error, of a command whose output goes into a closed pipe."""
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as pipe:
        ran = subprocess.run(
            tidelog.line(*words),
            env={name: value for name, value in tidelog.environment.items() if name != "PYTHONUNBUFFERED"},
            stdout=pipe,
            stderr=pipe if errors_too else subprocess.PIPE,
            timeout=300,
        )
    return ran.returncode, (ran.stderr or b"").decode()


def modules_after(program: str) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.split())


@proves("start_up")
def test_up_is_found_and_its_options_are_read_without_argparse_or_any_other_command() -> None:
    program = "import tidelog.cli.main, tidelog.cli.up as up; assert up.quick(['--data', 'd', '--set', 'a=b'])"
    loaded = modules_after(program)
    assert not {"argparse", "json", "logging", "tidelog.cli.options", "tidelog.client.cluster"} & loaded
    assert {name for name in loaded if name.startswith("tidelog.cli.")} == {"tidelog.cli.main", "tidelog.cli.up"}


@proves("start_up")
def test_a_command_loads_no_broker_and_no_log() -> None:
    loaded = modules_after(
        "from tidelog.cli.main import main; assert main(['topics', '--bootstrap', '127.0.0.1:1']) == 3"
    )
    assert not [name for name in loaded if name.startswith(("tidelog.broker", "tidelog.log", "asyncio"))]


@proves("command_line")
def test_a_word_that_is_wrong_is_answered_with_the_right_one(nowhere: Command) -> None:
    assert "did you mean topics?" in nowhere("topcis").err
    assert "`tidelog topics describe orders`" in nowhere("topics", "orders").err
    refused = nowhere("topics", "create", "a", "--replication-factor", "3").err
    assert "did you mean --replication?" in refused and "`tidelog topics create --help`" in refused
    assert "`tidelog COMMAND --bootstrap ...`" in nowhere("--bootstrap", "127.0.0.1:9092", "topics").err
