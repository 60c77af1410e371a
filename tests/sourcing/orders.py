"""Orders that are paid, or cancelled when nobody pays: what tests of process managers and effects share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidelog.sourcing import Decider, Refused


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
