"""Killed at a named step, whichever: rows are the fold of the log, and no command and no mail goes out twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from subprocess import Popen

import pytest

from against.patience import eventually
from proving import proves
from sourcing.follower_process import start
from sourcing.mail_server import mail_server
from sourcing.orders import Pay, Place, orders, shipping
from sourcing.seats import Reserve, Seat, seats
from sourcing.test_effects import effects, kept, mailing, paid, subjects
from sourcing.test_process_manager import commands_of, state_becomes
from sourcing.test_read_model import by_replay, model, url
from tidelog.sourcing import EventStore
from tidelog.testing.broker import TestBroker

__all__ = ["url"]
pytestmark = [pytest.mark.full, pytest.mark.timeout(120)]

KILLED = -9
WRITING = ("produce", "offsets", "commit", "end")
ONCE = [f"{when}.{name}" for name in ("prepare", "show", "switch") for when in ("before", "after")]
ORDERS = [f"o{number}" for number in range(1, 7)]


def steps(*names: str) -> list[str]:
    """Each at its first and its third time: while it begins, and at work."""
    return [f"{when}.{name} {last}" for name in names for when in ("before", "after") for last in (1, 3)]


@pytest.fixture
def store(tidelog_broker: TestBroker) -> Iterator[EventStore[str]]:
    with EventStore("orders", orders(), bootstrap=tidelog_broker.bootstrap, partitions=2) as running:
        yield running


@proves("E3", "F3", "es.15")
@pytest.mark.parametrize("step", [*steps(*WRITING, "fetch"), "before.begin 1", "after.begin 1"])
def test_a_process_manager_that_dies_at_a_step_sends_each_command_once(store: EventStore[str], step: str) -> None:
    place(store, *ORDERS[:3])
    child = start("process", store.bootstrap, step=step)
    place(store, *ORDERS[3:])
    if child.poll() is None and step.endswith("3"):
        eventually(lambda: again(store, child), bool)
    assert child.wait(60) == KILLED
    names = placed(store)
    with shipping(store, start="earliest").beside():
        for name in names:
            state_becomes(store, name, "shipped")
    assert commands_of(store, "Ship") == Counter(names)


def again(store: EventStore[str], child: Popen[bytes]) -> bool:
    """More orders, until it has come by its step often enough."""
    if child.poll() is not None:
        return True
    place(store, f"o{len(placed(store)) + 1}")
    return False


def place(store: EventStore[str], *names: str) -> None:
    """A process learns its order from the amount (`orders.shipping`)."""
    for name in names:
        store.send(name, Place(int(name.removeprefix("o"))))
        store.send(name, Pay())


def placed(store: EventStore[str]) -> list[str]:
    found = []
    while store.state(f"o{len(found) + 1}").version:
        found.append(f"o{len(found) + 1}")
    return found


@proves("E3", "F3")
@pytest.mark.parametrize("step", [*steps(*WRITING), "after.begin 1"])
def test_effects_that_die_at_a_step_send_no_second_mail(store: EventStore[str], step: str) -> None:
    with mail_server() as server:
        paid(store, *ORDERS)
        child = start("effects", store.bootstrap, str(server.port), step=step)
        assert child.wait(60) == KILLED
        going_on = effects(store, mailing(server.port), start="earliest")
        with going_on.beside():
            eventually(lambda: len(server.mails) + going_on.skipped, lambda count: count >= len(ORDERS))
            eventually(lambda: kept(store, "doing/"), lambda found: not found)
        found = Counter(subjects(server))
        assert set(found.values()) == {1}, "no mail went out twice"
        assert going_on.skipped <= 1, "one was under way when it was killed"
        assert len(found) >= len(ORDERS) - going_on.skipped


@proves("E3", "F3", "es.14")
@pytest.mark.parametrize("step", [*steps("apply", "fetch"), *(f"{one} 1" for one in ONCE)])
def test_a_read_model_that_dies_at_a_step_is_the_fold_of_the_log(
    tidelog_broker: TestBroker, url: str, step: str
) -> None:
    entities = [f"A{number}" for number in range(8)]
    with EventStore("seats", seats(), bootstrap=tidelog_broker.bootstrap, partitions=2) as store:
        reserve(store, entities[:4])
        child = start("model", store.bootstrap, url, step=step)
        number = 4
        while child.poll() is None and number < 1000:
            entities += [] if number < len(entities) else [f"A{number}"]
            reserve(store, [entities[number]])
            number += 1
        assert child.wait(60) == KILLED
        with model(store).following(url) as followed:
            expected = by_replay(store, entities)
            eventually(lambda: {row["who"]: row["seats"] for row in followed.rows()}, lambda rows: rows == expected)


def reserve(store: EventStore[Seat], entities: list[str]) -> None:
    for number, entity in enumerate(entities):
        store.send(entity, Reserve(f"p{(number + len(entity)) % 3}"))
