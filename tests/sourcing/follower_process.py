"""A process that follows a store, to be killed: a process manager, a read model or effects.

With STEP in its environment, `before.commit 2` say, it ends there as by kill -9, the second time that it comes by.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import count
from pathlib import Path
from subprocess import Popen
from threading import Event
from typing import Any

from sourcing.orders import orders, shipping
from sourcing.seats import seats
from tidelog.sourcing import Effects, EventStore, ReadModel

TESTS = Path(__file__).parent.parent
DIED = 9
STEP = "FOLLOWER_DIES_AT"
STEPS: dict[str, tuple[str, str]] = {
    "begin": ("tidelog.control.owner:Owner", "begin"),
    "fetch": ("tidelog.client.consumer:Consumer", "fetch"),
    "produce": ("tidelog.control.owner:Outgoing", "send"),
    "offsets": ("tidelog.control.owner:Outgoing", "send_offsets"),
    "commit": ("tidelog.client.transactions:Transactions", "commit"),
    "end": ("tidelog.client.transactions:Transactions", "_end"),
    "prepare": ("tidelog.views.stores.sqlite:SqliteStore", "prepare"),
    "apply": ("tidelog.views.stores.sqlite:SqliteStore", "apply"),
    "show": ("tidelog.views.stores.sqlite:SqliteStore", "_show"),
    "switch": ("tidelog.control.catalog:Editor", "write"),
}


def dies_at(step: str) -> None:
    place, _, last = step.partition(" ")
    when, _, name = place.partition(".")
    home, method = STEPS[name]
    module, _, cls = home.partition(":")
    owner = getattr(import_module(module), cls)
    original, times = getattr(owner, method), count(1)

    def wrapped(*words: Any, **more: Any) -> Any:
        is_last = next(times) == int(last)
        if is_last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = original(*words, **more)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(owner, method, wrapped)


def start(*words: str, step: str | None = None) -> Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    if step is not None:
        environment[STEP] = step
    return Popen([sys.executable, __file__, *words], env=environment)


def main(words: Sequence[str]) -> None:
    what, bootstrap, *more = words
    if STEP in os.environ:
        dies_at(os.environ[STEP])
    if what == "process":
        shipping(EventStore("orders", orders(), bootstrap=bootstrap, serve=False), start="earliest").run(Event())
    elif what == "model":
        from sourcing.test_read_model import COLUMNS, held

        store = EventStore("seats", seats(), bootstrap=bootstrap, serve=False)
        ReadModel("held", store, held, key="who", columns=COLUMNS).part(more[0]).run(Event())
    else:
        from sourcing.test_effects import is_paid, mailing

        store = EventStore("orders", orders(), bootstrap=bootstrap, serve=False)
        handle = dying(int(more[0]), after=more[1] == "after") if len(more) > 1 else mailing(int(more[0]))
        Effects("confirmations", store, handle, concerns=is_paid, tries=3, start="earliest").run(Event())


def dying(port: int, *, after: bool) -> Any:
    """Dies at the mail for o2."""
    from sourcing.test_effects import mailing

    mail = mailing(port)

    def handle(event: Any, record: Any, id: str) -> None:
        if record.entity == "o2" and not after:
            os._exit(DIED)
        mail(event, record, id)
        if record.entity == "o2" and after:
            os._exit(DIED)

    return handle


if __name__ == "__main__":
    main(sys.argv[1:])
