"""The owner of one partition of a store: a thread that decides, writes and answers. Read this after `deciding.py`.

    loading    begin() fences every elder owner; then what the log has is read (`loading.py`)
    serving    all requests that wait are decided in turn, each on what the ones before made; their events, replies and
               how far the command topic is answered are one transaction; when that is committed, all are answered
    failed     what is known in memory is thrown away, and loading begins again; the requests are decided anew. One
               that had been committed after all is known by its id, and has the same answer
    fenced     another owner began: this one ends. It does not begin again by itself; the group says whose it is
    ended      a last checkpoint is written; what waits is given back, for who owns the partition now

Rules:
- Events with which nothing else counts are one batch instead, where the broker is Tidelog (`Owner.append`): one sync of
  the disk, and not four.
- Nothing is answered before it is written so, not even a question: it might tell what is not to be.
- One transaction has what waits when the last one was committed, up to REQUESTS_MAX: under load the cost of a commit is
  shared by all who wait for it, and a lone command waits for nobody.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

from tidelog.client.backoff import waits
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import BATCH_BYTES, Record
from tidelog.control.owner import Owner
from tidelog.errors import ProducerFenced, StorageError, TidelogError, UsageError
from tidelog.sourcing.command_record import reply_that_fits
from tidelog.sourcing.deciding import CommandOutcome, Deciding
from tidelog.sourcing.entities import Entities, SnapshotFault
from tidelog.sourcing.entity import Folding
from tidelog.sourcing.loading import Loaded, checkpoint_record, load, snapshot_records
from tidelog.sourcing.requests import Joint, Receipt
from tidelog.sourcing.store_topics import Largest, StoreTopics, size_of

REQUESTS_MAX = 2_000
IDLE_S = 0.2
TOGETHER_S = 0.0005
BATCHES_EACH = 8  # of snapshots, in a transaction

log = logging.getLogger(__name__)


class OwnerSettings(NamedTuple):
    snapshot_every: int
    cache_entities: int
    remembered: int
    folder: str | None
    partitions: int = 0
    largest: Largest = Largest(0, 0, 0, 0)


class Figures:
    """What a status tells of it; written by the owner's thread alone."""

    __slots__ = ("commands", "entities", "events", "foreign", "loaded_events", "loads", "refused", "transactions")

    def __init__(self) -> None:
        self.commands = self.events = self.refused = self.transactions = 0
        self.entities = self.foreign = self.loads = self.loaded_events = 0


class PartitionOwner:
    """`give_back` takes requests of this process that were not answered. `connect` makes a cluster of its own."""

    def __init__(
        self,
        named: StoreTopics,
        partition: int,
        folding: Folding,
        settings: OwnerSettings,
        *,
        connect: Callable[[], Cluster],
        give_back: Callable[[Sequence[Joint]], None],
    ) -> None:
        self.partition = partition
        self._named, self.settings = named, settings
        self.folding = self._folding = folding
        self._connect, self._give_back = connect, give_back
        self._batch_bytes = min(BATCH_BYTES, *settings.largest)
        self._events = TopicPartition(named.events, partition)
        self._snapshots = TopicPartition(named.snapshots, partition)
        self._replies = TopicPartition(named.replies, partition)
        self._commands = TopicPartition(named.commands, partition)
        self._deciding = Deciding(
            folding, named.name, partition, largest=settings.largest.event, remembered=settings.remembered
        )
        self._queue: SimpleQueue[Joint | None] = SimpleQueue()
        self._lock, self._closed = Lock(), False
        self._stopping = Event()
        self._entities = Entities(folding, bound=settings.cache_entities, folder=settings.folder)
        self._end = self._since = self._asked = 0
        self._taken = self._answered = 0  # of those that came by topic
        self._trusts_snapshots = True
        self.ready = Event()  # loaded once
        self.looked = Event()  # what lay in the command topic was offered, if anything did
        self.worked = Event()  # and came to its end
        self.trouble: str | None = None  # which it tries to get past
        self.fenced = False
        self.failed: BaseException | None = None
        self.figures = Figures()
        self._thread = Thread(target=self._run, name=f"store-{named.name}-{partition}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when it has ended."""
        self._stopping.set()
        self._queue.put(None)
        self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def read_ahead(self) -> int:
        """Commands that came by topic and are not answered."""
        return self._taken - self._answered

    def offer(self, joint: Joint) -> bool:
        """Whether it was taken: it is then answered, or given back."""
        with self._lock:
            if self._closed:
                return False
            self._queue.put(joint)
            self._taken += joint.position >= 0
            return True

    # The thread

    def _run(self) -> None:
        waiting: list[Joint] = []
        try:
            with self._connect() as cluster:
                self._serve(cluster, waiting)
        except ProducerFenced as error:
            log.warning("store %s: partition %d has another owner: %s", self._named.name, self.partition, error)
            self.fenced = True
        except BaseException as error:
            self.failed = error
        finally:
            self._close(waiting)

    def _close(self, waiting: list[Joint]) -> None:
        with self._lock:
            self._closed = True
        while True:
            try:
                joint = self._queue.get_nowait()
            except Empty:
                break
            if joint is not None:
                waiting.append(joint)
        self._entities.close()
        self.ready.set()
        self._give_back([joint for joint in waiting if joint.position < 0 and joint.to is None])

    def _serve(self, cluster: Cluster, waiting: list[Joint]) -> None:
        owner = Owner(cluster, self._named.transactional_id(self.partition), batch_bytes=self._batch_bytes)
        pauses = waits()
        is_loaded, erased = False, self._erased()
        while not self._stopping.is_set():
            try:
                if erased != (erased := self._erased()):
                    # States that were read in clear are forgotten. What a state derives may be in old snapshots.
                    is_loaded = self._trusts_snapshots = False
                if not is_loaded:
                    self._load(cluster, owner)
                    is_loaded = True
                    self.ready.set()
                pauses = self._turn(owner, waiting, pauses)
            except (ProducerFenced, UsageError, StorageError):
                raise
            except SnapshotFault as error:
                log.warning("store %s: %s; snapshots are left aside and all events are read", self._named.name, error)
                self._trusts_snapshots, is_loaded = False, False
            except TidelogError as error:
                log.warning("store %s: partition %d begins again: %s", self._named.name, self.partition, error)
                is_loaded, self.trouble = False, f"partition {self.partition}: {error}"
                self._stopping.wait(next(pauses))
        if is_loaded and self._since and not waiting:
            self._checkpoint(owner)

    def _turn(self, owner: Owner, waiting: list[Joint], pauses: Iterator[float]) -> Iterator[float]:
        """What waits, decided and answered; the pauses of the next fault."""
        looked = self.looked.is_set()
        self._gather(waiting)
        if waiting:
            self._batch(owner, waiting)
            waiting.clear()
            pauses = waits()
        if self._since >= self.settings.snapshot_every:
            self._checkpoint(owner)
        self.trouble = None
        if looked and self._queue.empty():
            self.worked.set()
        return pauses

    def _erased(self) -> int:
        """Another number when a key of somebody was destroyed since (`erasure/cipher.py`)."""
        look = getattr(self._folding.cipher, "erased", None)
        return 0 if look is None else look()

    def _load(self, cluster: Cluster, owner: Owner) -> None:
        self._entities.close()
        self._entities = Entities(self._folding, bound=self.settings.cache_entities, folder=self.settings.folder)
        owner.begin([self._events])
        snapshots = self._snapshots if self._trusts_snapshots else None
        found: Loaded = load(cluster, self._folding, self._entities, self._events, snapshots)
        self._end, self._since = found.end, found.since_checkpoint
        self.figures.loads += 1
        self.figures.loaded_events, self.figures.foreign = found.since_checkpoint, found.foreign
        self.figures.entities = len(self._entities)

    def _gather(self, waiting: list[Joint]) -> None:
        """What waits by now; where nothing does, what comes first."""
        try:
            first = None if waiting else self._queue.get(timeout=IDLE_S)
            if first is not None:
                waiting.append(first)
            while len(waiting) < REQUESTS_MAX:
                more = self._queue.get_nowait() if self._asked < 2 else self._queue.get(timeout=self._rest_s(waiting))
                if more is not None:
                    waiting.append(more)
        except Empty:
            pass
        self._asked = len(waiting)

    def _rest_s(self, waiting: list[Joint]) -> float:
        """Who was answered a moment ago is about to ask again. Without a short wait for them, they would be two crowds
        who take turns, and each would wait for the other's commit.
        """
        return TOGETHER_S if len(waiting) < self._asked else 0.0

    # One transaction

    def _batch(self, owner: Owner, waiting: Sequence[Joint]) -> None:
        now_ms = int(time.time() * 1000)
        decided: list[tuple[Joint, list[CommandOutcome], TidelogError | Exception | None]] = []
        records: list[Record] = []
        places: list[tuple[int, list[Any]]] = []  # where a command's last event is among the records
        for joint in waiting:
            outcomes, error = self._decide(joint, now_ms)
            decided.append((joint, outcomes, error))
            for outcome in outcomes:
                if outcome.records and outcome.remembered is not None:
                    records += outcome.records
                    places.append((len(records), outcome.remembered))
        self._write(owner, decided, records, places, now_ms)
        self._settle(decided, len(records))

    def _decide(self, joint: Joint, now_ms: int) -> tuple[list[CommandOutcome], Exception | None]:
        if joint.fault is not None:
            return [], joint.fault
        try:
            after, outcomes = self._deciding.decide(self._entities.find, joint.requests, now_ms)
        except SnapshotFault:
            raise
        except Exception as error:  # of the decider, for who sent the command
            return [], error
        for request, outcome in zip(joint.requests, outcomes, strict=True):
            if outcome.records:
                self._entities.keep(request.entity, after[request.entity])
        return outcomes, None

    def _write(
        self,
        owner: Owner,
        decided: Sequence[tuple[Joint, list[CommandOutcome], Exception | None]],
        records: list[Record],
        places: list[tuple[int, list[Any]]],
        now_ms: int,
    ) -> None:
        position = max(joint.position for joint, _, _ in decided)
        replies = any(joint.to is not None for joint, _, _ in decided)
        if not records and position < 0 and not replies:
            return
        size = sum(map(size_of, records))
        if position < 0 and not replies:
            end = owner.append(self._events, records, size)
            if end is not None:
                self._written(end, len(records), places)
                self.figures.transactions += 1
                return
        with owner.transaction() as outgoing:
            if records:
                outgoing.send_at_once(self._events, records, size)
            if replies:
                if records:
                    outgoing.flush()  # a reply tells of offsets
                    self._place(outgoing.ends[self._events], len(records), places)
                outgoing.send(self._replies, self._reply_records(decided, now_ms))
            for joint, _, _ in decided:
                if joint.onward is not None:
                    at, record = joint.onward
                    outgoing.send(at, [record])
            if position >= 0:
                outgoing.send_offsets(self._named.group, {self._commands: position})
        if records:
            self._written(outgoing.ends[self._events], len(records), places)

        self.figures.transactions += 1

    def _written(self, end: int, count: int, places: list[tuple[int, list[Any]]]) -> None:
        self._end = end
        self._place(end, count, places)
        self._since += count

    @staticmethod
    def _place(end: int, count: int, places: list[tuple[int, list[Any]]]) -> None:
        for behind, remembered in places:
            remembered[3] = end - count + behind - 1

    def _reply_records(
        self, decided: Sequence[tuple[Joint, list[CommandOutcome], Exception | None]], now_ms: int
    ) -> list[Record]:
        found: list[Record] = []
        for joint, outcomes, error in decided:
            if joint.to is None or not joint.requests:
                continue
            first = joint.requests[0]
            values = [_answered(outcome) for outcome in outcomes]
            headers = [("command", first.id.encode()), ("to", joint.to)]
            room = self.settings.largest.reply - len(joint.to)
            value = reply_that_fits(self._folding.decider, values, error, self._replies.topic, room)
            found.append((first.key, value, headers, now_ms))
        return found

    def _settle(self, decided: Sequence[tuple[Joint, list[CommandOutcome], Exception | None]], events: int) -> None:
        figures = self.figures
        figures.events += events
        for joint, outcomes, error in decided:
            self._answered += joint.position >= 0
            figures.commands += len(joint.requests)
            figures.refused += error is not None
            for at, request in enumerate(joint.requests):
                request.answer.settle(None if error is not None else _answered(outcomes[at]), error)
        self._entities.trim()
        figures.entities = len(self._entities)

    # Snapshots

    def _checkpoint(self, owner: Owner) -> None:
        """The partition waits meanwhile."""
        too_large: dict[str, int] = {}
        batches = self._snapshot_batches(int(time.time() * 1000), too_large)
        while some := list(islice(batches, BATCHES_EACH)):
            with owner.transaction() as outgoing:
                for records, size in some:
                    outgoing.send_at_once(self._snapshots, records, size)
        self._entities.changed.intersection_update(too_large)
        self._since = 0
        self._trusts_snapshots = self._trusts_snapshots or not too_large
        if too_large:
            self._warn_of(too_large)

    def _snapshot_batches(self, now_ms: int, too_large: dict[str, int]) -> Iterator[tuple[list[Record], int]]:
        """Each as large as a batch may be, the checkpoint last; there is none where a snapshot is too large."""
        some, size = list[Record](), 0
        for name, record in snapshot_records(self._folding, self._entities, now_ms):
            its_size = size_of(record)
            if its_size > self.settings.largest.snapshot:
                too_large[name] = its_size
                continue
            if some and size + its_size > self._batch_bytes:
                yield some, size
                some, size = [], 0
            some.append(record)
            size += its_size
        if not too_large:
            some.append(checkpoint_record(self._end, now_ms))
            size += size_of(some[-1])
        if some:
            yield some, size

    def _warn_of(self, too_large: dict[str, int]) -> None:
        name, size = max(too_large.items(), key=lambda one: one[1])
        log.warning(
            "store %s: partition %d has no checkpoint now: the snapshot of %r has %d bytes, and %s takes %d; a start"
            " reads all events since the last checkpoint. Keep states small, or raise max.message.bytes of the topic",
            *(self._named.name, self.partition, name, size, self._snapshots.topic, self.settings.largest.snapshot),
        )


def _answered(outcome: CommandOutcome) -> Any:
    """With the offset, which is known by now."""
    value = outcome.value
    if outcome.remembered is not None and isinstance(value, Receipt):
        return value._replace(offset=outcome.remembered[3])
    return value
