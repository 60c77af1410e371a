"""Specifications of a decider that read as sentences, without a store:

    seats = specification(decider)
    seats.given(Reserved("anna")).when(Cancel("anna")).then(Cancelled("anna"))
    seats.given(Reserved("anna")).when(Reserve("bob")).then_refused(SeatTaken("anna"))
    seats.given().when(Cancel("anna")).then_nothing()

`when(..., now=...)` is the time that `decide` gets: the beginning of 2026 in UTC, unless given. What does not hold is
an AssertionError that shows both sides. `given` also takes events through JSON and back, so that
an event that could not be stored is found here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from tidelog.errors import Refused
from tidelog.sourcing.decider import Decider

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Specification:
    def __init__(self, decider: Decider[Any], events: Sequence[Any] = ()) -> None:
        self._decider = decider
        self._events = [self._stored(event, at) for at, event in enumerate(events, 1)]

    def given(self, *events: Any) -> Specification:
        """What has happened."""
        return Specification(self._decider, events)

    def when(self, command: Any, *, now: datetime = EPOCH) -> SpecifiedOutcome:
        name, value = self._decider.encode_command(command)
        command = self._decider.decode_command(name, value)
        state = self._decider.fold(self._events)
        try:
            return SpecifiedOutcome(self._decider, state, command, self._decider.decide(state, command, now), None)
        except Refused as refused:
            return SpecifiedOutcome(self._decider, state, command, [], refused)

    def then_state(self, state: Any) -> None:
        """What the given events come to."""
        _compare("state", self._decider.fold(self._events), state)

    def _stored(self, event: Any, version: int) -> Any:
        types = self._decider.types
        one, value = types.encode(event, "given", version)
        (read,) = types.decode(one.name, one.version, value, "given", version)
        _compare("event, stored and read", read, event)
        return read


class SpecifiedOutcome:
    """What became of a command."""

    def __init__(
        self, decider: Decider[Any], state: Any, command: Any, events: list[Any], refused: Refused | None
    ) -> None:
        self._decider, self._state, self._command = decider, state, command
        self.events, self.refused = events, refused

    def then(self, *events: Any) -> SpecifiedOutcome:
        if self.refused is not None:
            raise AssertionError(f"{self._command!r} was refused: {self.refused.reason!r}; expected {list(events)!r}")
        _compare("events", self.events, list(events))
        return self

    def then_nothing(self) -> SpecifiedOutcome:
        return self.then()

    def then_refused(self, reason: Any = None) -> SpecifiedOutcome:
        """For this reason, or for any of a class, or at all."""
        if self.refused is None:
            raise AssertionError(f"{self._command!r} was not refused; it gave {self.events!r}")
        is_class = isinstance(reason, type)
        if reason is not None and not (is_class and isinstance(self.refused.reason, reason)):
            _compare("reason", self.refused.reason, reason)
        return self

    def then_state(self, state: Any) -> SpecifiedOutcome:
        """After the events."""
        _compare("state", self._decider.fold(self.events, self._state), state)
        return self


def specification(decider: Decider[Any]) -> Specification:
    return Specification(decider)


def _compare(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise AssertionError(f"{what}: expected {expected!r}, found {found!r}")
