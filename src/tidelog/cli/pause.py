"""`tidelog pause NAME`: let a part rest until it is resumed, also one that starts later."""

from __future__ import annotations

from tidelog.cli import options as command
from tidelog.cli import telling
from tidelog.control.status import PAUSE


def parser() -> command.Parser:
    return telling.parser(PAUSE, "Let a part rest until it is resumed, also one that starts later.")


def run(arguments: list[str]) -> int:
    return telling.run(PAUSE, parser(), arguments)
