"""A process with a store of seats, for tests that pause and kill it: `python store_process.py BOOTSTRAP NAME [STEP]`.

Each line of its input, `ID ENTITY PERSON`, is a command that it sends in-process, from a thread of its own; its answer
is a line of output: `ID VERSION`, or `ID refused`. With a STEP, `before.commit` say, it ends there as by kill -9, the
second time that it comes by. With a step of a transaction its commands are written in transactions, as they are on
Apache Kafka.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from threading import Lock, Thread
from typing import Any

from sourcing.seats import Reserve, seats
from tidelog.client.transactions import Transactions
from tidelog.control.owner import Outgoing, Owner
from tidelog.errors import Refused
from tidelog.sourcing import EventStore
from tidelog.sourcing.deciding import Deciding
from tidelog.sourcing.owning import PartitionOwner

STEPS: dict[str, tuple[type, str]] = {
    "decide": (Deciding, "decide"),
    "append": (Owner, "append"),
    "produce": (Outgoing, "send_at_once"),
    "commit": (Transactions, "commit"),
    "end": (Transactions, "_end"),
    "settle": (PartitionOwner, "_settle"),
    "checkpoint": (PartitionOwner, "_checkpoint"),
}


OF_TRANSACTIONS = ("produce", "commit", "end")


def dies_at(step: str) -> None:
    when, _, name = step.partition(".")
    if name in OF_TRANSACTIONS:
        Owner.append = lambda *_: None  # type: ignore[method-assign]
    owner, method = STEPS[name]
    original, times = getattr(owner, method), count(1)
    last = 1 if name == "checkpoint" else 2

    def wrapped(*words: Any, **more: Any) -> Any:
        is_last = next(times) == last
        if is_last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = original(*words, **more)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(owner, method, wrapped)


def main(bootstrap: str, name: str, step: str = "") -> None:
    printing = Lock()

    def answer(id: str, entity: str, person: str) -> None:
        try:
            said = str(store.send(entity, Reserve(person), id=id, timeout_s=120).version)
        except Refused:
            said = "refused"
        with printing:
            print(id, said, flush=True)

    partitions, every = (1, 3) if step else (2, 10_000)
    made = EventStore(name, seats(), bootstrap=bootstrap, partitions=partitions, snapshot_every=every, timeout_s=60)
    with made as store:
        print("ready", flush=True)
        if step:
            dies_at(step)
        threads = []
        for line in sys.stdin:
            threads.append(Thread(target=answer, args=line.split()))
            threads[-1].start()
            if step:
                threads[-1].join()  # one after the other, so that steps come by in one order
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
