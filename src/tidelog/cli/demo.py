"""`tidelog demo`: a shop whose events flow through a pipeline on Spark into views, and one live page that shows it."""

from __future__ import annotations

import os
import sys
import webbrowser
from argparse import ArgumentTypeError
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tidelog.cli import options as command
from tidelog.cli.main import FAILED, OK
from tidelog.process import stop_on_signals

FOLDER = "tidelog-data-demo"
RATE, SEED = 50.0, 1
EXAMPLES = """\
  tidelog demo
  tidelog demo --rate 500 --folder /tmp/shop
  tidelog demo --minutes 2 --no-browser      measures, checks each view against its batch query, exits with 0 or 1

Data is kept in ./tidelog-data-demo, and the next start goes on from there. With --minutes it is in a temporary folder
that is removed at the end, unless --folder names one.
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "demo", "A broker, a small shop on Spark, its views, and one live page. Ctrl-C ends all of it.", EXAMPLES
    )
    made.add_argument("--minutes", metavar="N", type=_above_0, help="for so long; then check the views and sum up")
    made.add_argument("--no-browser", action="store_true", help="open no browser; the page's address is printed")
    made.add_argument("--rate", metavar="R", type=_above_0, default=RATE, help=f"events a second ({RATE:g})")
    made.add_argument("--folder", metavar="DIR", type=Path, help=f"for all data (default: {FOLDER})")
    made.add_argument("--seed", metavar="S", type=int, default=SEED, help=f"what chance makes of it ({SEED})")
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    from tidelog.demo.running import Plan, check_installed
    from tidelog.demo.running import run as run_demo

    check_installed()
    stopping = stop_on_signals()
    with ExitStack() as ends:
        folder = options.folder
        if folder is None and options.minutes is not None:
            folder = Path(ends.enter_context(TemporaryDirectory(prefix="tidelog-demo-")))
        folder = (folder or Path(FOLDER)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        plan = Plan(folder, options.rate, options.seed, options.minutes)
        well = run_demo(plan, _say, _nothing if options.no_browser else _open, stopping)
    return OK if well else FAILED


def _say(line: str) -> None:
    print(line, flush=True)


def _open(address: str) -> None:
    """Only on a desktop: elsewhere one that draws in the terminal would take it over. The address is printed anyway."""
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(address)


def _nothing(_address: str) -> None:
    pass


def _above_0(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number above 0")
    return number
