"""A decider: what becomes of a command, and of an event, as plain functions on plain data.

    decide(state, command, now) -> events       or raise Refused(reason): nothing is written
    apply(state, event) -> state                total: an event has happened, it is not refused

    seats = Decider(Seat(), decide, apply, commands=[Reserve], events=[Reserved, Cancelled], refusals=[SeatTaken])

Rules:
- Both are pure: no clock, no chance, no IO. `now` is the owner's time when it decides, in UTC; what else they need is
  in the command.
- `decide` gives events as a list or any iterable, or one event alone. None, or an empty list: nothing is written, and
  the version stays.
- States and events are not changed once they are made: a decision that is not written must leave nothing behind.
- `initial` is the state of an entity without history. A state's type must be readable from JSON, for snapshots: it is
  `type(initial)`, unless `state` says more (`dict[str, int]`). `state_version` is raised when `apply` gives other
  states than before: snapshots of the old kind are passed over then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import reduce
from typing import Any, Generic, TypeVar

from tidelog.errors import HistoryFault, Refused, UsageError
from tidelog.sourcing.codec import JsonCodec
from tidelog.sourcing.event_types import OWN, EventType, EventTypes

State = TypeVar("State")


class Decider(Generic[State]):
    """`decide(state, command, now)` gives events or raises `Refused`; `apply(state, event)` gives the next state. Both
    are pure. `commands`, `events` and `refusals` are the classes that may be stored and sent.
    """

    def __init__(
        self,
        initial: State,
        decide: Callable[[State, Any, datetime], Any],
        apply: Callable[[State, Any], State],
        *,
        commands: Iterable[type] = (),
        events: Iterable[type | EventType] = (),
        refusals: Iterable[type] = (),
        state: Any = None,
        state_version: int = 1,
    ) -> None:
        self.initial = initial
        self._decide = decide
        self.apply = apply
        self.types = EventTypes(events)
        self.commands = _by_name(commands, "command")
        self.refusals = _by_name(refusals, "refusal")
        self.states = JsonCodec(type(initial) if state is None else state)
        self.state_schema = f"{state_version}-{self.states.fingerprint()}"

    def decide(self, state: State, command: Any, now: datetime) -> list[Any]:
        """Events, each of a registered type. What is not allowed raises `Refused`."""
        decided = self._decide(state, command, now)
        if decided is None:
            return []
        if type(decided) in self.types.by_class:
            return [decided]
        if not isinstance(decided, Iterable) or isinstance(decided, str | bytes | dict):
            raise UsageError(
                f"decide gave {decided!r} for {command!r}; it gives a list of events, or one of"
                f" {', '.join(sorted(self.types.by_name))}"
            )
        events = list(decided)
        for event in events:
            self.types.of(event)
        return events

    def fold(self, events: Iterable[Any], state: State | None = None) -> State:
        """From the initial state on, or from the one that is given."""
        return reduce(self.apply, events, self.initial if state is None else state)

    # Commands and reasons as JSON

    def encode_command(self, command: Any) -> tuple[str, bytes]:
        name = type(command).__name__
        codec = self.commands.get(name)
        if codec is None or codec.cls is not type(command):
            known = ", ".join(sorted(self.commands)) or "none"
            raise UsageError(
                f"{command!r} is not a command of this decider, which has {known}; add {name} to its commands"
            )
        return name, codec.encode(command)

    def decode_command(self, name: str, value: bytes, *, strict: bool = False) -> Any:
        """`strict`: a member that its type does not have is refused."""
        codec = self.commands.get(name)
        if codec is None:
            known = ", ".join(sorted(self.commands)) or "none"
            raise UsageError(f"{name!r} is not a command of this decider, which has {known}")
        try:
            if strict:
                codec.check_members(value)
            return codec.decode(value)
        except HistoryFault as error:
            raise UsageError(f"the command cannot be read: {error}") from error

    def refusal_fields(self, refused: Refused) -> dict[str, Any]:
        """For who is elsewhere. A reason that is not registered goes as its text."""
        codec = self.refusals.get(type(refused.reason).__name__)
        message = str(refused)
        if codec is None or codec.cls is not type(refused.reason):
            return {"type": None, "reason": str(refused.reason), "message": message}
        return {"type": codec.cls.__name__, "reason": codec.fields(refused.reason), "message": message}

    def refusal_from(self, fields: dict[str, Any]) -> Refused:
        codec = self.refusals.get(str(fields.get("type")))
        reason = fields.get("reason")
        return Refused(reason if codec is None else codec.from_fields(reason), fields.get("message"))


def _by_name(classes: Iterable[type], what: str) -> dict[str, JsonCodec]:
    found: dict[str, JsonCodec] = {}
    for cls in classes:
        if cls.__name__ in found or cls.__name__.startswith(OWN):
            raise UsageError(f"two {what}s are called {cls.__name__!r}; give one of them another name")
        found[cls.__name__] = JsonCodec(cls)
    return found
