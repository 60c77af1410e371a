"""`tidelog stop NAME`: end a part; its run goes on without it."""

from __future__ import annotations

from tidelog.cli import options as command
from tidelog.cli import telling
from tidelog.control.status import STOP


def parser() -> command.Parser:
    return telling.parser(STOP, "End a part; its run goes on without it.")


def run(arguments: list[str]) -> int:
    return telling.run(STOP, parser(), arguments)
