"""Completion scripts: generated from the parsers, and tried in the shells that are here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.command import Command
from contract import Broker
from proving import proves
from tidelog.cli.completion import all_words
from tidelog.cli.main import COMMANDS

SHELLS = ["bash", "zsh", "fish"]


@pytest.fixture
def on_path(tmp_path: Path) -> str:
    """A PATH on which `tidelog` is the one under test."""
    program = tmp_path / "bin" / "tidelog"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tidelog "$@"\n')
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


def completed(words: list[str], path: str, bootstrap: str) -> set[str]:
    """What bash offers for the last of the words."""
    quoted = " ".join(f"'{word}'" for word in words)
    program = (
        "source <(tidelog completion bash)\n"
        f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _tidelog; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    environment = {**os.environ, "PATH": path, "TIDELOG_BOOTSTRAP": bootstrap}
    ran = subprocess.run(["bash", "-c", program], env=environment, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stderr) == (0, "")
    return set(ran.stdout.split())


@proves("command_line")
def test_every_command_action_and_option_is_known() -> None:
    known = {words.path: words for words in all_words()}
    assert known[()].actions == tuple(COMMANDS)
    assert {path[0] for path in known if path} == set(COMMANDS)
    assert ("topics", "create") in known
    names = {name for option in known["topics", "create"].options for name in option.names}
    assert {"--partitions", "--set", "--bootstrap", "--help"} <= names
    assert known["topics", "describe"].arguments == known["topics", "truncate"].arguments == ("TOPIC",)
    assert known["reset",].arguments == ("GROUP", "TOPIC")
    assert known["completion",].arguments == ("bash|zsh|fish",)


@proves("command_line")
@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_name_everything_and_are_read_by_their_shells(nowhere: Command, shell: str, tmp_path: Path) -> None:
    script = nowhere.ok("completion", shell).out
    assert all(command in script for command in COMMANDS)
    assert "--partitions" in script or "-l partitions" in script
    if shutil.which(shell):
        path = tmp_path / "script"
        path.write_text(script)
        assert subprocess.run([shell, "-n", str(path)], capture_output=True, timeout=300).returncode == 0


@proves("command_line")
def test_bash_completes_commands_actions_options_and_choices(on_path: str) -> None:
    def offered(*words: str) -> set[str]:
        return completed(list(words), on_path, "127.0.0.1:1")

    assert offered("tidelog", "to") == {"topics"}
    assert offered("tidelog", "") >= set(COMMANDS)
    assert offered("tidelog", "topics", "cr") == {"create"}
    assert offered("tidelog", "topics", "create", "x", "--part") == {"--partitions"}
    assert offered("tidelog", "produce", "x", "--acks", "") == {"all", "0", "1"}
    assert offered("tidelog", "completion", "f") == {"fish"}
    assert offered("tidelog", "tail", "") >= {"--from", "--follow"}


@proves("command_line")
def test_bash_completes_the_names_of_topics(broker: Broker, topic: str, on_path: str) -> None:
    Command(broker.bootstrap).ok("topics", "create", f"{topic}.first", f"{topic}.second")
    assert completed(["tidelog", "tail", topic], on_path, broker.bootstrap) == {f"{topic}.first", f"{topic}.second"}
