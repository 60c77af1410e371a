"""A process with a store of seats, for tests that pause and kill it: `python store_process.py BOOTSTRAP NAME`.

Each line of its input, `ID ENTITY PERSON`, is a command that it sends in-process, from a thread of its own; its answer
is a line of output: `ID VERSION`, or `ID refused`.
"""

from __future__ import annotations

import sys
from threading import Lock, Thread

from sourcing.seats import Reserve, seats
from tidelog.errors import Refused
from tidelog.sourcing import EventStore


def main(bootstrap: str, name: str) -> None:
    printing = Lock()

    def answer(id: str, entity: str, person: str) -> None:
        try:
            said = str(store.send(entity, Reserve(person), id=id, timeout_s=120).version)
        except Refused:
            said = "refused"
        with printing:
            print(id, said, flush=True)

    with EventStore(name, seats(), bootstrap=bootstrap, partitions=2, timeout_s=60) as store:
        print("ready", flush=True)
        threads = []
        for line in sys.stdin:
            threads.append(Thread(target=answer, args=line.split()))
            threads[-1].start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
