"""Completion scripts: generated from the parsers, and tried in real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from cli.command import Command
from contract import Broker
from proving import proves
from tidelog.cli.completion import all_words
from tidelog.cli.main import COMMANDS

SHELLS = ["bash", pytest.param("zsh", marks=pytest.mark.external), pytest.param("fish", marks=pytest.mark.external)]
SECONDS = 60

# What is typed before Tab, and what is offered then.
TYPED = {
    "tidelog to": {"topics"},
    "tidelog ": set(COMMANDS),
    "tidelog topics cr": {"create"},
    "tidelog topics create x --part": {"--partitions"},
    "tidelog produce x --acks ": {"all", "0", "1"},
    "tidelog completion f": {"fish"},
    "tidelog tail --fo": {"--follow"},
    "tidelog repair adopt --a": {"--as"},
    "tidelog pause --ki": {"--kind"},
}

BASH = """
source ./script
while IFS= read -r typed; do
  read -ra COMP_WORDS <<< "$typed"; [[ $typed == *' ' ]] && COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tidelog; printf 'Tab\\n'; printf '%s\\n' "${COMPREPLY[@]}"
done < typed
"""
FISH = """
source ./script
while read -L typed; echo Tab; complete -C $typed | string replace -r '\\t.*' ''; end < typed; true
"""
# Keys are pressed in a shell of its own; it finds the script in a folder, as the help of the command says.
ZSH = """
zmodload zsh/zpty
zpty inner zsh -f -i
zpty -w inner "source keys"
for typed in ${(f)"$(<typed)"}; do
  zpty -w -n inner "$typed"$'\\t'
  zpty -r inner said "*Tab is done*"
done
cat offered
"""
ZSH_KEYS = """
mkdir functions; cp script functions/_tidelog; fpath+=($PWD/functions)
autoload -Uz compinit; compinit -u -D
compadd() {
  local -a found
  [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]] || { builtin compadd -A found "$@"; print -rl -- $found >> offered }
  builtin compadd "$@"
}
offer() { print Tab >> offered; zle complete-word; zle kill-buffer; print Tab is done }
zle -N offer; bindkey '^I' offer
"""
PROGRAMS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """`tidelog` on its PATH is the one under test."""
    program = tmp_path / "bin" / "tidelog"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tidelog "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}


def offered(shell: str, typed: Iterable[str], environment: dict[str, str], folder: Path) -> list[set[str]]:
    """What a real shell with the script offers after each of the lines."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed; on Debian: apt-get install {shell}")
    for name, text in {"program": PROGRAMS[shell], "keys": ZSH_KEYS, "typed": "\n".join([*typed, ""])}.items():
        (folder / name).write_text(text)
    (folder / "script").write_text(Command("127.0.0.1:1").ok("completion", shell).out)
    ran = subprocess.run([shell, "program"], cwd=folder, env=environment, capture_output=True, timeout=SECONDS)
    assert (ran.returncode, ran.stderr) == (0, b"")
    return [set(one.split()) for one in ran.stdout.decode().split("Tab\n")[1:]]


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
    assert known["repair",].actions == ("adopt",)
    assert known["repair",].arguments == ("TOPIC", "PARTITION")
    assert known["repair", "adopt"].arguments == ("WHAT",)


@proves("command_line")
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_commands_actions_options_and_choices(
    shell: str, environment: dict[str, str], tmp_path: Path
) -> None:
    found = offered(shell, TYPED, environment, tmp_path)
    flags = {"--help", "--version"}  # some shells offer them before a dash is typed
    assert [one - flags for one in found] == list(TYPED.values())


@proves("command_line")
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_the_names_of_topics(
    broker: Broker, topic: str, shell: str, environment: dict[str, str], tmp_path: Path
) -> None:
    names = {f"{topic}.first", f"{topic}.second"}
    Command(broker.bootstrap).ok("topics", "create", *sorted(names))
    asking = {**environment, "TIDELOG_BOOTSTRAP": broker.bootstrap}
    assert offered(shell, [f"tidelog tail {topic}"], asking, tmp_path) == [names]
