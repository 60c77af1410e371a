"""A process manager: events of a store become commands, to the same store or to others, and time-outs.

    payment = ProcessManager("payment", orders, react, apply=apply, initial=Waiting())

    apply(state, event) -> state                what is known of one process; `key` says of which, None: of none
    react(state, event) -> [Send(...), ...]     after it was applied; or one alone, or None. Also
                                                `SetTimer(name, seconds)`, `ClearTimer(name)`
    TimedOut(name, at)                          is given to both when a timer has run out
    CommandRefused(...)                         is given to both when a command of its was refused by a store of
                                                `refusals=`; the event of one that was done it sees anyway

    payment.process     state/KEY           {"v":1,"state":...,"timers":{"NAME":DUE_MS}}, header `schema` as snapshots
                                            have it; null for a process that is over (`processes.py`)
                        position/P          how far (`event_following.py`)
                        replies/STORE/P     {"v":1,"offset":NEXT}: how far answers of that store are read

Rules:
- Commands, states, timers and positions are one transaction: after a crash at any step each command is in the
  command topic once. It also has a stable id, by which the store does it once.
- Events before `live` are applied and not reacted to. A state of another type or `state_version` is folded anew from
  all events, in silence: nothing is sent again.
- Timers are due by the event's own time, and run out by this machine's clock; one that was due while nobody ran runs
  out at the next start. A clock that is set back lets them run out later, never twice.
- Answers are kept for a day, as commands are: who is away for longer does not learn what was refused meanwhile. Set a
  timer where that matters.
- One process runs it. The newer takes over, and the elder ends with `ProducerFenced`.
- `apply` and `react` are pure. What they raise ends the process manager, with the event; nothing of it was written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from threading import Event
from typing import Any, NamedTuple

from tidelog.control.metrics import Metrics
from tidelog.errors import UsageError
from tidelog.record.columns import Row
from tidelog.sourcing.codec import JsonCodec
from tidelog.sourcing.entities import BOUND
from tidelog.sourcing.event_following import FORMAT, NOW, EventLog, FollowerThread
from tidelog.sourcing.event_record import EventRecord
from tidelog.sourcing.processes import Cause, Process
from tidelog.sourcing.raised import told
from tidelog.sourcing.store import EventStore


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


class CommandRefused(NamedTuple):
    """`reason` is what the decider refused it with, of its own type; or the name of another error (`HistoryClosed`)."""

    type: str  # of the command
    entity: str
    reason: Any
    message: str
    id: str


Action = Send | SetTimer | ClearTimer


class ProcessManager:
    """Turns events of a store into commands and time-outs: `react` says which, after `apply` has told what is known of
    one process. `with manager.beside(): ...` runs it in a thread, `tidelog store follow` in a process.
    """

    kind = "process"

    def __init__(
        self,
        name: str,
        store: EventStore[Any],
        react: Callable[[Any, Any], Iterable[Action] | Action | None],
        *,
        apply: Callable[[Any, Any], Any] = lambda state, event: state,
        initial: Any = None,
        key: Callable[[Any, EventRecord], str | None] = lambda event, record: record.entity,
        state: Any = None,
        state_version: int = 1,
        start: str = NOW,
        refusals: Sequence[EventStore[Any]] = (),
        cache_processes: int = BOUND,
        folder: str | None = None,
    ) -> None:
        """`refusals`: stores whose refusals of its commands it is told. `folder` is where processes beyond
        `cache_processes` lie, the system's temporary folder by default.
        """
        self.name, self.store = name, store
        self._react, self._apply, self._initial, self._key = react, apply, initial, key
        self._codec = JsonCodec(state if state is not None else Any if initial is None else type(initial))
        self._schema = f"{state_version}-{self._codec.fingerprint()}".encode()
        self._start = start
        self.refusals = {one.name: one for one in refusals}
        self.cache_processes, self.folder = cache_processes, folder
        self._figures: dict[str, int] = dict.fromkeys(("events", "commands", "timeouts", "refused"), 0)
        self._sizes = (0, 0)
        self.worked = Event()

    def figures(self) -> Mapping[str, Any]:
        found = self._figures
        counts = Metrics(rows_in=found["events"], rows_out=found["commands"], state_rows=self._sizes[0]).fields
        told = {"timeouts": found["timeouts"], "refused": found["refused"], "timers": self._sizes[1]}
        outputs = sorted({self.store.topics.commands, *(one.topics.commands for one in self.refusals.values())})
        return {**counts, "inputs": [self.store.topics.events], "outputs": outputs, **told}

    def beside(self) -> FollowerThread:
        """In a thread of this process: `with manager.beside(): ...`"""
        return FollowerThread(self)

    def reach(self, bootstrap: str, security: Any = None) -> None:
        """Another broker than the stores were declared with; before it runs."""
        for store in (self.store, *self.refusals.values()):
            store.reach(bootstrap, security)

    def run(self, stopping: Event, begun: Event | None = None) -> None:
        """As a part (`parts.run_part`), until `stopping` is set. `begun` is set when its place is known."""
        from tidelog.sourcing.process_run import ProcessRun

        with self.store.connect() as cluster:
            run = ProcessRun(self, EventLog(cluster, self.store, self.kind, self.name, self._start))
            try:
                run.begin()
                if begun is not None:
                    begun.set()
                while not stopping.is_set():
                    run.step()
                    self.worked.set()
            finally:
                run.close()

    # Decisions

    def fold(self, key: str, process: Process, event: Any) -> None:
        try:
            process.state = self._apply(process.state, event)
        except Exception as error:
            raise self._failed("apply", event, told(error), key) from error

    def react(self, key: str, process: Process, event: Any, at_ms: int) -> list[Send]:
        """What is to be sent; timers are set and cleared."""
        try:
            found = self._react(process.state, event)
            actions = [found] if isinstance(found, Action) else list(found or ())
        except Exception as error:
            raise self._failed("react", event, told(error), key) from error
        for action in actions:
            if isinstance(action, SetTimer):
                process.timers[action.name] = at_ms + int(action.seconds * 1000)
            elif isinstance(action, ClearTimer):
                process.timers.pop(action.name, None)
            elif not isinstance(action, Send):
                why = f"it gave {action!r:.200}, and it gives Send, SetTimer and ClearTimer"
                raise self._failed("react", event, why, key)
        return [action for action in actions if isinstance(action, Send)]

    def not_to_be_sent(self, key: str, event: Any, send: Send, why: object) -> UsageError:
        return self._failed("react", event, f"{send.command!r:.200} cannot be sent to {send.entity!r}: {why}", key)

    def key_of(self, event: Any, record: EventRecord) -> str | None:
        try:
            return self._key(event, record)
        except Exception as error:
            raise self._failed("key", event, told(error)) from error

    def fresh(self) -> Process:
        return Process(self._initial, {})

    def is_over(self, process: Process) -> bool:
        return not process.timers and bool(process.state == self._initial)

    def counted(self, sizes: tuple[int, int], **more: int) -> None:
        self._sizes = sizes
        for name, count in more.items():
            self._figures[name] += count

    def _failed(self, what: str, event: Any, why: str, key: str | None = None) -> UsageError:
        whose = "" if key is None else f" of process {key!r:.100}"
        return UsageError(
            f"{what} of process manager {self.name} failed on {event!r:.200}{whose}: {why}; mend it, and start again"
        )

    # Records

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        return [("schema", self._schema)]

    def encode(self, key: str, process: Process) -> bytes:
        state = json.loads(self._codec.encode(process.state, key, f"{self.name}/{key}", self.store.cipher))
        fields = {"v": FORMAT, "state": state, "timers": process.timers}
        if process.causes:
            fields["causes"] = process.causes
        return json.dumps(fields, separators=(",", ":")).encode()

    def decode(self, key: str, value: bytes) -> Process:
        fields = json.loads(value)
        state = self._codec.from_fields(fields["state"], key, f"{self.name}/{key}", self.store.cipher)
        return Process(state, timers_of(fields), causes_of(fields))

    def without_state(self, value: bytes) -> Process:
        """Where its state is of another kind, its timers alone count: the state is folded anew."""
        fields = json.loads(value)
        return Process(self._initial, timers_of(fields), causes_of(fields))

    def is_current(self, row: Row) -> bool:
        return dict(row.headers).get("schema") == self._schema


def timers_of(fields: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): int(due) for name, due in fields["timers"].items()}


def causes_of(fields: Mapping[str, Any]) -> dict[str, Cause]:
    """None of what was written before they were kept."""
    return {str(name): (id, correlation) for name, (id, correlation) in fields.get("causes", {}).items()}
