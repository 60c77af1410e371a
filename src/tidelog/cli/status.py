"""`tidelog status`: every long-running part, how far it is, and what is wrong; also beside Apache Kafka.

Exit code 0 where all is well, 1 where a part has failed, waits after a fault, or has not been heard of.
"""

from __future__ import annotations

import time
from typing import Any

from tidelog.cli import options as command
from tidelog.cli.main import FAILED, OK
from tidelog.cli.terminal import show_json, show_table
from tidelog.client.status import AGAIN_S, COMMAND_NAMES, Report, read_status, send_command
from tidelog.errors import UsageError

SILENT_S = 3 * AGAIN_S
ENDED = ("stopped", "paused")
BROKER = "broker"  # it reports only what has changed, and that it answers is known
EXAMPLES = """\
  tidelog status
  tidelog status --json
  tidelog status shop.revenue --tell pause
  tidelog status shop.revenue --tell resume
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "status", "Show queries, appliers and all other parts.", EXAMPLES, parent=command.connection_options()
    )
    made.add_argument("part", nargs="?", metavar="PART", help="only parts of this name")
    made.add_argument("--tell", choices=COMMAND_NAMES, help="give the part this command")
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    with command.connect(options) as cluster:
        found = [one for one in read_status(cluster) if options.part in (None, one.name)]
        if options.tell:
            _tell(cluster, found, options)
            return OK
    if options.part is not None and not found:
        raise UsageError(f"no part is called {options.part!r}; `tidelog status` lists them")
    now_ms = int(time.time() * 1000)
    rows = sorted(found, key=lambda one: (one.kind, one.name))
    if options.json:
        show_json([{"kind": one.kind, "name": one.name, "health": health(one, now_ms), **one.figures} for one in rows])
    else:
        show_table(("kind", "name", "state", "rows in", "rows out", "lag", "behind s", "error"), _rows(rows, now_ms))
    well = all(health(one, now_ms) is None for one in rows)
    return OK if well else FAILED


def _tell(cluster: Any, found: list[Report], options: Any) -> None:
    if options.part is None:
        raise UsageError("status: --tell is for one part; name it")
    for one in found:
        send_command(cluster, one.kind, one.name, options.tell)
        print(f"{one.kind} {one.name} is told to {options.tell}")
    if not found:
        raise UsageError(f"no part is called {options.part!r}; `tidelog status` lists them")


def health(one: Report, now_ms: int) -> str | None:
    """What is wrong; None where nothing is."""
    figures = one.figures
    if state_of(figures) in ENDED or one.kind == BROKER:
        return None
    if (silent := (now_ms - int(figures.get("at_ms", now_ms))) / 1000) > SILENT_S:
        return f"not heard of for {silent:.0f} s"
    error = figures.get("error")
    if figures.get("state") in ("failed", "waiting", None) and error:
        return str(error.get("message") if isinstance(error, dict) else error)
    return None


def state_of(figures: dict[str, Any]) -> str | None:
    """An applier tells only that it has ended."""
    found = figures.get("state")
    return str(found) if found is not None else "stopped" if figures.get("ended") else None


def _rows(found: list[Report], now_ms: int) -> list[list[Any]]:
    return [_row(one, health(one, now_ms)) for one in found]


def _row(one: Report, wrong: str | None) -> list[Any]:
    figures = one.figures
    lag = figures.get("lag") or {"records": _behind(figures)}
    error = figures.get("error")
    where = f" ({error['file']}:{error['line']})" if isinstance(error, dict) and error.get("line") else ""
    rows = [
        figures.get("rows_in"),
        figures.get("rows_out", figures.get("rows")),
        lag.get("records"),
        _text(lag.get("seconds")),
    ]
    return [one.kind, one.name, state_of(figures), *rows, None if wrong is None else wrong + where]


def _behind(figures: dict[str, Any]) -> int | None:
    """Of an applier: in the generation that it shows."""
    shown = [one.get("behind") for one in figures.get("generations") or [] if one.get("shown")]
    return shown[0] if shown and isinstance(shown[0], int) else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
