"""An event store: commands in, decided one after the other by the owner of their entity, events kept for ever.

    store = EventStore("seats", seats, bootstrap="127.0.0.1:9092")
    with store:                                                     owners of partitions run beside the caller
        receipt = store.send("A1", Reserve("anna"))                 or Refused, with its reason
        store.state("A1")                                           its state, version, and whether it is closed

    members     each process with a store of this name is a member of the group `tidelog.store.NAME`; the broker shares
                the partitions out among them, and each has an owner for every partition that is its own (`owning.py`)
    sending     to a partition that is owned here goes to its owner's queue; to any other by the command topic, and the
                answer comes by that of replies (`courier.py`). Who sends sees no difference
    serve=False a store that owns nothing and only sends

Rules:
- `send` is for any thread. It returns when the events are on disk.
- An owner that is fenced is not begun again before a heartbeat has said that the partition is still this member's.
- What a process knew that was paused for long is refused by the broker (its owners are fenced), and what it was asked
  is sent to who owns the partition now, under the same id.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import count
from threading import Event, Thread
from typing import Any, Generic
from uuid import uuid4

from tidelog.client.backoff import waits
from tidelog.client.cluster import Cluster
from tidelog.client.membership import GroupMembership
from tidelog.client.security import Security
from tidelog.control.health import RETRYING
from tidelog.control.metrics import Metrics
from tidelog.control.status import STORE
from tidelog.errors import OutcomeUnknown, TidelogError, UsageError
from tidelog.sourcing import declaring, store_topics, time_travel
from tidelog.sourcing.command_reading import CommandReader
from tidelog.sourcing.courier import Courier
from tidelog.sourcing.decider import Decider, State
from tidelog.sourcing.entities import BOUND
from tidelog.sourcing.entity import REFUSE, REMEMBERED, SKIP, Folding
from tidelog.sourcing.event_record import NOTHING, CommandContext, EventRecord
from tidelog.sourcing.histories import read_history
from tidelog.sourcing.loading import SNAPSHOT_EVERY
from tidelog.sourcing.owning import OwnerSettings, PartitionOwner
from tidelog.sourcing.personal import Cipher
from tidelog.sourcing.requests import (
    CLOSE,
    DECIDE,
    FIND,
    STATE,
    EntityState,
    Expected,
    Joint,
    PendingAnswer,
    Receipt,
    Request,
    check_names,
)
from tidelog.sourcing.store_part import clear_reports
from tidelog.sourcing.store_topics import StoreTopics, place_of
from tidelog.sourcing.time_travel import FieldChange, PastState

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
PARTITIONS = 4
TIMEOUT_S = 30.0
LOOK_S = 0.1
NOTHING_S = 3.0  # a member that is given no partition for so long: others have them all

log = logging.getLogger(__name__)


class EventStore(Generic[State]):
    """The histories of entities, in topics of a broker. Within `with store: ...` it decides commands, as one of its
    owners, and sends them: `send`, `state`, `history`. `serve=False` sends alone.
    """

    kind = STORE

    def __init__(
        self,
        name: str,
        decider: Decider[State],
        *,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        security: Security | None = None,
        partitions: int = PARTITIONS,
        serve: bool = True,
        cipher: Cipher | None = None,
        unknown: str = REFUSE,
        snapshot_every: int = SNAPSHOT_EVERY,
        cache_entities: int = BOUND,
        remembered: int = REMEMBERED,
        folder: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`partitions` counts for a store that is new. `unknown` says what an event of a type that is not registered
        does: "refuse" makes its entity refuse commands, "skip" passes it over. `folder` is where entities beyond
        `cache_entities` lie, the system's temporary folder by default.
        """
        if unknown not in (REFUSE, SKIP):
            raise UsageError(f"unknown={unknown!r}; it is {REFUSE!r} or {SKIP!r}")
        self.name = store_topics.checked_name(name)
        self.decider, self.cipher = decider, cipher
        self.topics = StoreTopics(name)
        self.bootstrap, self._security, self._timeout_s = bootstrap, security, timeout_s
        self._wanted_partitions, self._serves = partitions, serve
        self.folding = self._folding = Folding(decider, cipher=cipher, unknown=unknown, remembered=remembered)
        self._settings = OwnerSettings(snapshot_every, cache_entities, remembered, folder)
        self._partitions = 0
        self._owners: dict[int, PartitionOwner] = {}
        self._readers: dict[int, CommandReader] = {}
        self._courier: Courier | None = None
        self._ids, self._numbers = uuid4().hex[:16], count(1)  # a command's own id: chance once, then a number
        self._stopping, self._settled = Event(), Event()
        self._thread: Thread | None = None
        self._failed: BaseException | None = None
        self._trouble: str | None = None  # with its group, which it tries to get past
        self._member_id: str | None = None  # under which it was in the group last
        self.worked = Event()  # see `store_part.py`
        self.before_answer: list[Callable[[Receipt], None]] = []  # what `send` and `send_together` wait for, beside

    # As a part of a program -------------------------------------------------------------------------------------------

    def __enter__(self) -> EventStore[State]:
        """Returns when what was given to this process is loaded, or when it seems that it is given nothing."""
        self._open()
        if self._serves:
            self._thread = Thread(target=self._beside, name=f"store-{self.name}", daemon=True)
            self._thread.start()
            self._settled.wait(self._timeout_s)
            self._raise_failed()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._close()

    def run(self, stopping: Event) -> None:
        """As a part of a deployment (`parts.run_part`): until `stopping` is set."""
        self._open()
        self._stopping = stopping
        try:
            self._share()
        finally:
            self._close()
        self._raise_failed()

    def figures(self) -> Mapping[str, Any]:
        owners, readers = dict(self._owners), dict(self._readers)
        told = [owner.figures for owner in owners.values()]
        troubles = [
            self._trouble,
            *(one.trouble for one in owners.values()),
            *(one.trouble for one in readers.values()),
        ]
        trouble = next(filter(None, troubles), None)
        counts = Metrics(
            rows_in=sum(one.commands for one in told),
            rows_out=sum(one.events for one in told),
            state_rows=sum(one.entities for one in told),
        )
        return {
            **counts.fields,
            **({} if trouble is None else {"state": RETRYING, "error": trouble}),
            "store": self.name,
            "group": self.topics.group,
            "member": self._member_id,
            "inputs": [self.topics.commands],
            "outputs": [self.topics.events, self.topics.replies],
            "partitions": sorted(owners),
            "refused": sum(one.refused for one in told),
            "transactions": sum(one.transactions for one in told),
            "foreign_records": sum(one.foreign for one in told),
            "handed_on": sum(one.handed_on for one in readers.values()),
        }

    def _open(self) -> None:
        with self.connect() as cluster:
            if self._serves:
                self._partitions = store_topics.ensure(cluster, self.topics, self._wanted_partitions)
                largest = store_topics.largest(cluster, self.topics)
                self._partitions = declaring.declare(cluster, self.topics, self.decider.types, self._partitions)
                self._settings = self._settings._replace(partitions=self._partitions, largest=largest)
            else:
                self._partitions = store_topics.count(cluster, self.topics)
        self._stopping, self._settled, self._failed = Event(), Event(), None
        self._courier = Courier(self.topics, self._partitions, self.decider, self.connect)

    def _close(self) -> None:
        if self._courier is not None:
            self._courier.stop()
            self._courier = None

    def reach(self, bootstrap: str, security: Security | None = None) -> None:
        """Another broker than the one that it was declared with; before it runs."""
        self.bootstrap, self._security = bootstrap, security

    def connect(self) -> Cluster:
        """A cluster for who calls: each thread has one of its own."""
        client_id = f"tidelog-store-{self.name}"
        return Cluster(self.bootstrap, client_id=client_id, timeout_s=self._timeout_s, security=self._security)

    # Membership -------------------------------------------------------------------------------------------------------

    def _beside(self) -> None:
        try:
            self._share()
        except BaseException as error:
            self._failed = error
        finally:
            self._settled.set()

    def _share(self) -> None:
        """Owns what the group gives to this process, until it is told to stop."""
        pauses = waits()
        try:
            while not self._stopping.is_set():
                try:
                    with self.connect() as cluster:
                        self._follow(cluster)
                except UsageError:
                    raise
                except TidelogError as error:
                    log.warning("store %s: its group is not heard: %s", self.name, error)
                    self._trouble = str(error)
                    self._stopping.wait(next(pauses))
        finally:
            self._trouble = None
            self._give_up(list(self._owners))

    def _follow(self, cluster: Cluster) -> None:
        member, begun = GroupMembership(cluster, self.topics.group), time.monotonic()
        self._member_id = member.member_id
        try:
            anew = True
            while not self._stopping.is_set():
                changed = member.beat([self.topics.commands], at_once=anew)
                self._trouble = None
                if changed:
                    clear_reports(cluster, self.name, self.topics.group)
                if changed or anew:
                    self._own({at.partition for at in member.partitions})
                anew = self._bury()
                is_given = bool(member.partitions) or time.monotonic() - begun > NOTHING_S
                if is_given and all(owner.ready.is_set() for owner in self._owners.values()):
                    self._settled.set()
                if is_given and all(owner.worked.is_set() for owner in self._owners.values()):
                    self.worked.set()
                self._stopping.wait(LOOK_S)
        finally:
            self._give_up(list(self._owners))
            with suppress(TidelogError):
                member.leave()

    def _own(self, partitions: set[int]) -> None:
        self._give_up([number for number in self._owners if number not in partitions])
        for number in sorted(partitions - set(self._owners)):
            owner = PartitionOwner(
                self.topics,
                number,
                self._folding,
                self._settings,
                connect=self.connect,
                give_back=self._send_elsewhere,
            )
            reader = CommandReader(self.topics, owner, self.connect)
            owner.start()
            reader.start()
            self._readers[number] = reader
            self._owners[number] = owner

    def _bury(self) -> bool:
        """Owners that have ended by themselves. Whether one was fenced: the group is to say whose its partition is."""
        ended = [number for number, owner in self._owners.items() if not owner.alive]
        failed = [owner.failed for owner in self._owners.values() if owner.failed is not None]
        self._give_up(ended)
        if failed:
            raise failed[0]
        return bool(ended)

    def _give_up(self, numbers: Sequence[int]) -> None:
        given_up = [(self._owners.pop(number), self._readers.pop(number)) for number in numbers]
        enders = [Thread(target=_end, args=pair, daemon=True) for pair in given_up]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join()

    # Sending ----------------------------------------------------------------------------------------------------------

    def send(
        self,
        entity: str,
        command: Any,
        *,
        id: str | None = None,
        expected: Expected = None,
        who: str | None = None,
        correlation: str | None = None,
        causation: str | None = None,
        metadata: Mapping[str, Any] = NOTHING,
        timeout_s: float | None = None,
    ) -> Receipt:
        """Decided and on disk when it returns. `id`: the same command under the same id is done once. `expected`: the
        version that the history must have, NO_HISTORY or HISTORY_EXISTS. Raises `Refused`, `WrongVersion`,
        `HistoryClosed`, `CommandConflict`; `OutcomeUnknown` when there is no answer in time.
        """
        context = CommandContext(correlation, causation, who, metadata)
        request = self._request(entity, command, id, expected, context)
        receipt: Receipt = self._result(request, timeout_s)
        return self._shown([receipt])[0]

    def send_soon(
        self, entity: str, command: Any, *, id: str | None = None, expected: Expected = None, **context: Any
    ) -> PendingAnswer:
        """Returns at once; `.result()` waits."""
        request = self._request(entity, command, id, expected, CommandContext(**context))
        self._route(Joint((request,)))
        return request.answer

    def send_together(
        self,
        commands: Sequence[tuple[str, Any]],
        *,
        id: str | None = None,
        expected: Mapping[str, Expected] | None = None,
        timeout_s: float | None = None,
        **context: Any,
    ) -> list[Receipt]:
        """All of them count, or none: (entity, command) in order, each on what the ones before made. The entities are
        of one partition. Command N of them has the id `ID/N`.
        """
        if not commands:
            return []
        whole = self._new_id() if id is None else id
        told, left = CommandContext(**{"correlation": whole, **context}), dict(expected or {})
        requests = tuple(
            self._request(entity, command, f"{whole}/{number}", left.pop(entity, None), told)
            for number, (entity, command) in enumerate(commands)
        )
        self._route(Joint(requests))
        return self._shown([request.answer.result(self._patience(timeout_s)) for request in requests])

    def _shown(self, receipts: list[Receipt]) -> list[Receipt]:
        for wait in self.before_answer:
            for receipt in receipts:
                wait(receipt)
        return receipts

    def state(self, entity: str, *, timeout_s: float | None = None) -> EntityState:
        """As its owner has it, all that was answered before included."""
        return self._result(Request(STATE, entity, self._new_id()), timeout_s)  # type: ignore[no-any-return]

    def find(self, entity: str, id: str, *, timeout_s: float | None = None) -> Receipt | None:
        """What became of a command; None where it wrote nothing, or is not remembered any more."""
        return self._result(Request(FIND, entity, id), timeout_s)  # type: ignore[no-any-return]

    def close_history(
        self,
        entity: str,
        *,
        id: str | None = None,
        expected: Expected = None,
        who: str | None = None,
        timeout_s: float | None = None,
    ) -> Receipt:
        """Its last event: the entity takes no commands any more. Its state and its history stay readable."""
        named = self._new_id() if id is None else id
        request = Request(CLOSE, entity, named, value=b"{}", expected=expected, context=CommandContext(who=who))
        return self._result(request, timeout_s)  # type: ignore[no-any-return]

    def history(self, entity: str) -> Iterator[tuple[EventRecord, list[Any]]]:
        """Every record of it with its events, upcast, from the log: the whole partition is read."""
        with self.connect() as cluster:
            yield from read_history(cluster, self.topics, entity, self.decider.types, self.cipher)

    def state_at(self, entity: str, *, version: int | None = None, at: datetime | None = None) -> PastState:
        """Its state after a version, or at a time, as today's code folds it; the last one without either."""
        with self.connect() as cluster:
            return time_travel.state_at(
                cluster, self.topics, entity, self._folding, time_travel.moment(version=version, at=at)
            )

    def states(self, entity: str) -> Iterator[PastState]:
        """After every version, beginning with 0."""
        with self.connect() as cluster:
            yield from time_travel.states(cluster, self.topics, entity, self._folding)

    def difference(self, entity: str, first: int, second: int | None = None) -> list[FieldChange]:
        """What of its state changed from one version to another, or to now."""
        found = list(self.states(entity))
        last = len(found) - 1 if second is None else second
        if not 0 <= first <= last < len(found):
            raise UsageError(f"versions {first} to {last}; the history has 0 to {len(found) - 1}")
        fields = self.decider.states.fields
        return time_travel.difference(fields(found[first].state), fields(found[last].state))

    def _request(
        self, entity: str, command: Any, id: str | None, expected: Expected, context: CommandContext
    ) -> Request:
        name, value = self.decider.encode_command(command)
        return Request(
            DECIDE,
            entity,
            self._new_id() if id is None else id,
            command=command,
            type=name,
            value=value,
            expected=expected,
            context=context,
        )

    def _new_id(self) -> str:
        return f"{self._ids}-{next(self._numbers)}"

    def _result(self, request: Request, timeout_s: float | None) -> Any:
        self._route(Joint((request,)))
        return request.answer.result(self._patience(timeout_s))

    def _patience(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else timeout_s

    def _route(self, joint: Joint) -> None:
        places = set()
        for request in joint.requests:
            check_names(request)
            if self._partitions:
                places.add(place_of(self.topics.events, request.key, self._partitions).partition)
        if len(places) > 1:
            raise UsageError(
                f"{', '.join(repr(one.entity) for one in joint.requests)} are in partitions"
                f" {', '.join(map(str, sorted(places)))} of store {self.name}, and what counts together is in one; a"
                " store with partitions=1 has all entities in one"
            )
        if self._failed is not None:
            raise self._failed
        if self._courier is None or self._stopping.is_set():
            raise UsageError(f"store {self.name} does not run; use it by `with`, or run() it")
        for place in places:
            owner = self._owners.get(place)
            if owner is not None and owner.offer(joint):
                return
        self._send_elsewhere([joint])

    def _send_elsewhere(self, joints: Sequence[Joint]) -> None:
        courier = self._courier
        for joint in joints:
            if courier is None or self._stopping.is_set():
                for request in joint.requests:
                    request.answer.settle(error=OutcomeUnknown(f"store {self.name} stopped before it answered"))
            else:
                courier.send(joint)

    def _raise_failed(self) -> None:
        if self._failed is not None:
            raise self._failed


def _end(owner: PartitionOwner, reader: CommandReader) -> None:
    owner.stop()
    reader.stop()
