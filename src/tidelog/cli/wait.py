"""`tidelog wait VIEW`: until a view shows what is in its inputs now, a record that is named, or all up to a time.

What is read and not shown yet, because operators hold it for the watermark, is told (`views/waiting.py`).

A broker or a store that is away is tried again until the time is over, also where it is away from the start: who waits
for a view waits for a broker that is starting, too. What is in the inputs now is looked up anew then.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.main import OK
from tidelog.cli.place import parse_time
from tidelog.cli.terminal import show_json, warn
from tidelog.client.backoff import waits
from tidelog.errors import Disconnected, OpenTransaction, UsageError
from tidelog.views.as_of import said as iso
from tidelog.views.awaited import Awaited

if TYPE_CHECKING:
    from tidelog.views.waiting import After

WITHIN_S = 60.0
EXAMPLES = """\
  tidelog wait revenue                                   until it has what is in its inputs now
  tidelog wait revenue --after orders:0:41               until it has this record
  tidelog wait by-minute --event-time 2026-01-31T12:00   until all up to this time is shown
  tidelog wait revenue --within 5 || echo "not yet"
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "wait",
        "Wait until a view has what is in its inputs now, a record, or all up to a time.",
        EXAMPLES,
        parent=command.connection_options(),
    )
    made.add_argument("view", metavar="VIEW", help="which")
    made.add_argument(
        "--after",
        metavar="PLACE",
        help="this record: TOPIC:PARTITION:OFFSET, or CAPTURE@POSITION of a database (default: what is there now)",
    )
    made.add_argument(
        "--event-time",
        metavar="TIME",
        help="all that happened up to then: ISO 8601, 22:33, @MILLISECONDS, or 2h for two hours ago",
    )
    made.add_argument(
        "--within", metavar="SECONDS", type=command.seconds, default=WITHIN_S, help=f"for so long ({WITHIN_S:g})"
    )
    made.add_argument("--store", metavar="URL", help="in which store (default: the first that the view declares)")
    command.add_allowed(made)
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    from tidelog.views.waiting import parse_after

    options = command.parse(parser(), arguments)
    after = None if options.after is None else parse_after(options.after)
    event_time = None if options.event_time is None else parse_time(options.event_time)
    found = _until_there(lambda left_s: _waited(options, after, event_time, left_s), options.within)
    if options.json:
        show_json(_fields(options.view, found))
    else:
        print(_said(options.view, found, options))
    return OK


def _until_there(attempt: Callable[[float], Awaited], within_s: float) -> Awaited:
    """`attempt` is given the seconds that are left."""
    deadline, told = time.monotonic() + within_s, False
    for pause in waits():
        try:
            return attempt(max(0.0, deadline - time.monotonic()))
        except OpenTransaction:
            raise  # it was waited for, and the broker is there
        except Disconnected as error:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                away = f"the broker or the store was away when the {within_s:g} s of --within were over"
                raise Disconnected(f"{away}: {error}") from error
            if not told:
                warn(f"tried again for {left_s:.0f} s: {error}")
            told = True
        time.sleep(min(pause, left_s))
    raise AssertionError("waits never end")


def _waited(options: Namespace, after: After | None, event_time: datetime | int | None, left_s: float) -> Awaited:
    from tidelog.views.waiting import wait

    with command.connect(options) as cluster:
        store = _store(cluster, options)
        try:
            return wait(cluster, options.view, after, left_s, store=store, event_time=event_time)
        finally:
            store.close()


def _store(cluster: Any, options: Namespace) -> Any:
    from tidelog.control.catalog import find_view
    from tidelog.views.stores.allowing import open_recorded
    from tidelog.views.stores.opening import open_store

    view = find_view(cluster, options.view)
    url: str | None = options.store or next(iter(view.stores), None)
    if url is None:
        raise UsageError(f"view {view.name} does not declare a store; give --store URL")
    return open_store(url, view.name) if options.store else open_recorded(url, view.name, command.allowed(options))


def _fields(view: str, found: Awaited) -> dict[str, Any]:
    return {
        "view": view,
        "generation": found.generation,
        "ends": {str(at): end for at, end in sorted(found.ends.items())},
        "watermark_ms": found.watermark_ms,
        "held": found.held,
    }


def _said(view: str, found: Awaited, options: Namespace) -> str:
    what = options.after or (f"all up to {options.event_time}" if options.event_time else "what was in its inputs")
    held = [f"{rows} held by {name}" for name, rows in sorted(found.held.items())]
    told = [f"watermark {iso(found.watermark_ms)}"] if found.watermark_ms else []
    return f"{view} has {what}" + "".join(f"; {one}" for one in (*told, *held))
