"""Effects: what events do outside of the log, once. A mail, a call of somebody's HTTP.

    def mail(event, record, id):                    id is the same at every try: a Message-ID, an Idempotency-Key
        if isinstance(event, Reserved):
            smtp.send_message(confirmation(event, id))

    with Effects("confirmations", store, mail).beside(): ...

Each event takes these steps, each of them durable before the next:

    doing       confirmations.effects has `doing/ID`: from here on it may have happened
    done        the function has returned: the position moves on and `doing/ID` goes, in one transaction
    in doubt    found at a start with `doing/ID`: whoever had it was killed in between, and nobody can know. in_doubt=
                "skip" (the default): not again; it is kept as `skipped/ID` and told
                "again": once more, with the same id
    failed      the function has raised `tries` times: kept as `failed/ID` with the reason, told, and passed over

Rules:
- So it happens at most once by default, and at least once with in_doubt="again": who gets it can tell by the id.
- Of a record that upcasters made several events of, those that are over are `over/ID` until all of them are.
- Events before the first start are history and have no effect, unless start="earliest". A rebuild of read models, a
  replay, a new owner: nothing of that comes by here.
- One process runs it: the newer takes over, and the elder is fenced before it can note what it does next.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from threading import Event
from typing import Any

from tidelog.client.backoff import waits
from tidelog.control.metrics import Metrics
from tidelog.errors import UsageError
from tidelog.record.columns import Row
from tidelog.sourcing.entity import Folding
from tidelog.sourcing.event_following import NOW, EventLog, FollowerThread, stable_id, text_record
from tidelog.sourcing.event_record import EventRecord, decode
from tidelog.sourcing.store import EventStore

SKIP, AGAIN = "skip", "again"
DOING, OVER, SKIPPED, FAILED = "doing/", "over/", "skipped/", "failed/"
TRIES = 5

log = logging.getLogger(__name__)

Handle = Callable[[Any, EventRecord, str], object]


class Effects:
    """Calls `handle(event, record, id)` for each event that `concerns` it, once: a mail, a call of another service.
    `with effects.beside(): ...` runs it in a thread of this process, `tidelog store follow` in one of its own.
    """

    kind = "effects"

    def __init__(
        self,
        name: str,
        store: EventStore[Any],
        handle: Handle,
        *,
        concerns: Callable[[Any, EventRecord], bool] = lambda event, record: True,
        in_doubt: str = SKIP,
        tries: int = TRIES,
        start: str = NOW,
    ) -> None:
        """`concerns` says which events have an effect: the others cost nothing. It is pure."""
        if in_doubt not in (SKIP, AGAIN):
            raise UsageError(f"in_doubt={in_doubt!r}; it is {SKIP!r} or {AGAIN!r}")
        self.name, self.store, self.handle, self.concerns = name, store, handle, concerns
        self.in_doubt, self.tries, self._start = in_doubt, tries, start
        self.done = self.skipped = self.failed = 0
        self.worked = Event()

    def figures(self) -> Mapping[str, Any]:
        counts = Metrics(rows_out=self.done).fields
        return {**counts, "inputs": [self.store.topics.events], "skipped": self.skipped, "failed": self.failed}

    def beside(self) -> FollowerThread:
        """In a thread of this process: `with effects.beside(): ...`"""
        return FollowerThread(self)

    def reach(self, bootstrap: str, security: Any = None) -> None:
        """Another broker than its store was declared with; before it runs."""
        self.store.reach(bootstrap, security)

    def run(self, stopping: Event, begun: Event | None = None) -> None:
        """As a part (`parts.run_part`), until `stopping` is set. `begun` is set when its place is known."""
        with self.store.connect() as cluster:
            run = EffectsRun(self, EventLog(cluster, self.store, self.kind, self.name, self._start), stopping)
            run.begin()
            if begun is not None:
                begun.set()
            while not stopping.is_set():
                run.step()
                self.worked.set()


class EffectsRun:
    """From taking the id to losing it. Belongs to one thread."""

    def __init__(self, effects: Effects, events: EventLog, stopping: Event) -> None:
        self._effects, self._log, self._stopping = effects, events, stopping
        self._doubted: set[str] = set()
        self._finished: set[str] = set()  # of a record that has others to come

    def begin(self) -> None:
        found: dict[str, set[str]] = {DOING: set(), OVER: set()}

        def keep(key: str, row: Row) -> None:
            for kind, ids in found.items():
                if key.startswith(kind):
                    (ids.add if row.value is not None else ids.discard)(key.removeprefix(kind))

        self._log.begin(keep)
        self._doubted, self._finished = found[DOING], found[OVER]

    def step(self) -> None:
        for at, rows, following in self._log.fetch():
            place = self._log.places[at.partition]
            for row in rows:
                if row.offset >= place.live and not self._event(at.partition, row):
                    return  # told to stop
            if place.offset < following:
                place.offset = following
                self._note(at.partition)

    def _event(self, partition: int, row: Row) -> bool:
        if Folding.parse(row) is None:
            return True
        record, events = decode(row, self._log.store.decider.types, self._log.store.cipher)
        ids = [stable_id(self._effects.name, record.entity, record.id, number) for number in range(len(events))]
        left = [pair for pair in zip(ids, events, strict=True) if self._effects.concerns(pair[1], record)]
        while left:
            (id, event), *left = left
            following = None if left else row.offset + 1
            if id not in self._finished and not self._effect(partition, event, record, id, following):
                return False
        return True

    def _effect(self, partition: int, event: Any, record: EventRecord, id: str, following: int | None) -> bool:
        """Whether it is over, one way or the other. `following`: where the position is then, if all of a record is."""
        effects = self._effects
        if id in self._doubted and effects.in_doubt == SKIP:
            log.error(
                "effects %s: %s at offset %d was under way when it was killed, and is not done again",
                *(effects.name, id, record.offset),
            )
            effects.skipped += 1
            self._over(partition, id, following, f"{SKIPPED}{id}", {"offset": record.offset, "partition": partition})
            return True
        if id not in self._doubted:
            self._write([text_record(f"{DOING}{id}", {"offset": record.offset}, _now())])
        why = self._try(event, record, id)
        if why is None:
            effects.done += 1
            self._over(partition, id, following)
        elif self._stopping.is_set():
            self._write([text_record(f"{DOING}{id}", None, _now())])  # it has failed, so it was not done
            return False
        else:
            log.error("effects %s: %s at offset %d has failed: %s", effects.name, id, record.offset, why)
            effects.failed += 1
            said = {"offset": record.offset, "partition": partition, "why": why}
            self._over(partition, id, following, f"{FAILED}{id}", said)
        return True

    def _try(self, event: Any, record: EventRecord, id: str) -> str | None:
        """None where it was done, or why not."""
        why = None
        for attempt, pause in zip(range(self._effects.tries), waits(), strict=False):
            try:
                self._effects.handle(event, record, id)
                return None
            except Exception as error:  # whatever the function meets
                why = f"{type(error).__name__}: {error}"[:1000]
                log.warning("effects %s: try %d of %s: %s", self._effects.name, attempt + 1, id, why)
            if self._stopping.wait(pause):
                break
        return why

    def _over(
        self,
        partition: int,
        id: str,
        following: int | None,
        kept: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        self._doubted.discard(id)
        records = [text_record(f"{DOING}{id}", None, _now())]
        if kept is not None:
            records.append(text_record(kept, fields, _now()))
        place = self._log.places[partition]
        if following is None:
            self._finished.add(id)
            records.append(text_record(f"{OVER}{id}", {}, _now()))
        else:
            place.offset = following
            records += [text_record(f"{OVER}{one}", None, _now()) for one in self._finished]
            self._finished.clear()
        self._write([*records, place.record(partition, _now())])

    def _note(self, partition: int) -> None:
        self._write([self._log.places[partition].record(partition, _now())])

    def _write(self, records: list[Any]) -> None:
        with self._log.owner.transaction() as outgoing:
            outgoing.send(self._log.own, records)
            outgoing.send_offsets(self._log.id, self._log.offsets())


def _now() -> int:
    return int(time.time() * 1000)
