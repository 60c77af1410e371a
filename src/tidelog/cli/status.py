"""`tidelog status`: every long-running part, how far it is, and what is wrong; also beside Apache Kafka.

    state       of a part that tells none itself (an applier, the broker): from what it does tell
    gone        it did not say that it ends, and has not been heard of for SILENT_S: killed, or its machine is away
    left out    ended or gone for LEFT_OUT_S, failed for FAILED_SHOWN_S, unless it is asked for by name or by --all

A part that has failed is shown with its reason also when its run has ended, and so is one that was stopped while it
waited after a fault.

Exit code 0 where all is well, 1 where a part that is shown has failed, waits after a fault, or has not been heard of.
"""

from __future__ import annotations

import time
from typing import Any

from tidelog.cli import options as command
from tidelog.cli.main import FAILED, OK
from tidelog.cli.terminal import paint, show_json, show_table, span_text
from tidelog.control.status import (
    AGAIN_S,
    COMMAND_NAMES,
    STOPPED,
    WAITING,
    Report,
    read_status,
    send_command,
    silent_ms,
    told_state,
)
from tidelog.control.status import FAILED as FAILED_STATE
from tidelog.errors import UsageError

SILENT_S = 3 * AGAIN_S
LEFT_OUT_S = 24 * 3600
FAILED_SHOWN_S = 7 * LEFT_OUT_S
GONE = "gone"
ENDED = (STOPPED, "paused")
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
    made.add_argument("--all", action="store_true", help="also parts that ended, or were last heard of, long ago")
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
    every = options.all or options.part is not None
    rows = [one for one in sorted(found) if every or not is_long_ago(one, now_ms)]
    if options.json:
        show_json([_fields(one, now_ms) for one in rows])
    else:
        header = ("kind", "name", "state", "rows in", "rows out", "lag", "behind s", "error")
        show_table(header, [_row(one, now_ms) for one in rows])
        if left := len(found) - len(rows):
            print(paint(f"{left} that ended, or were last heard of, long ago are left out; --all shows them", "dim"))
    well = all(health(one, now_ms) is None for one in rows)
    return OK if well else FAILED


def _fields(one: Report, now_ms: int) -> dict[str, Any]:
    named = {"kind": one.kind, "name": one.name, "health": health(one, now_ms)}
    return {**named, **one.figures, "state": state_of(one, now_ms)}


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
    state = state_of(one, now_ms)
    if state == GONE:
        since = _silent_ms(one, now_ms)
        span = span_text(abs(since))
        return f"not heard of for {span}" if since > 0 else f"not heard of since {span} ahead of the clock here"
    return reason(one) if state in (FAILED_STATE, WAITING) else None


def state_of(one: Report, now_ms: int) -> str:
    state = told_state(one)
    silent = silent_ms({"at_ms": now_ms, **one.figures}, now_ms) > SILENT_S * 1000
    return GONE if silent and one.kind != BROKER and state not in (*ENDED, FAILED_STATE) else state


def is_long_ago(one: Report, now_ms: int) -> bool:
    state = state_of(one, now_ms)
    if state not in (GONE, STOPPED, FAILED_STATE):
        return False
    return _silent_ms(one, now_ms) > 1000 * (FAILED_SHOWN_S if state == FAILED_STATE else LEFT_OUT_S)


def reason(one: Report) -> str | None:
    """Its last fault, with the line of the user's file."""
    error = one.figures.get("error")
    if not error:
        return None
    if not isinstance(error, dict):
        return str(error)
    where = f" ({error['file']}:{error['line']})" if error.get("line") else ""
    return f"{error.get('message')}{where}"


def _silent_ms(one: Report, now_ms: int) -> int:
    return now_ms - int(one.figures.get("at_ms", now_ms))


def _row(one: Report, now_ms: int) -> list[Any]:
    figures = one.figures
    lag = figures.get("lag") or {"records": _behind(figures)}
    state = state_of(one, now_ms)
    rows = [
        figures.get("rows_in"),
        figures.get("rows_out", figures.get("rows")),
        lag.get("records"),
        _text(lag.get("seconds")),
    ]
    return [one.kind, one.name, state, *rows, reason(one) if state == STOPPED else health(one, now_ms)]


def _behind(figures: dict[str, Any]) -> int | None:
    """Of an applier: in the generation that it shows."""
    shown = [one.get("behind") for one in figures.get("generations") or [] if one.get("shown")]
    return shown[0] if shown and isinstance(shown[0], int) else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
