"""Seats that are reserved and cancelled: the decider that most tests of the room share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidelog.sourcing import Decider, Refused


@dataclass(frozen=True)
class Seat:
    holder: str | None = None
    times: int = 0


@dataclass(frozen=True)
class Reserve:
    who: str


@dataclass(frozen=True)
class Cancel:
    who: str


@dataclass(frozen=True)
class Look:
    """Decides nothing."""


@dataclass(frozen=True)
class Swap:
    """Two events at once."""

    old: str
    new: str


@dataclass(frozen=True)
class Reserved:
    who: str


@dataclass(frozen=True)
class Cancelled:
    who: str


@dataclass(frozen=True)
class SeatTaken:
    by: str


def decide(seat: Seat, command: Any, now: datetime) -> list[Any]:
    match command:
        case Reserve(who):
            if seat.holder is not None:
                raise Refused(SeatTaken(seat.holder))
            return [Reserved(who)]
        case Cancel(who):
            if seat.holder != who:
                raise Refused(f"{who} does not have it")
            return [Cancelled(who)]
        case Swap(old, new):
            if seat.holder != old:
                raise Refused(f"{old} does not have it")
            return [Cancelled(old), Reserved(new)]
    return []


def apply(seat: Seat, event: Any) -> Seat:
    match event:
        case Reserved(who):
            return Seat(who, seat.times + 1)
        case Cancelled():
            return Seat(None, seat.times)
    return seat


# So that what a process had that was killed is somebody else's soon.
SHORT_SESSIONS = {
    "group.consumer.session.timeout.ms": 2000,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.min.heartbeat.interval.ms": 100,
}
COMMANDS: list[type] = [Reserve, Cancel, Look, Swap]


def seats(**more: Any) -> Decider[Seat]:
    given: dict[str, Any] = {"commands": COMMANDS, "events": [Reserved, Cancelled], "refusals": [SeatTaken]}
    return Decider(Seat(), decide, apply, **{**given, **more})
