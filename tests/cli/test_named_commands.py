"""Commands that pages and messages name are there, with the options that they are shown with."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from proving import proves
from tidelog.cli.completion import Words, all_words

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^```bash[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IN_A_BLOCK = re.compile(r"(?:^|[\s(])(tidelog [a-z].*)")
IN_A_TEXT = re.compile(r"`(tidelog [a-z][^`]*)`")
ENDS = re.compile(r"[|;&<>]")  # of a command
GOES_ON = re.compile(r'"\s*\n\s*f?"')  # a text of a program, in the next line
NOT_COMMANDS = {"digest"}  # a key's name begins so


@cache
def words() -> dict[tuple[str, ...], Words]:
    return {one.path: one for one in all_words()}


def commands_of(page: Path) -> Iterator[str]:
    text = GOES_ON.sub("", page.read_text()).replace("\\\n", " ")
    for block in BLOCK.findall(text) if page.suffix == ".md" else ():
        for line in block.splitlines():
            yield from IN_A_BLOCK.findall(line.partition("#")[0])
    found = (one.replace("\n", " ") for one in IN_A_TEXT.findall(text))
    yield from (one for one in found if one.split()[1] not in NOT_COMMANDS)


def fault_of(command: str) -> str | None:
    """What of it there is not; the values of arguments are not looked at."""
    said = ENDS.split(command)[0]
    try:
        _, *rest = shlex.split(said)
    except ValueError:  # a quotation mark that another part of the text closes
        _, *rest = said.split()
    path = (rest[0],) if rest else ()
    if path not in words():
        return f"{command}: there is no command {' '.join(path)}"
    actions = words()[path].actions
    action = next((word for word in rest[1:] if word in actions), "list" if "list" in actions else None)
    known = [words()[path], *([words()[*path, action]] if action else [])]
    options = {name for one in known for option in one.options for name in option.names} | {"--help", "--"}
    shown = [word.partition("=")[0].rstrip(".,:)]") for word in rest if word.startswith("--")]
    unknown = [word for word in shown if word not in options]
    return f"{command}: it does not take {unknown[0]}" if unknown else None


@proves("command_line", "T8")
def test_a_command_that_a_page_or_a_message_names_is_there_with_its_options() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs" / "guide").glob("*.md"), *(ROOT / "src").rglob("*.py")]
    named = {(page.name, command) for page in pages for command in commands_of(page)}
    assert len(named) > 300
    assert [f"{page}: {fault}" for page, command in sorted(named) if (fault := fault_of(command))] == []


@proves("command_line")
@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("tidelog topics create a --set x=1 --partitions 3 | cat --nothing", None),
        ("tidelog topics create a --config x=1", "it does not take --config"),
        ("tidelog topic create a", "there is no command topic"),
        ("tidelog repair adopt --data DIR --as NAME", None),
        ("tidelog repair --data DIR --as NAME", "it does not take --as"),
        ("tidelog status --tell pause", "it does not take --tell"),
    ],
)
def test_one_that_is_not_would_be_found(command: str, fault: str | None) -> None:
    found = fault_of(command)
    assert found is None if fault is None else fault in str(found)
