"""A process with a store and many clients in threads, for E4: `python crowd_process.py BOOTSTRAP NAME CLIENTS TURNS`.

It says `ready N` with the number of partitions that it owns and has loaded whenever that changes, begins at the first
line of its input, and ends with one line of JSON: what its clients did, and how often an owner of its was fenced or
loaded since.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from threading import Event, Lock, Thread
from typing import Any

from sourcing.seats import Cancel, Reserve, seats
from tidelog.errors import Refused
from tidelog.sourcing import EventStore

ENTITIES = [f"seat{number}" for number in range(40)]
WAIT_S = 120.0


class Crowd:
    def __init__(self, store: EventStore[Any], name: str, turns: int) -> None:
        self.store, self.name, self.turns = store, name, turns
        self.counts: Counter[str] = Counter()
        self._lock = Lock()

    def client(self, number: int) -> None:
        rng, me, found = random.Random(f"{self.name}{number}"), f"{self.name}-{number}", Counter[str]()
        for _ in range(self.turns):
            seat = rng.choice(ENTITIES)
            try:
                found["events"] += self.store.send(seat, Reserve(me), timeout_s=WAIT_S).events
                found["events"] += self.store.send(seat, Cancel(me), timeout_s=WAIT_S).events
            except Refused:
                found["refused"] += 1
        with self._lock:
            self.counts += found


def main(bootstrap: str, name: str, clients: str, turns: str) -> None:
    with EventStore(name, seats(), bootstrap=bootstrap, partitions=4, timeout_s=WAIT_S) as store:
        began = Event()
        Thread(target=_tell_owned, args=(store, began), daemon=True).start()
        me = sys.stdin.readline().strip()
        began.set()
        before = loads(store)
        crowd = Crowd(store, me, int(turns))
        threads = [Thread(target=crowd.client, args=(number,)) for number in range(int(clients))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        counts = crowd.counts
        told = {"events": counts["events"], "refused": counts["refused"], "before": before, "after": loads(store)}
        print(json.dumps(told), flush=True)
        sys.stdin.readline()  # the other one may still be sending to what is owned here


def _tell_owned(store: EventStore[Any], began: Event) -> None:
    last = -1
    while not began.wait(0.05):
        owned = sum(owner.figures.loads > 0 for owner in list(store._owners.values()))
        if owned != last:
            print(f"ready {owned}", flush=True)
            last = owned


def loads(store: EventStore[Any]) -> dict[str, int]:
    """By partition that is owned: how often it was loaded. One that was fenced would be another owner, loaded once."""
    owners = dict(store._owners)
    return {f"{number}/{id(owner)}": owner.figures.loads for number, owner in sorted(owners.items())}


if __name__ == "__main__":
    main(*sys.argv[1:])
