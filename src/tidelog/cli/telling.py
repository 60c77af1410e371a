"""Commands to parts: what `tidelog pause`, `resume` and `stop` have in common.

A part is meant by its name, and by its kind where parts of several kinds have that name. One that has reported can be
told, whether it runs or not: `pause` and `resume` also count for one that starts later. One that has failed or is gone,
and has nobody to hear it, is shown no more once it is told to stop. The name of an event store means all processes that
run it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from tidelog.cli import options as command
from tidelog.cli import suggestions
from tidelog.cli.main import OK
from tidelog.control.health import FAULTS, health_of
from tidelog.control.status import STOP, STORE, Report, send_command, status_for, take_away
from tidelog.errors import UsageError

MEANT = "as `tidelog status` shows it; an app: all its parts; an event store: all processes that run it"


def parser(name: str, what: str) -> command.Parser:
    made = command.command_parser(name, what, f"  tidelog {name} shop.revenue\n", parent=command.connection_options())
    made.add_argument("part", metavar="NAME", help=f"which part, {MEANT}")
    made.add_argument("--kind", help="its kind, where several parts have this name")
    return made


def run(name: str, made: command.Parser, arguments: list[str]) -> int:
    options = command.parse(made, arguments)
    with command.connect(options) as cluster:
        meant = find(status_for(cluster), options.part, options.kind)
        if name == STOP and has_nobody(meant, time.time() * 1000):
            take_away(cluster, meant.kind, meant.name)
            print(f"{meant.kind} {meant.name} does not run; `tidelog status` shows it no more")
            return OK
        send_command(cluster, meant.kind, meant.name, name)
    print(f"{meant.kind} {meant.name} is told to {name}")
    return OK


def has_nobody(report: Report, now_ms: float) -> bool:
    """Whether it ended by a fault, and its process has told nothing since. One that lives after all is shown again when
    it reports."""
    if "at_ms" not in report.figures:
        return False  # all processes of a store
    health = health_of(report, now_ms)
    return health.silent and health.state in FAULTS


def find(told: Iterable[Report], name: str, kind: str | None) -> Report:
    reports = list(told)
    found = sorted(one for one in reports if one.name == name)
    if STORE not in (one.kind for one in found) and any(one.is_meant_by(name) for one in reports if one not in found):
        found.append(Report(STORE, name, {}))
    meant = [one for one in found if kind in (None, one.kind)]
    if len(meant) == 1:
        return meant[0]
    kinds = ", ".join(one.kind for one in found)
    if not found:
        raise UsageError(unknown(name, (one.name for one in reports)))
    if not meant:
        raise UsageError(f"no part {name!r} is of kind {kind!r}; there is {kinds}")
    raise UsageError(f"parts of several kinds are called {name!r}: {kinds}; say which by --kind")


def unknown(name: str, there: Iterable[str]) -> str:
    near = suggestions.nearest(name, there)
    return f"no part is called {name!r}; {'`tidelog status` lists them' if near is None else f'did you mean {near}?'}"
