"""Following the events of a store from a place of one's own: what process managers and effects have in common.

    topic      NAME.process or NAME.effects, one partition, compacted, written under one transactional id
    records    position/P     {"v":1,"offset":NEXT,"live":N}: events of partition P before `offset` are done; those
                              before `live` are history, which is folded and not acted on
               anything else  what the follower keeps beside

Rules:
- What was done, and how far, are one transaction. Who takes the id over reads both after the elder is fenced.
- `start="now"` acts on events that come after its very first start. So a new follower of an old store sends nothing for
  what is long over; `start="earliest"` acts on all events.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from threading import Event, Thread
from typing import Any, Protocol

from tidelog.client.admin import topics
from tidelog.client.backoff import waits
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, READ_COMMITTED, list_offsets
from tidelog.client.producer import Record
from tidelog.control.owner import Owner
from tidelog.errors import AnotherApplier, HistoryFault, ProducerFenced, TidelogError, UsageError
from tidelog.parts.blocking import ThreadPart
from tidelog.parts.part import Fault
from tidelog.record.columns import Row
from tidelog.sourcing.store import EventStore
from tidelog.sourcing.store_part import Working
from tidelog.sourcing.store_topics import WRITERS, checked_name

NOW, EARLIEST = "now", "earliest"
POSITION = "position/"
LOOK_MS = 100
FORMAT = 1

log = logging.getLogger(__name__)


class EventPlace:
    """In one partition of the events."""

    __slots__ = ("live", "offset")

    def __init__(self, offset: int, live: int) -> None:
        self.offset, self.live = offset, live

    def record(self, partition: int, now_ms: int) -> Record:
        return text_record(f"{POSITION}{partition}", {"offset": self.offset, "live": self.live}, now_ms)


class EventLog:
    """The events of a store, and the follower's own topic. Belongs to one thread."""

    def __init__(self, cluster: Cluster, store: EventStore[Any], kind: str, name: str, start: str) -> None:
        if start not in (NOW, EARLIEST):
            raise UsageError(f"start={start!r}; it is {NOW!r} or {EARLIEST!r}")
        self.cluster, self.store = cluster, store
        self.id = f"tidelog.{kind}.{checked_name(name)}"
        self.own = TopicPartition(f"{name}.{kind}", 0)
        settings = {"cleanup.policy": "compact", WRITERS: self.id}
        topics.ensure(cluster, self.own.topic, partitions=1, configs=settings)
        self.owner = Owner(cluster, self.id)
        self.places: dict[int, EventPlace] = {}
        self._start = start
        self._consumer = Consumer(cluster, max_wait_ms=LOOK_MS, read_committed=True)

    def begin(self, keep: Callable[[str, Row], None]) -> None:
        """Takes the id, and reads what was written under it: `keep` gets all but places, key and row."""
        self.owner.begin()
        self.places = {}
        for row in self.owner.rows(self.own):
            key = (row.key or b"").decode(errors="replace")
            if key.startswith(POSITION) and row.value is not None:
                with not_ours(self.own, row):
                    fields = json.loads(row.value)
                    place = EventPlace(int(fields["offset"]), int(fields["live"]))
                    self.places[int(key.removeprefix(POSITION))] = place
            else:
                keep(key, row)
        self._begin_partitions()

    def _begin_partitions(self) -> None:
        every = self.cluster.partitions(self.store.topics.events)
        new = [at for at in every if at.partition not in self.places]
        ends = list_offsets(self.cluster, dict.fromkeys(new, LATEST), isolation=READ_COMMITTED) if new else {}
        for at in new:
            self.places[at.partition] = EventPlace(0, ends[at].offset if self._start == NOW else 0)
        if new:
            # Written at once: where "now" was is not to move by a crash before the first event.
            with self.owner.transaction() as outgoing:
                outgoing.send(self.own, [self.places[at.partition].record(at.partition, 0) for at in new])

    def fetch(
        self, wait_ms: int = LOOK_MS, others: Mapping[TopicPartition, int] | None = None
    ) -> list[tuple[TopicPartition, list[Row], int]]:
        """Rows and the next offset, from the places on; and of `others` from their offsets on."""
        self._consumer.max_wait_ms = max(1, min(wait_ms, LOOK_MS))
        self._consumer.assign({**self.offsets(), **(others or {})})
        return [(one.at, list(one.rows()), one.next_offset) for one in self._consumer.fetch()]

    def offsets(self) -> Mapping[TopicPartition, int]:
        return {TopicPartition(self.store.topics.events, number): one.offset for number, one in self.places.items()}


class Follows(Protocol):
    name: str
    kind: str

    def run(self, stopping: Event, begun: Event | None = None) -> None: ...


class FollowerThread:
    """A follower in a thread of this process, tried again with back-off when the broker is away. It is entered when the
    follower has begun, or could not at its first try: one that starts now must not miss what is sent next.
    """

    def __init__(self, follower: Follows) -> None:
        self._follower = follower
        self._stopping, self._begun = Event(), Event()
        self._failed: BaseException | None = None
        self._thread = Thread(target=self._run, name=f"{follower.kind}-{follower.name}", daemon=True)

    def __enter__(self) -> FollowerThread:
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def check(self) -> None:
        """Raises what it ended with."""
        if self._failed is not None:
            raise self._failed

    def _once(self) -> None:
        try:
            self._follower.run(self._stopping, self._begun)
        finally:
            self._begun.set()

    def _run(self) -> None:
        pauses = waits()
        while not self._stopping.is_set():
            try:
                self._once()
            except (UsageError, ProducerFenced) as error:
                log.error("%s %s ended: %s", self._follower.kind, self._follower.name, error)
                self._failed = error
                return
            except TidelogError as error:
                log.warning("%s %s begins again: %s", self._follower.kind, self._follower.name, error)
                self._stopping.wait(next(pauses))
            except BaseException as error:  # a fault of ours: told by `check`, and not lost with the thread
                log.exception("%s %s ended", self._follower.kind, self._follower.name)
                self._failed = error
                return


@contextmanager
def not_ours(own: TopicPartition, row: Row) -> Iterator[None]:
    """What cannot be read of a follower's own topic ends it."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, HistoryFault) as error:
        place = f"{own.topic}:{own.partition}:{row.offset}"
        raise UsageError(
            f"the record {place}, of key {(row.key or b'')[:100]!r}, was not written by this Tidelog: {error!r:.200};"
            f" take it out (`tidelog excise {place}`; on Apache Kafka write the key's last good value again), and start"
            " again"
        ) from error


class FollowerPart(ThreadPart):
    """A follower as a part of a deployment. Another one that has begun since is not fenced in its turn. To begin is not
    to work: one that fails on the first event begins each time that it is tried.
    """

    def __init__(self, follower: Working) -> None:
        super().__init__(follower)
        self._worked = follower.worked

    def start(self) -> None:
        self._worked.clear()
        super().start()

    def has_worked(self) -> bool:
        return self._worked.is_set()

    def fault_of(self, error: BaseException) -> Fault:
        found = super().fault_of(error)
        fenced = isinstance(error, ProducerFenced | AnotherApplier)
        return found._replace(final=True, superseded=True) if fenced else found


def stable_id(name: str, *parts: object) -> str:
    """The same for the same parts, and short: an event's id has its command's in it, which may be one of these."""
    return f"{name}/{sha256(json.dumps(parts).encode()).hexdigest()[:32]}"


def text_record(key: str, fields: Mapping[str, Any] | None, now_ms: int, headers: Iterable[Any] = ()) -> Record:
    value = None if fields is None else json.dumps({"v": FORMAT, **fields}, separators=(",", ":")).encode()
    return key.encode(), value, list(headers), now_ms
