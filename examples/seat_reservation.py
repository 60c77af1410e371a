"""Two hundred clients want seats of one hall at once, and no seat is sold twice.

A seat is an entity. Its owner decides one command after the other on what the ones before made, so of all who want the
same seat one gets it, and the others are refused with who has it. Half of the clients send by topic, as another process
would.

    python examples/seat_reservation.py
"""

import random
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

import tidelog
from tidelog.sourcing import Decider, EventStore, Refused, specification

SEATS = [f"{row}{number}" for row in "ABCDE" for number in range(1, 11)]
CLIENTS = 200


@dataclass(frozen=True)
class Seat:
    holder: str | None = None


@dataclass(frozen=True)
class Reserve:
    who: str


@dataclass(frozen=True)
class Reserved:
    who: str


@dataclass(frozen=True)
class SeatTaken:
    by: str


def decide(seat: Seat, command: Reserve, now: datetime) -> list[Reserved]:
    if seat.holder is not None:
        raise Refused(SeatTaken(seat.holder))
    return [Reserved(command.who)]


def apply(seat: Seat, event: Reserved) -> Seat:
    return Seat(event.who)


seats = Decider(Seat(), decide, apply, commands=[Reserve], events=[Reserved], refusals=[SeatTaken])
specification(seats).given(Reserved("anna")).when(Reserve("bob")).then_refused(SeatTaken("anna"))


def buy(store: EventStore[Seat], who: str) -> str | None:
    """Tries seats until one is free, as people do."""
    for seat in random.Random(who).sample(SEATS, 12):
        try:
            store.send(seat, Reserve(who), who=who)
            return seat
        except Refused as refused:
            assert isinstance(refused.reason, SeatTaken)
    return None


with (
    tidelog.Broker(tempfile.mkdtemp()) as broker,
    EventStore("hall", seats, bootstrap=broker.bootstrap, partitions=2) as store,
    EventStore("hall", seats, bootstrap=broker.bootstrap, serve=False) as elsewhere,
    ThreadPoolExecutor(CLIENTS) as clients,
):
    tries = [clients.submit(buy, (store, elsewhere)[n % 2], f"client {n}") for n in range(CLIENTS)]
    sold = {f"client {n}": bought.result() for n, bought in enumerate(tries) if bought.result() is not None}
    holders = {seat: store.state(seat) for seat in SEATS}

    print(f"{CLIENTS} clients, {len(SEATS)} seats")
    print("sold twice:", [seat for seat, times in Counter(sold.values()).items() if times > 1])
    print("events in each history:", sorted({found.version for found in holders.values()}))
    right = all(holders[seat].state.holder == who for who, seat in sold.items() if seat is not None)
    print("who bought a seat has it:", right)
    print("every other client was refused:", len(sold) == sum(found.version for found in holders.values()))
