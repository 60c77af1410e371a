"""`tidelog resume NAME`: let a part go on that is paused, stopped or has failed."""

from __future__ import annotations

from tidelog.cli import options as command
from tidelog.cli import telling
from tidelog.control.status import RESUME


def parser() -> command.Parser:
    return telling.parser(RESUME, "Let a part go on that is paused, stopped or has failed.")


def run(arguments: list[str]) -> int:
    return telling.run(RESUME, parser(), arguments)
