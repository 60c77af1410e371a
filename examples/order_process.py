"""An order that nobody pays for is given up; one whose goods are sold out is told so; who pays gets one mail.

A process manager sends commands to two stores, sets a time-out, and is told when a command was refused. An effect sends
mails: once each, also if this program is killed and started again. Here both run in threads of the program; as a
process of its own each is run by

    tidelog store follow examples/order_process.py:payment
    tidelog store follow examples/order_process.py:mails

    python examples/order_process.py
"""

import time
from dataclasses import dataclass
from datetime import datetime

import tidelog
from tidelog.sourcing import (
    ClearTimer,
    CommandRefused,
    Decider,
    Effects,
    EventStore,
    ProcessManager,
    Refused,
    Send,
    SetTimer,
    TimedOut,
)


@dataclass(frozen=True)
class Place:
    order: str
    product: str


@dataclass(frozen=True)
class Pay:
    order: str


@dataclass(frozen=True)
class GiveUp:
    order: str
    why: str


@dataclass(frozen=True)
class Placed:
    order: str
    product: str


@dataclass(frozen=True)
class Paid:
    order: str


@dataclass(frozen=True)
class GivenUp:
    order: str
    why: str


@dataclass(frozen=True)
class Order:
    state: str = "new"


@dataclass(frozen=True)
class Take:
    order: str
    product: str


@dataclass(frozen=True)
class Taken:
    order: str


@dataclass(frozen=True)
class SoldOut:
    product: str


def decide(order: Order, command: object, now: datetime) -> object:
    match command, order.state:
        case Place(name, product), "new":
            return Placed(name, product)
        case Pay(name), "placed":
            return Paid(name)
        case GiveUp(name, why), "placed":
            return GivenUp(name, why)
    raise Refused(f"the order is {order.state}")


def apply(order: Order, event: object) -> Order:
    return Order({Placed: "placed", Paid: "paid", GivenUp: "given up"}[type(event)])


def take(taken: int, command: Take, now: datetime) -> Taken:
    if taken >= 1:  # one of each is in stock
        raise Refused(SoldOut(command.product))
    return Taken(command.order)


orders = EventStore(
    "orders",
    Decider(Order(), decide, apply, commands=[Place, Pay, GiveUp], events=[Placed, Paid, GivenUp]),
    partitions=1,
)
stock = EventStore(
    "stock",
    Decider(0, take, lambda taken, event: taken + 1, commands=[Take], events=[Taken], refusals=[SoldOut]),
    partitions=1,
)


def react(order: str, event: object) -> list[object]:
    match event:
        case Placed(product=product):
            return [Send(product, Take(order, product), to=stock), SetTimer("payment", seconds=1.0)]
        case CommandRefused(type="Take", reason=SoldOut()):
            return [ClearTimer("payment"), Send(order, GiveUp(order, "sold out"))]
        case TimedOut("payment"):
            return [Send(order, GiveUp(order, "nobody paid"))]
        case Paid():
            return [ClearTimer("payment")]
    return []


def remember(order: str, event: object) -> str:
    """What a process knows: its order."""
    return getattr(event, "order", order)


payment = ProcessManager("payment", orders, react, apply=remember, initial="", refusals=[stock], start="earliest")


def mail(event: Paid, record: object, id: str) -> None:
    print(f"mail: {record.entity} is paid")  # an SMTP server would get the id as Message-ID


mails = Effects("mails", orders, mail, concerns=lambda event, record: isinstance(event, Paid), start="earliest")


def main() -> None:
    with tidelog.Broker() as broker:
        for store in (orders, stock):
            store.reach(broker.bootstrap)
        with orders, stock, payment.beside(), mails.beside():
            for order, product in (("o1", "tea"), ("o2", "tea"), ("o3", "rum")):
                orders.send(order, Place(order, product))
            orders.send("o3", Pay("o3"))
            wait_for(lambda: all(orders.state(order).state.state != "placed" for order in ("o1", "o2", "o3")))
            wait_for(lambda: mails.done == 1)
            for order in ("o1", "o2", "o3"):
                for record, events in list(orders.history(order))[1:]:
                    print(order, events[0], "by", record.context.who or "the customer")


def wait_for(true) -> None:
    while not true():
        time.sleep(0.02)


if __name__ == "__main__":
    main()
