"""Orders that are paid, or cancelled when nobody pays: what tests of process managers and effects share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidelog.sourcing import ClearTimer, Decider, EventStore, ProcessManager, Refused, Send, SetTimer, TimedOut


@dataclass(frozen=True)
class Place:
    amount: int


@dataclass(frozen=True)
class Ship:
    pass


@dataclass(frozen=True)
class Pay:
    pass


@dataclass(frozen=True)
class GiveUp:
    pass


@dataclass(frozen=True)
class Placed:
    amount: int


@dataclass(frozen=True)
class Paid:
    pass


@dataclass(frozen=True)
class Shipped:
    pass


@dataclass(frozen=True)
class GivenUp:
    pass


NEXT: dict[type, tuple[str, str, Any]] = {
    Pay: ("placed", "paid", Paid),
    Ship: ("paid", "shipped", Shipped),
    GiveUp: ("placed", "given up", GivenUp),
}


def decide(state: str, command: Any, now: datetime) -> list[Any]:
    if isinstance(command, Place):
        return [Placed(command.amount)]
    wanted, _, event = NEXT[type(command)]
    if state != wanted:
        raise Refused(f"it is {state or 'new'}")
    return [event()]


def apply(state: str, event: Any) -> str:
    return {Placed: "placed", Paid: "paid", Shipped: "shipped", GivenUp: "given up"}[type(event)]


def orders() -> Decider[str]:
    return Decider("", decide, apply, commands=[Place, Pay, Ship, GiveUp], events=[Placed, Paid, Shipped, GivenUp])


class Shipping:
    """Ships what is paid, and gives up what nobody pays for in time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, order: str, event: Any) -> list[Any]:
        match event:
            case Placed():
                return [SetTimer("payment", self.seconds)]
            case Paid():
                return [ClearTimer("payment"), Send(order, Ship())]
            case TimedOut("payment"):
                return [Send(order, GiveUp())]
        return []


def shipping(store: EventStore[str], seconds: float = 600.0, **more: Any) -> ProcessManager:
    """One whose key is the order, and whose state learns it from its first event."""
    given: dict[str, Any] = {
        "apply": lambda order, event: f"o{event.amount}" if isinstance(event, Placed) else order,
        "initial": "",
        **more,
    }
    return ProcessManager("shipping", store, Shipping(seconds), **given)
