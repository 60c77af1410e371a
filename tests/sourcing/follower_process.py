"""A process that follows a store, to be killed: a process manager, a read model or effects."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen
from threading import Event
from typing import Any

from sourcing.orders import orders, shipping
from sourcing.seats import seats
from tidelog.sourcing import Effects, EventStore, ReadModel

TESTS = Path(__file__).parent.parent
DIED = 9


def start(*words: str) -> Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    return Popen([sys.executable, __file__, *words], env=environment)


def main(words: Sequence[str]) -> None:
    what, bootstrap, *more = words
    if what == "process":
        shipping(EventStore("orders", orders(), bootstrap=bootstrap, serve=False), start="earliest").run(Event())
    elif what == "model":
        from sourcing.test_read_model import COLUMNS, held

        store = EventStore("seats", seats(), bootstrap=bootstrap, serve=False)
        ReadModel("held", store, held, key="who", columns=COLUMNS).part(more[0]).run(Event())
    else:
        from sourcing.test_effects import is_paid

        store = EventStore("orders", orders(), bootstrap=bootstrap, serve=False)
        handle = dying(int(more[0]), after=more[1] == "after")
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
