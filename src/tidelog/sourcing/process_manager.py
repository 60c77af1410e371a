"""A process manager: events of a store become commands, to the same store or to others, and time-outs.

    payment = ProcessManager("payment", orders, react, apply=apply, initial=Waiting())

    apply(state, event) -> state                what is known of one process; `key` says of which, None: of none
    react(state, event) -> [Send(...), ...]     after it was applied. Also `SetTimer(name, seconds)`, `ClearTimer(name)`
    TimedOut(name, at)                          is given to both when a timer has run out

    payment.process     state/KEY    {"v":1,"state":...,"timers":{"NAME":DUE_MS}}, header `schema` as snapshots have it
                        position/P   how far (`event_following.py`)

Rules:
- Commands, states, timers and the position are one transaction: after a crash at any step each command is in the
  command topic once. It also has a stable id, by which the store does it once.
- Events before `live` are applied and not reacted to. A state of another type or `state_version` is folded anew from
  all events, in silence: nothing is sent again.
- Timers are due by the event's own time, and run out by this machine's clock; one that was due while nobody ran runs
  out at the next start.
- Nobody answers to it: a command that is refused leaves no event. Set a timer where that matters.
- One process runs it. The newer takes over, and the elder ends with `ProducerFenced`.
- `apply` and `react` are pure. What they raise ends the process manager, with the event; nothing of it was written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from threading import Event
from typing import Any, NamedTuple

from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Record
from tidelog.control.metrics import Metrics
from tidelog.errors import UsageError
from tidelog.record.columns import Row
from tidelog.sourcing.codec import JsonCodec
from tidelog.sourcing.command_record import encode_command
from tidelog.sourcing.entity import Folding
from tidelog.sourcing.event_following import NOW, EventLog, FollowerThread, stable_id, text_record
from tidelog.sourcing.event_record import CommandContext, EventRecord, decode
from tidelog.sourcing.requests import DECIDE, Joint, Request, check_names
from tidelog.sourcing.store import EventStore
from tidelog.sourcing.store_topics import place_of

STATE = "state/"
IDLE_MS = 100


class Send(NamedTuple):
    """A command to an entity; of another store where `to` is one."""

    entity: str
    command: Any
    to: EventStore[Any] | None = None


class SetTimer(NamedTuple):
    """In so many seconds after the event's time; a timer of the same name is set anew."""

    name: str
    seconds: float


class ClearTimer(NamedTuple):
    name: str


class TimedOut(NamedTuple):
    name: str
    at: datetime


Action = Send | SetTimer | ClearTimer


class Process:
    """One of them: what is known, and what runs out when."""

    __slots__ = ("state", "timers")

    def __init__(self, state: Any, timers: dict[str, int]) -> None:
        self.state, self.timers = state, timers


class ProcessManager:
    kind = "process"

    def __init__(
        self,
        name: str,
        store: EventStore[Any],
        react: Callable[[Any, Any], Iterable[Action] | None],
        *,
        apply: Callable[[Any, Any], Any] = lambda state, event: state,
        initial: Any = None,
        key: Callable[[Any, EventRecord], str | None] = lambda event, record: record.entity,
        state: Any = None,
        state_version: int = 1,
        start: str = NOW,
    ) -> None:
        self.name, self.store = name, store
        self._react, self._apply, self._initial, self._key = react, apply, initial, key
        self._codec = JsonCodec(state if state is not None else Any if initial is None else type(initial))
        self._schema = f"{state_version}-{self._codec.fingerprint()}".encode()
        self._start = start
        self._events = self._commands = self._timeouts = 0

    def figures(self) -> Mapping[str, Any]:
        counts = Metrics(rows_in=self._events, rows_out=self._commands).fields
        return {**counts, "inputs": [self.store.topics.events], "timeouts": self._timeouts}

    def beside(self) -> FollowerThread:
        """In a thread of this process: `with manager.beside(): ...`"""
        return FollowerThread(self)

    def run(self, stopping: Event) -> None:
        """As a part (`parts.run_part`), until `stopping` is set."""
        with self.store.connect() as cluster:
            run = ProcessRun(self, EventLog(cluster, self.store, self.kind, self.name, self._start))
            run.begin()
            while not stopping.is_set():
                run.step(int(time.time() * 1000))

    # Decisions

    def fold(self, process: Process, event: Any) -> None:
        try:
            process.state = self._apply(process.state, event)
        except Exception as error:
            raise self._failed("apply", event, error) from error

    def react(self, process: Process, event: Any, at_ms: int) -> list[Send]:
        """What is to be sent; timers are set and cleared."""
        try:
            actions = list(self._react(process.state, event) or ())
        except Exception as error:
            raise self._failed("react", event, error) from error
        for action in actions:
            if isinstance(action, SetTimer):
                process.timers[action.name] = at_ms + int(action.seconds * 1000)
            elif isinstance(action, ClearTimer):
                process.timers.pop(action.name, None)
            elif not isinstance(action, Send):
                raise UsageError(f"react of {self.name} gave {action!r}; it gives Send, SetTimer and ClearTimer")
        return [action for action in actions if isinstance(action, Send)]

    def key_of(self, event: Any, record: EventRecord) -> str | None:
        try:
            return self._key(event, record)
        except Exception as error:
            raise self._failed("key", event, error) from error

    def fresh(self) -> Process:
        return Process(self._initial, {})

    def counted(self, events: int, commands: int, timeouts: int) -> None:
        self._events, self._commands = self._events + events, self._commands + commands
        self._timeouts += timeouts

    def _failed(self, what: str, event: Any, error: Exception) -> UsageError:
        return UsageError(
            f"{what} of process manager {self.name} failed on {event!r:.200}: {error!r:.300}; mend it, and start again"
        )

    # Records

    def state_record(self, key: str, process: Process, now_ms: int) -> Record:
        state = json.loads(self._codec.encode(process.state, key, f"{self.name}/{key}", self.store.cipher))
        fields = {"state": state, "timers": process.timers}
        return text_record(f"{STATE}{key}", fields, now_ms, [("schema", self._schema)])

    def process_from(self, key: str, row: Row) -> Process:
        """Where its state is of another kind, its timers alone count: the state is folded anew."""
        fields = json.loads(row.value or b"{}")
        timers = {str(name): int(due) for name, due in fields["timers"].items()}
        if not self.is_current(row):
            return Process(self._initial, timers)
        state = self._codec.from_fields(fields["state"], key, f"{self.name}/{key}", self.store.cipher)
        return Process(state, timers)

    def is_current(self, row: Row) -> bool:
        return dict(row.headers).get("schema") == self._schema


class ProcessRun:
    """From taking the id to losing it. Belongs to one thread."""

    def __init__(self, manager: ProcessManager, log: EventLog) -> None:
        self._manager, self._log = manager, log
        self._processes: dict[str, Process] = {}
        self._changed: set[str] = set()
        self._outgoing: list[tuple[TopicPartition, Record]] = []
        self._partitions: dict[str, int] = {}

    def begin(self) -> None:
        rows: dict[str, Row] = {}
        self._log.begin(lambda key, row: rows.update({key: row}))
        kept = {key.removeprefix(STATE): row for key, row in rows.items() if row.value is not None}
        self._processes = {key: self._manager.process_from(key, row) for key, row in kept.items()}
        if not all(self._manager.is_current(row) for row in kept.values()):
            self._fold_anew()

    def _fold_anew(self) -> None:
        """States of another kind: from all events that are done, in silence. Timers stay."""
        done = {number: place.offset for number, place in self._log.places.items()}
        for process in self._processes.values():
            process.state = self._manager.fresh().state
        for place in self._log.places.values():
            place.offset = 0
        while any(place.offset < done[number] for number, place in self._log.places.items()):
            for number, rows, following in self._log.fetch():
                place = self._log.places[number]
                for row in rows:
                    if row.offset < done[number]:
                        self._note(row, silent=True)
                place.offset = min(following, done[number])
        self._changed.update(self._processes)

    def step(self, now_ms: int) -> None:
        """One fetch, timers that have run out, and one transaction with all that came of them."""
        fetched = self._log.fetch(self._wait_ms(now_ms))
        events = commands = 0
        for number, rows, following in fetched:
            place = self._log.places[number]
            for row in rows:
                events += 1
                commands += self._note(row, silent=row.offset < place.live)
            place.offset = following
        timeouts = self._run_out(int(time.time() * 1000))
        if fetched or timeouts or self._changed:
            self._write(now_ms)
            self._manager.counted(events, len(self._outgoing), timeouts)
            self._outgoing.clear()
            self._changed.clear()

    def _wait_ms(self, now_ms: int) -> int:
        due = [at for process in self._processes.values() for at in process.timers.values()]
        return max(1, min([at - now_ms for at in due], default=IDLE_MS))

    def _note(self, row: Row, *, silent: bool) -> int:
        if Folding.parse(row) is None:
            return 0
        record, events = decode(row, self._log.store.decider.types, self._log.store.cipher)
        sent = 0
        for number, event in enumerate(events):
            key = self._manager.key_of(event, record)
            if key is None:
                continue
            process = self._processes.setdefault(key, self._manager.fresh())
            self._manager.fold(process, event)
            self._changed.add(key)
            if not silent:
                cause = (record.entity, record.id, number)
                context = CommandContext(record.correlation, record.id, f"process {self._manager.name}")
                sends = self._manager.react(process, event, record.timestamp_ms)
                sent += self._send(sends, cause, context)
        return sent

    def _run_out(self, now_ms: int) -> int:
        due = sorted(
            (at, key, name)
            for key, process in self._processes.items()
            for name, at in process.timers.items()
            if at <= now_ms
        )
        for at, key, name in due:
            process = self._processes[key]
            if process.timers.get(name) != at:
                continue  # one that ran out before it has set or cleared it
            del process.timers[name]
            event = TimedOut(name, datetime.fromtimestamp(at / 1000, UTC))
            self._manager.fold(process, event)
            self._changed.add(key)
            sends = self._manager.react(process, event, at)
            self._send(sends, (key, name, at), CommandContext(who=f"process {self._manager.name}"))
        return len(due)

    def _send(self, sends: list[Send], cause: tuple[object, ...], context: CommandContext) -> int:
        for number, send in enumerate(sends):
            store = send.to or self._log.store
            name, value = store.decider.encode_command(send.command)
            id = f"{stable_id(self._manager.name, *cause)}/{number}"
            request = Request(DECIDE, send.entity, id, type=name, value=value, context=context)
            check_names(request)
            key, value_, headers = encode_command(Joint((request,)), b"")
            unanswered = [one for one in headers if one[0] != "to"]
            at = place_of(store.topics.commands, request.key, self._partitions_of(store.topics.commands))
            self._outgoing.append((at, (key, value_, unanswered, int(time.time() * 1000))))
        return len(sends)

    def _partitions_of(self, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = len(self._log.cluster.partitions(topic))
        return self._partitions[topic]

    def _write(self, now_ms: int) -> None:
        states = [self._manager.state_record(key, self._processes[key], now_ms) for key in sorted(self._changed)]
        places = [place.record(number, now_ms) for number, place in self._log.places.items()]
        with self._log.owner.transaction() as outgoing:
            for at, record in self._outgoing:
                outgoing.send(at, [record])
            outgoing.send(self._log.own, [*states, *places])
            outgoing.send_offsets(self._log.id, self._log.offsets())
